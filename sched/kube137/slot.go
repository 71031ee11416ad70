package kube137

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched"
)

// Replaceable is a plugin of a profile whose guest, with its configuration, may be replaced while the
// scheduler runs. Scheduling cycles end on the guest on which they began.
//
// The scheduler asks a plugin once, at its start, for its extension points. A Replaceable has Filter,
// Score and PostFilter beside those that all plugins have, and answers neutrally for a guest without
// them. It sorts the queue, generates placements, and registers for events, if its first guest does.
type Replaceable interface {
	Plugin
	// Replace loads a plugin, which serves the cycles that begin from then on, and has the queue try
	// the pending Pods of the profile again. cfg.Name may be empty.
	//
	// If absent is not nil, no module is loaded: there is no guest then, and cfg.FailurePolicy decides
	// about Pods. With [host.Fail] each is refused with the error and tried again later, and
	// with [host.Ignore] Pods are scheduled as without the plugin.
	//
	// After an error the guest before serves on. Errors are those of [sched.Load], and of a
	// guest that needs more than the scheduler was asked for at its start.
	Replace(ctx context.Context, cfg sched.PluginConfig, absent error) error
}

// LoadReplaceable makes a plugin as [Replaceable].Replace does. It is closed when ctx ends.
func LoadReplaceable(ctx context.Context, rt *host.Runtime, cfg sched.PluginConfig, absent error, handle fwk.Handle) (Replaceable, error) {
	s := &slot{ctx: ctx, name: cfg.Name, runtime: rt, handle: handle, key: fwk.StateKey("kubewasm/" + cfg.Name)}
	first, err := s.load(ctx, cfg, absent)
	if err != nil {
		return nil, err
	}
	points := first.Points()
	s.points = sched.Points{
		QueueSort: points.QueueSort, PlacementGenerate: points.PlacementGenerate,
		Enqueue: points.Enqueue && len(first.EventsToRegister()) != 0, Filter: true, PostFilter: true, Score: true,
	}
	if s.points.Enqueue {
		s.registered = s.events(first.EventsToRegister())
	}
	s.current.Store(first)
	s.signs(first)
	p := composed(base{slot: s}, s.points).(Replaceable)
	context.AfterFunc(ctx, func() { _ = p.Close(context.WithoutCancel(ctx)) })
	return p, nil
}

// Replace implements [Replaceable].
func (b base) Replace(ctx context.Context, cfg sched.PluginConfig, absent error) error {
	if b.slot == nil {
		return fmt.Errorf("plugin %q: it is not replaceable", b.Name())
	}
	return b.slot.replace(ctx, cfg, absent)
}

// slot is the place of a plugin whose guest may be replaced.
type slot struct {
	ctx     context.Context
	name    string
	runtime *host.Runtime
	handle  fwk.Handle
	// key is that of the plugin on which a cycle began.
	key     fwk.StateKey
	current atomic.Pointer[plugin]
	points  sched.Points
	// registered are the events that the scheduler knows, if the points have Enqueue.
	registered []sched.Event
	// evicting goes on while plugins are replaced.
	evicting evictions
	// pinning is held while a cycle begins.
	pinning sync.Mutex

	// replacing is held while the plugin is replaced, and loaded is the number of those before. signed is
	// the guest that has signed the queued Pods, nil if none has: while there is no guest, none is signed.
	replacing sync.Mutex
	loaded    int
	signed    *sched.Plugin
}

// absence is the reason that there is no guest.
type absence struct {
	err    error
	policy host.FailurePolicy
}

// preFilter returns the status of each Pod.
func (a *absence) preFilter() *fwk.Status {
	if a.policy == host.Ignore {
		return fwk.NewStatus(fwk.Skip)
	}
	return fwk.AsStatus(a.err)
}

// load loads a plugin. It is closed when the last cycle that may need it is gone.
func (s *slot) load(ctx context.Context, cfg sched.PluginConfig, absent error) (*plugin, error) {
	if absent != nil {
		if err := cfg.FailurePolicy.Check(); err != nil {
			return nil, fmt.Errorf("plugin %q: %w", s.name, err)
		}
		return &plugin{Plugin: new(sched.Plugin), handle: s.handle, evicting: &s.evicting, absent: &absence{fmt.Errorf("plugin %q: %w", s.name, absent), cfg.FailurePolicy}}, nil
	}
	if cfg.Name == "" {
		cfg.Name = s.name
	}
	if cfg.Name != s.name {
		return nil, fmt.Errorf("name is %q, and the plugin's is %q", cfg.Name, s.name)
	}
	engine, err := sched.Load(ctx, s.runtime, cfg, frameworkOf(s.handle, &s.evicting))
	if err != nil {
		return nil, err
	}
	s.loaded++
	return &plugin{Plugin: engine, handle: s.handle, evicting: &s.evicting, key: fwk.StateKey(fmt.Sprintf("kubewasm/%s/%d", s.name, s.loaded))}, nil
}

// replace implements [Replaceable].
func (s *slot) replace(ctx context.Context, cfg sched.PluginConfig, absent error) error {
	s.replacing.Lock()
	defer s.replacing.Unlock()
	if s.ctx.Err() != nil {
		return fmt.Errorf("plugin %q: %w", s.name, host.ErrClosed)
	}
	next, err := s.load(ctx, cfg, absent)
	if err != nil {
		return err
	}
	before := s.current.Load()
	if absent == nil {
		if err := s.fits(next); err != nil {
			return errors.Join(fmt.Errorf("plugin %q: %w", s.name, err), next.Close(context.WithoutCancel(ctx)))
		}
		if s.handle != nil {
			s.handle.SharedInformerFactory().Start(s.ctx.Done()) // Those of objects that no plugin looked up before.
		}
	}
	s.current.Store(next)
	s.signs(next)
	if before.absent == nil {
		runtime.AddCleanup(before, func(engine *sched.Plugin) { go func() { _ = engine.Close(context.Background()) }() }, before.Plugin)
	}
	return s.tryAgain()
}

// errOnce is the error of a guest that needs what the scheduler was not asked for.
var errOnce = errors.New("the scheduler asks for that once, at its start: restart it")

// signs records that a plugin signs Pods from now on.
func (s *slot) signs(p *plugin) {
	if p.absent == nil {
		s.signed = p.Plugin
	}
}

// fits returns an error if the scheduler cannot go on with a plugin.
func (s *slot) fits(next *plugin) error {
	points := next.Points()
	switch {
	case points.QueueSort && !s.points.QueueSort:
		return fmt.Errorf("the guest sorts the queue: %w", errOnce)
	case points.PlacementGenerate && !s.points.PlacementGenerate:
		return fmt.Errorf("the guest generates placements: %w", errOnce)
	}
	// A plugin that rejects no Pod needs no event.
	if s.points.Enqueue && slices.ContainsFunc([]abi.Function{abi.PreEnqueue, abi.PreFilter, abi.Filter, abi.Reserve, abi.Permit}, next.Asks) {
		now := next.EventsToRegister()
		same := len(now) == len(s.registered)
		for i := 0; same && i < len(now); i++ {
			a, b := now[i], s.registered[i]
			same = a.Resource == b.Resource && a.Object == b.Object && a.Action == b.Action && (a.PreHint == nil || b.PreHint != nil) && (a.Hint == nil || b.Hint != nil)
		}
		if !same {
			return fmt.Errorf("the guest registers for different cluster events: %w", errOnce)
		}
	}
	if s.signed == nil {
		return nil
	}
	return next.SignsLike(s.signed)
}

// events returns the events that the scheduler registers, whose hints are those of the current guest.
func (s *slot) events(first []sched.Event) []sched.Event {
	list := make([]sched.Event, len(first))
	for i, e := range first {
		now := func() (e sched.Event) {
			if p := s.current.Load(); p.absent == nil {
				if events := p.EventsToRegister(); i < len(events) {
					e = events[i]
				}
			}
			return e
		}
		list[i] = sched.Event{Resource: e.Resource, Object: e.Object, Action: e.Action}
		if e.Hint != nil {
			list[i].Hint = func(pod *corev1.Pod, oldObj, newObj any) (bool, error) {
				if hint := now().Hint; hint != nil {
					return hint(pod, oldObj, newObj)
				}
				return true, nil
			}
		}
		if e.PreHint != nil {
			list[i].PreHint = func(oldObj, newObj any) ([]types.NamespacedName, bool, error) {
				if hint := now().PreHint; hint != nil {
					return hint(oldObj, newObj)
				}
				return nil, true, nil
			}
		}
	}
	return list
}

// tryAgain has the queue try the pending Pods of the profile again: the plugin before may have
// refused them.
func (s *slot) tryAgain() error {
	if s.handle == nil {
		return nil
	}
	all, err := s.handle.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	var pending []*corev1.Pod
	for _, pod := range all {
		if pod.Spec.NodeName == "" && pod.Spec.SchedulerName == s.handle.ProfileName() && pod.DeletionTimestamp == nil {
			pending = append(pending, pod)
		}
	}
	if len(pending) != 0 {
		handle{s.handle, &s.evicting}.Activate(pending)
	}
	return nil
}

// begun is the plugin on which a cycle began.
type begun struct{ *plugin }

// Clone implements fwk.StateData.
func (b begun) Clone() fwk.StateData { return b }

// at returns the plugin on which the cycle of a state began, or begins it on the current one. Without
// a state it is that.
func (s *slot) at(state states) *plugin {
	if state == nil {
		return s.current.Load()
	}
	if data, err := state.Read(s.key); err == nil {
		return data.(begun).plugin
	}
	s.pinning.Lock()
	defer s.pinning.Unlock()
	if data, err := state.Read(s.key); err == nil {
		return data.(begun).plugin
	}
	p := s.current.Load()
	state.Write(s.key, begun{p})
	return p
}
