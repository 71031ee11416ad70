package kube137

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/sched"
)

// Plugin is a guest in the scheduler. Its dynamic type implements those interfaces of the framework
// that the guest implements, and no others.
type Plugin interface {
	fwk.Plugin
	// Functions returns the functions that the guest implements.
	Functions() abi.Mask
	// Swap replaces the guest's module, as [sched.Plugin.Swap] does.
	Swap(ctx context.Context, source host.Source, sha256 string) error
	// Follow swaps the module whenever its source holds a different one, until ctx ends, as
	// [host.Plugin.Follow] does.
	Follow(ctx context.Context, opts host.FollowOptions) error
	// BeginShadow begins to call a candidate beside the guest, as [sched.Plugin.BeginShadow] does,
	// and Shadow returns it, nil if there is none.
	BeginShadow(ctx context.Context, cfg shadow.Config) error
	Shadow() *shadow.Shadow
	// BeginProfile begins to profile a copy of the guest on the next scheduling cycles, and
	// Profile returns it, nil if there is none.
	BeginProfile(ctx context.Context, cycles int) error
	Profile() *shadow.Shadow
	// Guest returns the guest, for its state and its versions.
	Guest() *host.Plugin
	// Close waits until ctx ends for the running calls, and frees the guest.
	Close(ctx context.Context) error
}

// Load makes a scheduler plugin of a module, as [sched.Load] does. Without a handle, calls of
// host functions that need a grant fail.
func Load(ctx context.Context, rt *host.Runtime, cfg sched.PluginConfig, handle fwk.Handle) (Plugin, error) {
	e := new(evictions)
	p, err := sched.Load(ctx, rt, cfg, frameworkOf(handle, e))
	if err != nil {
		return nil, err
	}
	return adapt(p, handle, e), nil
}

// Factory is the parameter of app.WithPlugin: the PluginFactory of
// k8s.io/kubernetes/pkg/scheduler/framework/runtime.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// New returns the factory of the plugin name, for app.WithPlugin. The plugin's
// module and limits come from the scheduler's configuration, see [sched.PluginConfig]. Several
// plugins have a factory each, and share rt.
//
//	app.NewSchedulerCommand(app.WithPlugin("zone", kube137.New("zone", rt, func(c *sched.PluginConfig) { c.Logger = slog.Default() })))
//
// The factory fails as [sched.LoadArgs] does. The plugin is closed when the factory's context
// ends.
func New(name string, rt *host.Runtime, set ...func(*sched.PluginConfig)) Factory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		e := new(evictions)
		p, err := sched.LoadArgs(ctx, rt, name, args, frameworkOf(handle, e), set...)
		if err != nil {
			return nil, err
		}
		return adapt(p, handle, e), nil
	}
}

// adapt returns a value that acts in a profile like a plugin with exactly the extension points of
// the guest.
func adapt(p *sched.Plugin, h fwk.Handle, e *evictions) Plugin {
	return composed(base{plugin: &plugin{Plugin: p, handle: h, evicting: e, key: fwk.StateKey("kubewasm/" + p.Name())}}, p.Points())
}

// plugin is the guest with its scheduler and the key of its cycles.
type plugin struct {
	*sched.Plugin
	handle   fwk.Handle // nil without a scheduler.
	evicting *evictions
	key      fwk.StateKey
	// beginning is held while a cycle begins without PreFilter.
	beginning sync.Mutex
	// absent is nil unless there is no guest: it stands in for one, without an engine.
	absent *absence
}

// cycle is the form of a cycle that the framework keeps.
type cycle struct{ *sched.Cycle }

// Clone implements fwk.StateData.
func (c cycle) Clone() fwk.StateData { return cycle{c.Cycle.Clone()} }

// states are the methods that the framework's kinds of cycle state share.
type states interface {
	Read(fwk.StateKey) (fwk.StateData, error)
	Write(fwk.StateKey, fwk.StateData)
}

// cycleAt returns the cycle of a Pod for a call of f, or of a group if there is none; nil if the
// guest is not asked.
func (p *plugin) cycleAt(f abi.Function, state states, pod *corev1.Pod) *sched.Cycle {
	if !p.Asks(f) {
		return nil
	}
	return p.cycle(state, pod)
}

// cycle returns the cycle that PreFilter began, or begins it if the scheduler has not called
// the plugin's PreFilter.
func (p *plugin) cycle(state states, pod *corev1.Pod) *sched.Cycle {
	if p.absent != nil {
		return nil
	}
	if state == nil {
		return p.Resume(pod)
	}
	if c := p.begun(state, pod); c != nil {
		return c
	}
	p.beginning.Lock()
	defer p.beginning.Unlock()
	if c := p.begun(state, pod); c != nil {
		return c
	}
	c := p.Resume(pod)
	state.Write(p.key, cycle{c}) // Complete: other goroutines may read it.
	return c
}

// cycleOf is cycle for the most frequent calls: it makes no other interface of state unless the
// cycle has to begin.
func (p *plugin) cycleOf(state fwk.CycleState, pod *corev1.Pod) *sched.Cycle {
	if state != nil {
		if data, err := state.Read(p.key); err == nil {
			if c, ok := data.(cycle); ok && c.For(pod) {
				return c.Cycle
			}
		}
	}
	return p.cycle(state, pod)
}

// begun returns the cycle of a Pod that is in a state, nil if there is none.
func (p *plugin) begun(state states, pod *corev1.Pod) *sched.Cycle {
	if data, err := state.Read(p.key); err == nil {
		if c, ok := data.(cycle); ok && c.For(pod) {
			return c.Cycle
		}
	}
	return nil
}

// base has the methods of Plugin and of the extension points at which a plugin without a
// function answers neutrally, by package sched.
type base struct {
	plugin *plugin
	// slot is nil unless the plugin is a [Replaceable], and plugin is nil then.
	slot *slot
}

// engine returns the plugin that serves new cycles.
func (b base) engine() *plugin {
	if b.slot != nil {
		return b.slot.current.Load()
	}
	return b.plugin
}

// at returns the plugin that serves the cycle of a state.
func (b base) at(state states) *plugin {
	if b.slot != nil {
		return b.slot.at(state)
	}
	return b.plugin
}

func (b base) Name() string {
	if b.slot != nil {
		return b.slot.name
	}
	return b.plugin.Name()
}

func (b base) Functions() abi.Mask { return b.engine().Functions() }
func (b base) Guest() *host.Plugin { return b.engine().Guest() }

func (b base) Swap(ctx context.Context, source host.Source, sha256 string) error {
	p := b.engine()
	if p.absent != nil {
		return p.absent.err
	}
	return p.Swap(ctx, source, sha256)
}

func (b base) Follow(ctx context.Context, opts host.FollowOptions) error {
	p := b.engine()
	if p.absent != nil {
		return p.absent.err
	}
	return p.Follow(ctx, opts)
}

func (b base) BeginShadow(ctx context.Context, cfg shadow.Config) error {
	p := b.engine()
	if p.absent != nil {
		return p.absent.err
	}
	return p.BeginShadow(ctx, cfg)
}

func (b base) Shadow() *shadow.Shadow { return b.engine().Shadow() }

func (b base) BeginProfile(ctx context.Context, cycles int) error {
	p := b.engine()
	if p.absent != nil {
		return p.absent.err
	}
	return p.BeginProfile(ctx, cycles)
}

func (b base) Profile() *shadow.Shadow { return b.engine().Profile() }

func (b base) Close(ctx context.Context) error {
	p := b.engine()
	if p.absent != nil {
		return nil
	}
	return p.Close(ctx)
}

func (b base) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	p := b.engine()
	if p.evicting.hold(pod.UID) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waiting until Pods are evicted for this one")
	}
	return status(p.PreEnqueue(pod))
}

func (b base) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	p := b.engine()
	if p.absent != nil { // The results of a later guest may depend on anything.
		return nil, fwk.NewStatus(fwk.Unschedulable, "the plugin has no guest, and the next one may look at all of a Pod")
	}
	list, s := p.SignPod(pod)
	var fragments []fwk.SignFragment
	for _, f := range list {
		fragments = append(fragments, fwk.SignFragment{Key: f.Key, Value: f.Value})
	}
	return fragments, status(s)
}

func (b base) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p := b.at(state)
	if p.absent != nil {
		return nil, p.absent.preFilter()
	}
	var c *sched.Cycle
	if p.Asks(abi.PreFilter) {
		if c = p.Begin(pod); state != nil {
			state.Write(p.key, cycle{c})
		}
	}
	names, s := p.PreFilter(c, nodesOf(infos))
	if names == nil {
		return nil, status(s)
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(names...)}, status(s)
}

// PreFilterExtensions returns nil unless the guest watches Pods come and go.
func (b base) PreFilterExtensions() fwk.PreFilterExtensions {
	if b.slot == nil && b.plugin.Functions()&abi.MaskOf(abi.AddPod, abi.RemovePod) == 0 {
		return nil
	}
	return preFilterExtensions{b}
}

type preFilterExtensions struct{ base base }

func (e preFilterExtensions) AddPod(_ context.Context, state fwk.CycleState, pod *corev1.Pod, added fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	p := e.base.at(state)
	return status(p.AddPod(p.cycle(state, pod), added.GetPod(), node))
}

func (e preFilterExtensions) RemovePod(_ context.Context, state fwk.CycleState, pod *corev1.Pod, removed fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	p := e.base.at(state)
	return status(p.RemovePod(p.cycle(state, pod), removed.GetPod(), node))
}

func (b base) PreScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, infos []fwk.NodeInfo) *fwk.Status {
	p := b.at(state)
	return status(p.PreScore(p.cycleAt(abi.PreScore, state, pod), nodesOf(infos)))
}

func (b base) Reserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	p := b.at(state)
	return status(p.Reserve(p.cycleAt(abi.Reserve, state, pod), pod, nodeName))
}

func (b base) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	p := b.at(state)
	p.Unreserve(p.cycleAt(abi.Unreserve, state, pod), pod, nodeName)
}

func (b base) Permit(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	p := b.at(state)
	s, wait := p.Permit(p.cycleAt(abi.Permit, state, pod), pod, nodeName)
	return status(s), wait
}

func (b base) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	p := b.at(state)
	parallel, s := p.PreBindPreFlight(p.cycleAt(abi.PreBindPreFlight, state, pod), pod, nodeName)
	return &fwk.PreBindPreFlightResult{AllowParallel: parallel}, status(s)
}

func (b base) PreBind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	p := b.at(state)
	return status(p.PreBind(ctx, p.cycleAt(abi.PreBind, state, pod), pod, nodeName))
}

func (b base) Bind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) *fwk.Status {
	p := b.at(state)
	return status(p.Bind(p.cycleAt(abi.Bind, state, pod), pod, nodeName))
}

func (b base) PostBind(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeName string) {
	p := b.at(state)
	p.PostBind(p.cycleAt(abi.PostBind, state, pod), pod, nodeName)
}

//minor:since 1.37
func (b base) PodGroupPostFilter(ctx context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, try fwk.PodGroupSchedulingFunc) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	p := b.at(state)
	nominations, s := p.PodGroupPostFilter(p.cycleAt(abi.PodGroupPostFilter, state, nil), groupOf(group), trial(ctx, try))
	return nominated(nominations), status(s)
}

//minor:since 1.36
func (b base) ScorePlacement(_ context.Context, state fwk.PlacementCycleState, group fwk.PodGroupInfo, placement *fwk.PodGroupAssignments) (int64, *fwk.Status) {
	p := b.at(state)
	score, s := p.ScorePlacement(p.cycleAt(abi.ScorePlacement, state, nil), groupOf(group), placed(placement))
	return score, status(s)
}

// PlacementScoreExtensions returns nil unless the guest normalizes the scores of placements.
//
//minor:since 1.36
func (b base) PlacementScoreExtensions() fwk.PlacementScoreExtensions {
	if b.slot == nil && (!b.plugin.Asks(abi.ScorePlacement) || !b.plugin.Asks(abi.NormalizePlacementScore)) {
		return nil
	}
	return placementScoreExtensions{b}
}

//minor:since 1.36
type placementScoreExtensions struct{ base base }

//minor:since 1.36
func (e placementScoreExtensions) NormalizePlacementScore(_ context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, scores []fwk.PlacementScore) *fwk.Status {
	p := e.base.at(state)
	return status(p.NormalizePlacementScore(p.cycle(state, nil), groupOf(group), placementScores(scores)))
}

// The extension points whose methods a plugin has only if [sched.Points] contains them.
type (
	queueSort struct{ base base }
	//minor:since 1.36
	placementGenerate struct{ base base }
	enqueue           struct{ base base }
	filter            struct{ base base }
	postFilter        struct{ base base }
	score             struct{ base base }
)

func (q queueSort) Less(a, b fwk.QueuedEntityInfo) bool {
	return q.base.engine().Less(queued(a), queued(b))
}

//minor:since 1.36
func (g placementGenerate) GeneratePlacements(_ context.Context, state fwk.PodGroupCycleState, group fwk.PodGroupInfo, parent *fwk.Placement) (*fwk.GeneratePlacementsResult, *fwk.Status) {
	p := g.base.at(state)
	var all sched.Nodes
	if parent != nil {
		all = nodesOf(parent.Nodes)
	}
	list, s := p.GeneratePlacements(p.cycle(state, nil), groupOf(group), all)
	return generated(list, s, parent), status(s)
}

func (e enqueue) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	if e.base.slot != nil {
		return clusterEvents(e.base.slot.registered), nil
	}
	return clusterEvents(e.base.plugin.EventsToRegister()), nil
}

func (f filter) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	p := f.base.plugin
	if f.base.slot != nil {
		p = f.base.slot.at(state)
	}
	return status(p.Filter(p.cycleOf(state, pod), node))
}

func (f postFilter) PostFilter(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	p := f.base.at(state)
	if p.Asks(abi.PotentialVictims) {
		return p.preempt(ctx, state, pod, statuses)
	}
	nomination, s := p.PostFilter(p.cycle(state, pod), nodeStatuses(statuses))
	return postFilterResult(nomination), status(s)
}

func (f score) Score(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	p := f.base.plugin
	if f.base.slot != nil {
		p = f.base.slot.at(state)
	}
	n, s := p.Score(p.cycleOf(state, pod), node)
	return n, status(s)
}

// ScoreExtensions returns nil unless the guest normalizes scores.
func (f score) ScoreExtensions() fwk.ScoreExtensions {
	if f.base.slot == nil && !f.base.plugin.Functions().Has(abi.NormalizeScore) {
		return nil
	}
	return scoreExtensions{f.base}
}

type scoreExtensions struct{ base base }

func (e scoreExtensions) NormalizeScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, list fwk.NodeScoreList) *fwk.Status {
	p := e.base.at(state)
	return status(p.NormalizeScore(p.cycle(state, pod), scores(list)))
}
