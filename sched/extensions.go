package sched

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

//go:generate go run ./internal/compose

// extensions has the methods of all extension points. The scheduler gets them by way of
// base, which answers neutrally where the guest has no function, and of the types of those
// extension points that have no neutral answer.
type extensions struct {
	plugin *plugin
	// offered are the functions of the guest, as the framework is to see them.
	offered abi.Mask
}

// The interfaces of the framework, as far as plugins may implement them.
var _ interface {
	fwk.PreEnqueuePlugin
	fwk.QueueSortPlugin
	fwk.EnqueueExtensions
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	fwk.PostFilterPlugin
	fwk.PreScorePlugin
	fwk.ScorePlugin
	fwk.ReservePlugin
	fwk.PermitPlugin
	fwk.PreBindPlugin
	fwk.BindPlugin
	fwk.PostBindPlugin
	fwk.SignPlugin
	fwk.PodGroupPostFilterPlugin
	fwk.PlacementGeneratePlugin
	fwk.PlacementScorePlugin
	Plugin
} = &extensions{}

// What a guest has a function for, of what is found together.
var (
	preFiltering = abi.MaskOf(abi.PreFilter, abi.AddPod, abi.RemovePod)
	reserving    = abi.MaskOf(abi.Reserve, abi.Unreserve)
	preBinding   = abi.MaskOf(abi.PreBind, abi.PreBindPreFlight)
	// rejecting are the functions after which a Pod may wait for an event.
	rejecting = abi.MaskOf(abi.PreEnqueue, abi.Filter, abi.Permit) | preFiltering | reserving
	// choosing are those on which the choice of a node depends, which a signature must cover.
	choosing = abi.MaskOf(abi.Filter, abi.PreScore, abi.Score) | preFiltering
)

// as returns a value that does in a profile what a plugin with exactly the extension points of
// the functions does.
func (p *plugin) as(functions abi.Mask) Plugin {
	set := 0
	for _, point := range []struct {
		bit     int
		present bool
	}{
		{queueSortBit, functions.Has(abi.QueueSort)},
		{placementGenerateBit, functions.Has(abi.GeneratePlacements)},
		// A plugin without it is tried again after every event, so one that rejects nothing
		// has it and registers for none.
		{enqueueBit, functions.Has(abi.EventsToRegister) || functions&rejecting == 0},
		{filterBit, functions.Has(abi.Filter)},
		{postFilterBit, functions.Has(abi.PostFilter)},
		{scoreBit, functions.Has(abi.Score)},
	} {
		if point.present {
			set |= point.bit
		}
	}
	return composed(base{&extensions{p, functions}}, set)
}

// The extension points of which a plugin must not have the methods in vain:
//
//   - QueueSort and PlacementGenerate: the framework refuses a profile with two;
//   - EnqueueExtensions: without it a Pod that the plugin rejected is tried again after every
//     event, of which only the framework has the list;
//   - Filter and Score: the plugin is called for each node, and with a Score the scheduler
//     looks for more nodes than the first that fits;
//   - PostFilter: a profile without any clears the nomination of a Pod that does not fit.
type (
	queueSort         struct{ e *extensions }
	placementGenerate struct{ e *extensions }
	enqueue           struct{ e *extensions }
	filter            struct{ e *extensions }
	postFilter        struct{ e *extensions }
	score             struct{ e *extensions }
)

func (p queueSort) Less(a, b fwk.QueuedEntityInfo) bool { return p.e.Less(a, b) }

func (p placementGenerate) GeneratePlacements(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, parent *fwk.Placement) (*fwk.GeneratePlacementsResult, *fwk.Status) {
	return p.e.GeneratePlacements(ctx, state, group, parent)
}

func (p enqueue) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	if p.e.offered&rejecting == 0 {
		return nil, nil
	}
	return p.e.EventsToRegister(ctx)
}

func (p filter) Filter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	return p.e.Filter(ctx, state, pod, node)
}

func (p postFilter) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	return p.e.PostFilter(ctx, state, pod, statuses)
}

func (p score) Score(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	return p.e.Score(ctx, state, pod, node)
}

func (p score) ScoreExtensions() fwk.ScoreExtensions { return p.e.ScoreExtensions() }

// base has the methods of Plugin and of all other extension points. Where the guest has no
// function it answers what leaves everything as it is without the plugin:
// internal/e2e/neutral holds that in the framework itself.
type base struct{ extensions *extensions }

func (p base) has(functions abi.Mask) bool { return p.extensions.offered&functions != 0 }

func (p base) inner() *plugin { return p.extensions.plugin }

func (p base) Name() string        { return p.extensions.Name() }
func (p base) Functions() abi.Mask { return p.extensions.Functions() }

func (p base) Swap(ctx context.Context, source host.Source, sha256 string) error {
	return p.extensions.Swap(ctx, source, sha256)
}

func (p base) Follow(ctx context.Context, opts host.FollowOptions) error {
	return p.extensions.Follow(ctx, opts)
}

func (p base) Close(ctx context.Context) error { return p.extensions.Close(ctx) }

func (p base) PreEnqueue(ctx context.Context, pod *corev1.Pod) *fwk.Status {
	if !p.has(abi.MaskOf(abi.PreEnqueue)) {
		return nil
	}
	return p.extensions.PreEnqueue(ctx, pod)
}

// PreFilter without a function skips the plugin in the cycle, unless the guest filters.
func (p base) PreFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	switch {
	case p.has(preFiltering):
		return p.extensions.PreFilter(ctx, state, pod, nodes)
	case p.has(abi.MaskOf(abi.Filter)):
		return nil, nil
	}
	return nil, fwk.NewStatus(fwk.Skip)
}

func (p base) PreFilterExtensions() fwk.PreFilterExtensions {
	return p.extensions.PreFilterExtensions()
}

// PreScore without a function skips the plugin in the cycle, unless the guest scores.
func (p base) PreScore(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	switch {
	case p.has(abi.MaskOf(abi.PreScore)):
		return p.extensions.PreScore(ctx, state, pod, nodes)
	case p.has(abi.MaskOf(abi.Score)):
		return nil
	}
	return fwk.NewStatus(fwk.Skip)
}

// SignPod adds nothing to a signature if the guest lacks the function and no choice of a node
// depends on it. Without the function, any other guest keeps Pods from being signed, as a
// plugin without the method does.
func (p base) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	switch {
	case p.has(abi.MaskOf(abi.SignPod)):
		return p.extensions.SignPod(ctx, pod)
	case p.has(choosing):
		return nil, fwk.NewStatus(fwk.Unschedulable, "the plugin signs no Pods")
	}
	return nil, nil
}

func (p base) Reserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	if !p.has(reserving) {
		return nil
	}
	return p.extensions.Reserve(ctx, state, pod, nodeName)
}

func (p base) Unreserve(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	if p.has(reserving) {
		p.extensions.Unreserve(ctx, state, pod, nodeName)
	}
}

func (p base) Permit(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	if !p.has(abi.MaskOf(abi.Permit)) {
		return nil, 0
	}
	return p.extensions.Permit(ctx, state, pod, nodeName)
}

// PreBindPreFlight without a function skips the plugin, and allows that the plugins before
// and after it run in parallel.
func (p base) PreBindPreFlight(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if !p.has(preBinding) {
		return &fwk.PreBindPreFlightResult{AllowParallel: true}, fwk.NewStatus(fwk.Skip)
	}
	return p.extensions.PreBindPreFlight(ctx, state, pod, nodeName)
}

func (p base) PreBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	if !p.has(preBinding) {
		return nil
	}
	return p.extensions.PreBind(ctx, state, pod, nodeName)
}

// Bind without a function leaves the Pod to the next plugin.
func (p base) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	if !p.has(abi.MaskOf(abi.Bind)) {
		return fwk.NewStatus(fwk.Skip)
	}
	return p.extensions.Bind(ctx, state, pod, nodeName)
}

func (p base) PostBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	if p.has(abi.MaskOf(abi.PostBind)) {
		p.extensions.PostBind(ctx, state, pod, nodeName)
	}
}

func (p base) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, try fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	if !p.has(abi.MaskOf(abi.PodGroupPostFilter)) {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	return p.extensions.PodGroupPostFilter(ctx, state, group, try)
}

func (p base) ScorePlacement(ctx context.Context, state fwk.PlacementCycleState, group fwk.PodGroupInfo, placement *fwk.PodGroupAssignments) (int64, *fwk.Status) {
	if !p.has(abi.MaskOf(abi.ScorePlacement)) {
		return 0, nil
	}
	return p.extensions.ScorePlacement(ctx, state, group, placement)
}

func (p base) PlacementScoreExtensions() fwk.PlacementScoreExtensions {
	if !p.has(abi.MaskOf(abi.ScorePlacement)) {
		return nil
	}
	return p.extensions.PlacementScoreExtensions()
}
