package host

import (
	"context"
	"time"

	"github.com/kubewasm/kubewasm/internal/loading"
)

// Observer receives the events of plugins; metrics and traces are observers. A
// plugin without one measures nothing. Events name their plugin by [Stats].Label.
//
// # Notes
//
//   - The methods run on the goroutine that causes the event, and several at the same time: they
//     must be quick and safe for that.
//   - They must not call the plugin.
//   - An Observer with a method Shadowed(plugin, result string) also receives the results of shadows,
//     and one with Skipped(plugin, function string) the calls that an adapter did not make.
type Observer interface {
	// Called receives a call that has ended. ctx is the caller's.
	Called(ctx context.Context, c CallEvent)
	// Built receives the result of building a version for Load or Swap. ctx is
	// the caller's.
	Built(ctx context.Context, b BuildEvent)
	// CacheHits receives the number of calls of a function that did not run, because an adapter had
	// their results in a cache. The cache of the scheduler shares results between equal Nodes.
	CacheHits(plugin, function string, n uint64)
	// Refused receives the error of a caller of [Plugin.Acquire] that got no
	// instance: an [ErrSaturated], [ErrDisabled], [ErrMemory] or [ErrClosed],
	// the error of a new instance, or that of a quota. ctx is the caller's.
	Refused(ctx context.Context, plugin string, err error)
	// Restarted is called for an instance that was reset from the snapshot or,
	// if that failed, replaced.
	Restarted(plugin string, replaced bool)
}

// Observers returns an Observer that calls each of observers, in their order.
// Nil ones are skipped; if there is no other, the result is nil, which costs
// nothing.
func Observers(observers ...Observer) Observer {
	list := make(observerList, 0, len(observers))
	for _, o := range observers {
		if o != nil {
			list = append(list, o)
		}
	}
	switch len(list) {
	case 0:
		return nil
	case 1:
		return list[0]
	}
	return list
}

type observerList []Observer

func (l observerList) Called(ctx context.Context, c CallEvent) {
	for _, o := range l {
		o.Called(ctx, c)
	}
}

func (l observerList) Built(ctx context.Context, b BuildEvent) {
	for _, o := range l {
		o.Built(ctx, b)
	}
}

func (l observerList) Shadowed(plugin, result string) {
	for _, o := range l {
		if s, ok := o.(loading.ShadowObserver); ok {
			s.Shadowed(plugin, result)
		}
	}
}

func (l observerList) Skipped(plugin, function string) {
	for _, o := range l {
		if s, ok := o.(loading.SkipObserver); ok {
			s.Skipped(plugin, function)
		}
	}
}

func (l observerList) AccountOf(plugin string) loading.Account {
	for _, o := range l {
		if a := loading.AccountOf(o, plugin); a != nil {
			return a
		}
	}
	return nil
}

func (l observerList) CacheHits(plugin, function string, n uint64) {
	for _, o := range l {
		o.CacheHits(plugin, function, n)
	}
}

func (l observerList) Refused(ctx context.Context, plugin string, err error) {
	for _, o := range l {
		o.Refused(ctx, plugin, err)
	}
}

func (l observerList) Restarted(plugin string, replaced bool) {
	for _, o := range l {
		o.Restarted(plugin, replaced)
	}
}

// CallEvent is a call of a guest that has ended.
type CallEvent struct {
	Plugin string
	// Digest is the SHA-256 of the module that ran, in hexadecimal.
	Digest string
	// Function is the name of the export.
	Function string
	Start    time.Time
	Duration time.Duration
	// Fuel is the fuel that the call used, see Limits.Fuel.
	Fuel int64
	// Err is nil, or the *[TrapError] of a guest that did not return.
	Err error
}

// BuildEvent is the result of building a version.
type BuildEvent struct {
	Plugin string
	// Digest is the SHA-256 of the module, in hexadecimal; empty if it could not
	// be fetched.
	Digest string
	// Swap is false for the first version of a plugin.
	Swap     bool
	Start    time.Time
	Duration time.Duration
	// Err is nil if the version serves; otherwise it is the reason.
	Err error
}

// Stats is the state of a plugin at one moment.
type Stats struct {
	// Label is the name of the plugin in its process: its name or, with a Config.Scope, that, a
	// slash and its name.
	Label string
	// Reference is the file, URL or reference of the module in service, empty if there is none.
	Reference string
	// Instances is the number of instances, Idle the number of them that serve
	// no call, Limit the maximum of Instances, Waiting the number of callers
	// that wait for one.
	Instances, Idle, Limit, Waiting int
	// Held is the number of instances that are held, not counted by Instances;
	// see [Hold].
	Held int
	// Retired is the number of old versions that still serve calls that began on them.
	Retired int
	// MemoryBytes is the linear memory of a new instance, in bytes.
	MemoryBytes uint64
	// LogDropped is the number of lines that were dropped from the log of the guest, and from that
	// of the host about its calls; see [Limits].LogBytes.
	LogDropped uint64
	// Disabled reports whether the plugin is out of service, see [CircuitBreaker].
	Disabled bool
	// State is Serving, Stale or Unavailable.
	State State
	// Isolation is the level at which the guest is kept from the component. Weaker are the reasons
	// for which the wall is lower here than it could be, such as a kernel without Landlock, or for
	// which there is none, see [Runtime.Isolation].
	Isolation Isolation
	Weaker    []string
}

// Stats returns the state of the plugin.
func (p *Plugin) Stats() Stats {
	v := p.current.Load()
	s := Stats{LogDropped: p.lines.Dropped() + p.calls.Dropped(), Disabled: p.breaker != nil && p.breaker.open()}
	s.State, _ = p.State()
	s.Label, s.Isolation = p.label, p.isolation()
	if v.compiled != nil {
		s.Weaker = v.compiled.weaker
	}
	if err := p.runtime.noWall.Load(); err != nil && p.cfg.Isolation == IsolationNone {
		s.Weaker = []string{(*err).Error()}
	}
	if r := p.reference.Load(); r != nil {
		s.Reference = *r
	}
	if v.snapshot != nil {
		s.MemoryBytes = v.snapshot.size
	}
	v.pool.mu.Lock()
	s.Instances, s.Idle, s.Limit, s.Waiting = v.pool.count, v.pool.idle(), len(v.pool.slots), len(v.pool.waiters)+len(v.pool.returning)
	s.Held = len(v.pool.holds)
	v.pool.mu.Unlock()
	p.mu.Lock()
	s.Retired = len(p.retired)
	p.mu.Unlock()
	return s
}

// Plugins returns the plugins that are loaded and not closed, in no order.
func (rt *Runtime) Plugins() []*Plugin {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	plugins := make([]*Plugin, 0, len(rt.plugins))
	for p := range rt.plugins {
		plugins = append(plugins, p)
	}
	return plugins
}
