package sched

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
)

// Plugin is a guest in the scheduler. Its dynamic type implements the
// interfaces of the framework that the guest does.
type Plugin interface {
	fwk.Plugin
	// Functions returns what the guest implements.
	Functions() abi.Mask
	// Close waits until ctx ends for the calls that run, and frees the guest.
	Close(ctx context.Context) error
}

// Load makes a scheduler plugin of a module. cfg.Kind, cfg.Imports and
// cfg.NewState are set by Load. Of Pods and Nodes the guest gets the fields that
// its module declares in its metadata.
//
// Errors are those of [host.Runtime.Load].
func Load(ctx context.Context, rt *host.Runtime, cfg host.Config) (Plugin, error) {
	return load(ctx, rt, cfg, nil)
}

// load is Load with a projection that takes the place of the module's, unless it
// is empty.
func load(ctx context.Context, rt *host.Runtime, cfg host.Config, projection []string) (Plugin, error) {
	p := &plugin{key: fwk.StateKey("kubewasm/" + cfg.Name)}
	cfg.Kind = abi.KindScheduler
	cfg.Imports = p.imports()
	cfg.NewState = func() any { return &instance{} }
	cfg.Probe = p.projecting(projection, cfg.Probe)
	guest, err := rt.Load(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p.guest = guest
	// The framework cancels a Filter's context as soon as enough nodes were
	// found, and takes an error for a failure of the whole cycle. A call that
	// has begun therefore ends by its own limits only.
	p.ctx = context.WithoutCancel(ctx)
	return p.as(guest.Functions()), nil
}

// plugin is what every combination of extension points shares.
type plugin struct {
	guest   *host.Plugin
	ctx     context.Context
	key     fwk.StateKey
	objects codec.Table
	cycles  cycleCounter
	// crossings counts the objects that guests fetched.
	crossings atomic.Uint64
}

// Name returns the name under which the plugin was loaded.
func (p *plugin) Name() string { return p.guest.Name() }

// Functions returns what the guest implements.
func (p *plugin) Functions() abi.Mask { return p.guest.Functions() }

// Close waits until ctx ends for the calls that run, and frees the guest.
func (p *plugin) Close(ctx context.Context) error { return p.guest.Close(ctx) }

// call runs f in an instance that knows the cycle. then, if not nil, reads what
// the guest left in the instance.
func (p *plugin) call(f abi.Function, c *cycle, node *codec.Object, args call, then func(*instance)) (uint64, *fwk.Status) {
	inst, err := p.guest.Acquire(p.ctx)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	defer inst.Release()
	state := inst.State().(*instance)
	if f != abi.PreFilter {
		if err := p.show(inst, state, c); err != nil {
			return 0, fwk.AsStatus(err)
		}
	}
	args.pod, args.node = c.pod, node
	state.call = args
	result, err := p.run(inst, f, c, node)
	if err != nil {
		state.call = call{}
		return 0, fwk.AsStatus(err)
	}
	if then != nil {
		then(state)
	}
	state.call = call{}
	return result, status(uint32(result), inst)
}

// run calls f with the refs that it takes.
func (p *plugin) run(inst *host.Instance, f abi.Function, c *cycle, node *codec.Object) (uint64, error) {
	if node == nil {
		return inst.Call(p.ctx, f, uint64(c.ref), uint64(c.pod.Ref))
	}
	return inst.Call(p.ctx, f, uint64(c.ref), uint64(c.pod.Ref), uint64(node.Ref))
}

// show replays the PreFilter of a cycle that the instance has not seen. Its
// result is that of the first run, which the framework has already.
func (p *plugin) show(inst *host.Instance, state *instance, c *cycle) error {
	seen := &state.seen[c.ref.Slot()]
	if *seen == c.ref.Version() || !p.guest.Functions().Has(abi.PreFilter) {
		return nil
	}
	state.call = call{pod: c.pod, replay: true}
	if _, err := p.run(inst, abi.PreFilter, c, nil); err != nil {
		return fmt.Errorf("replay PreFilter: %w", err)
	}
	*seen = c.ref.Version()
	return nil
}

// status turns the code that a guest returned into a status of the framework:
// nil for success, whatever reason came with it; an error for a code that the
// framework does not know, since it panics on those.
func status(result uint32, inst *host.Instance) *fwk.Status {
	code := abi.Code(int32(result))
	switch {
	case code == abi.Success:
		return nil
	case !code.Known():
		return fwk.NewStatus(fwk.Error, fmt.Sprintf("plugin %q: guest returned the unknown status code %d: %s", inst.Plugin().Name(), int32(code), inst.Reason()))
	}
	if reason := inst.Reason(); reason != "" {
		return fwk.NewStatus(fwk.Code(code), reason)
	}
	return fwk.NewStatus(fwk.Code(code))
}

// PreFilter implements fwk.PreFilterPlugin.
func (f preFilter) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	f.p.objects.Advance()
	c, err := f.p.begin(state, pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	var result *fwk.PreFilterResult
	_, status := f.p.call(abi.PreFilter, c, nil, call{}, func(i *instance) {
		i.seen[c.ref.Slot()] = c.ref.Version()
		if i.call.nodeNames != nil {
			result = &fwk.PreFilterResult{NodeNames: sets.New(i.call.nodeNames...)}
		}
	})
	if !status.IsSuccess() {
		return nil, status
	}
	return result, nil
}

// PreFilterExtensions implements fwk.PreFilterPlugin.
func (f preFilter) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter implements fwk.FilterPlugin.
//
// 0 allocs if the node passes: TestFilterDoesNotAllocate.
func (f filter) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	_, status := f.p.onNode(abi.Filter, state, pod, nodeInfo)
	return status
}

// Score implements fwk.ScorePlugin.
//
// 0 allocs: TestFilterDoesNotAllocate.
func (s score) Score(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodeInfo fwk.NodeInfo) (int64, *fwk.Status) {
	result, status := s.p.onNode(abi.Score, state, pod, nodeInfo)
	n, _ := abi.UnpackScore(result)
	return int64(n), status
}

// ScoreExtensions implements fwk.ScorePlugin.
func (s score) ScoreExtensions() fwk.ScoreExtensions {
	if s.p.guest.Functions().Has(abi.NormalizeScore) {
		return s
	}
	return nil
}

// onNode runs f for a node.
func (p *plugin) onNode(f abi.Function, state fwk.CycleState, pod *corev1.Pod, nodeInfo fwk.NodeInfo) (uint64, *fwk.Status) {
	node := nodeInfo.Node()
	if node == nil {
		return 0, fwk.NewStatus(fwk.Error, "node not found")
	}
	c, err := p.cycleOf(state, pod)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	object, err := p.objects.Node(node)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	return p.call(f, c, object, call{}, nil)
}

// NormalizeScore implements fwk.ScoreExtensions. The scores stay as they are
// unless the guest succeeds and hands over a score for each of them.
func (s score) NormalizeScore(_ context.Context, state fwk.CycleState, pod *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	c, err := s.p.cycleOf(state, pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	var normalized []int64
	_, status := s.p.call(abi.NormalizeScore, c, nil, call{scores: scores}, func(i *instance) {
		normalized = i.call.normalized
	})
	if status.IsSuccess() {
		// By index: the framework reads the list that way, whatever the names.
		for n, score := range normalized {
			scores[n].Score = score
		}
	}
	return status
}
