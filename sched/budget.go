package sched

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// The framework calls a plugin once for each node, each candidate and each pending Pod, so the
// limits of a call bound nothing by themselves. A scheduling cycle has a budget of fuel for all its
// calls and remembers its first failure. A call under the lock of the scheduling queue has a
// separate deadline, and a failure counts for the rest of its event.

// defaultCycleFuel is the default of PluginConfig.CycleFuel: about half a second of a guest's work.
const defaultCycleFuel = 1_000_000_000

// cheapCall is the fuel of a call of Filter or Score, some 30 us, below which it is not counted:
// goroutines would wait for the counter.
const cheapCall = 1 << 16

// countedCall is the maximum fuel of a call that is counted at its end. Fuel beyond it was counted
// by Spend.
const countedCall = 2_000_000

// life is the budget of a cycle, which its clones share, and the first failure. It is the context
// of the calls in the scheduling cycle, and ends with that failure. The failure of a clone affects
// only that clone: a preemption tries out many, and the others may still find room. It implements
// [host.Budget].
type life struct {
	context.Context
	// of is the life of the cycle that it was cloned from, nil for the first.
	of      *life
	limit   int64
	spent   atomic.Int64
	failure atomic.Pointer[failure]

	mu   sync.Mutex
	done chan struct{} // nil until a goroutine waits.
}

// failure is a call of a cycle that failed.
type failure struct {
	function abi.Function
	err      error
}

// errCycleFailed ends the other calls of a cycle after its first failure.
var errCycleFailed = fmt.Errorf("an earlier call of the scheduling cycle failed: %w", context.Canceled)

// first returns the first failure of the cycle, or of one that it was cloned from.
func (l *life) first() *failure {
	for ; l != nil; l = l.of {
		if f := l.failure.Load(); f != nil {
			return f
		}
	}
	return nil
}

// root returns the life of the cycle that was not cloned.
func (l *life) root() *life {
	for l.of != nil {
		l = l.of
	}
	return l
}

// Err implements context.Context.
func (l *life) Err() error {
	if l.first() != nil {
		return errCycleFailed
	}
	return nil
}

// Done implements context.Context. A single goroutine calls a clone, so no call waits for the
// failure of its own clone.
func (l *life) Done() <-chan struct{} {
	l = l.root()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.failure.Load() != nil {
			close(l.done)
		}
	}
	return l.done
}

// fail records a failure, and reports whether it is the first.
func (l *life) fail(f abi.Function, err error) bool {
	if root := l.root(); root != l && root.spent.Load() > root.limit {
		root.fail(f, err) // All clones would fail.
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.failure.CompareAndSwap(nil, &failure{f, err}) {
		return false
	}
	if l.done != nil {
		close(l.done)
	}
	return true
}

// Spend implements host.Budget.
func (l *life) Spend(fuel int64) error {
	if l = l.root(); l.spent.Add(fuel) > l.limit {
		return l.overspent()
	}
	return nil
}

func (l *life) overspent() error {
	return fmt.Errorf("%w: cycleFuel of %d for all calls of a scheduling cycle", host.ErrFuel, l.limit)
}

// charge counts a call that has ended. The cycle fails when the budget is used up.
func (l *life) charge(f abi.Function, fuel int64) {
	if l = l.root(); l.spent.Add(min(fuel, countedCall)) > l.limit {
		l.fail(f, l.overspent())
	}
}

// context returns the context of a call of f in a phase of a cycle. A call made in spite of a
// failure has the budget of the binding.
func (p *Plugin) context(c *Cycle, f abi.Function, phase phase) context.Context {
	if phase == binding || placed.Has(f) && c.life.first() != nil {
		return &c.binding
	}
	return &c.life
}

// bindingBudget is the context of the calls in the binding of a Pod. The scheduler does not wait for
// them, but they hold instances that it needs. It implements [host.Budget].
type bindingBudget struct {
	context.Context
	limit int64
	spent atomic.Int64
}

// Spend implements host.Budget.
func (b *bindingBudget) Spend(fuel int64) error {
	if b.spent.Add(fuel) > b.limit {
		return fmt.Errorf("%w: cycleFuel of %d for all calls of the binding of a Pod", host.ErrFuel, b.limit)
	}
	return nil
}

// mayBind waits until a call of a binding may take an instance: all but one, so that one is left
// for calls that the scheduler waits for. The caller hands it back by bound.
func (p *Plugin) mayBind(ctx context.Context) (bound bool, err error) {
	if p.binding == nil {
		return false, nil
	}
	select {
	case p.binding <- struct{}{}:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// replayed are the functions that are repeated for a guest on another instance: after a failure of
// one, each further call would repeat it.
var replayed = abi.MaskOf(abi.PreFilter, abi.AddPod, abi.RemovePod, abi.Reserve)

// placed are the functions, those of binding among them, that are called even if a node could not
// be filtered or scored.
var placed = binds | abi.MaskOf(abi.PreBindPreFlight)

// failedIn decides on the result of a call of a cycle whose guest did not answer.
func (p *Plugin) failedIn(c *Cycle, f abi.Function, err error, neutral *Status) *Status {
	if c.life.first() == nil && c.life.fail(f, err) {
		p.awaits(c, err)
		return p.failed(f, err, neutral)
	}
	if placed.Has(f) && !replayed.Has(c.life.first().function) {
		return p.failed(f, err, neutral) // It was called in spite of the first one.
	}
	status, _ := p.over(c, f, neutral)
	return status
}

// over returns the status of a call that is not made since the cycle has failed, and reports
// whether it has.
func (p *Plugin) over(c *Cycle, f abi.Function, neutral *Status) (*Status, bool) {
	first := c.life.first()
	if first == nil || placed.Has(f) && !replayed.Has(first.function) {
		return nil, false
	}
	p.skipped(f)
	if p.policy == host.Ignore {
		return neutral, true
	}
	return trapStatus(fmt.Errorf("%s has failed in this scheduling cycle: %w", first.function, first.err)), true
}

// skipped counts a call that was not made.
func (p *Plugin) skipped(f abi.Function) {
	if o, ok := p.observer.(loading.SkipObserver); ok {
		o.Skipped(p.label, f.String())
	}
}

// defaultQueueTimeout is the default of PluginConfig.QueueTimeout.
const defaultQueueTimeout = 10 * time.Millisecond

const (
	// eventFuel is the fuel of all hints for one event, some 50 ms of work.
	eventFuel = 100_000_000
	// leastFuel is the minimum fuel, some milliseconds of work, of a call under the lock of the
	// queue. On a busy machine the time may have gone to other processes.
	leastFuel = 5_000_000
	// sameEvent is the time for which a failure counts for an event without objects to identify it.
	sameEvent = time.Second
	// pauseAfter is the maximum number of failures at once, and pause the time that makes up for
	// one. In between the guest is not asked. A success makes up for none: most questions concern
	// Pods on which the guest does not fail.
	pauseAfter = 5
	pause      = time.Second
	// poisonTime is the time for which a Pod is not asked about after the guest has failed on it,
	// and maxPoison the maximum number of such Pods.
	poisonTime = 10 * time.Second
	maxPoison  = 1 << 10
)

// queueGuard keeps a guest from delaying the scheduling queue.
type queueGuard struct {
	mu sync.Mutex
	// oldObj and newObj are the objects of the last event, and begun is its time. fuel is the fuel
	// that hints have used for it, and over is set if no more are asked.
	oldObj, newObj metav1.Object
	begun          time.Time
	fuel           int64
	over           bool
	// failures is the number of failures that no pause has made up for yet, at the time since.
	// paused is set once the pause was logged.
	failures int
	since    time.Time
	paused   bool
	// poison are Pods on which the guest has failed, with the error and the time at which the entry
	// ends.
	poison map[types.UID]poison
}

type poison struct {
	until time.Time
	err   error
}

// asks reports whether the guest is asked about an event, or returns the reason why not. The
// objects are nil for a question without an event.
func (g *queueGuard) asks(oldObj, newObj metav1.Object) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.failures == 0 && !g.over && g.oldObj == oldObj && g.newObj == newObj {
		return true // Nearly always so.
	}
	now := time.Now()
	if g.oldObj != oldObj || g.newObj != newObj || oldObj == nil && newObj == nil && now.Sub(g.begun) > sameEvent {
		g.oldObj, g.newObj, g.begun, g.fuel, g.over = oldObj, newObj, now, 0, false
	}
	return !g.over && g.mayTry(now)
}

// mayTry reports whether the guest may be asked in spite of its failures. g.mu is held.
func (g *queueGuard) mayTry(now time.Time) bool {
	if g.failures == 0 {
		return true
	}
	if n := int64(now.Sub(g.since) / pause); n > 0 {
		g.failures, g.since = max(0, g.failures-int(min(n, pauseAfter))), g.since.Add(time.Duration(n)*pause)
	}
	if g.failures == 0 {
		g.paused = false
	}
	return g.failures < pauseAfter
}

// asked records the end of a question about an event. It reports whether to log that the guest is
// not asked for a while.
func (g *queueGuard) asked(fuel int64, err error) (paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fuel += fuel; err == nil && g.fuel <= eventFuel {
		return false
	}
	g.over = true
	return g.failed()
}

// failed counts a failure, and reports whether to log that the guest is not asked for a while. g.mu
// is held.
func (g *queueGuard) failed() bool {
	if g.failures == 0 {
		g.since = time.Now()
	}
	g.failures++
	paused := g.failures >= pauseAfter && !g.paused
	g.paused = g.paused || paused
	return paused
}

// knows returns the reason why the guest is not asked about a Pod, nil if it is asked.
func (g *queueGuard) knows(pod *corev1.Pod) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if p, ok := g.poison[pod.UID]; ok {
		if now.Before(p.until) {
			return fmt.Errorf("it is not asked about the Pod for some time: %w", p.err)
		}
		delete(g.poison, pod.UID)
	}
	if !g.mayTry(now) {
		return errPaused
	}
	return nil
}

var errPaused = fmt.Errorf("it fails more than once in %s and is skipped for that time", pause)

// told records the end of a question about a Pod, which is nil if there was no instance to ask.
func (g *queueGuard) told(pod *corev1.Pod, err error) (paused bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err == nil {
		return false
	}
	if pod == nil {
		return g.failed()
	}
	if g.poison == nil || len(g.poison) >= maxPoison {
		g.poison = map[types.UID]poison{}
	}
	g.poison[pod.UID] = poison{time.Now().Add(poisonTime), err}
	return g.failed()
}

// until is a context that ends at a time, for calls that nearly always end earlier: it has a timer
// only if a goroutine waits on Done. A guest that runs has leastFuel all the same. It implements
// [host.Budget].
type until struct {
	context.Context
	timeout time.Duration
	// runs is set once the guest runs, and spent is the fuel that it has received since.
	runs  bool
	spent atomic.Int64

	mu sync.Mutex
	// ends is the deadline. The time is read when it is first needed, at the beginning of a wait or
	// when the guest has used its first share of fuel: most calls end before that. It is zero until
	// then.
	ends  time.Time
	done  chan struct{}
	timer *time.Timer
}

// untils are those that are not in use.
var untils = sync.Pool{New: func() any { return new(until) }}

// inQueue returns the context of a call under the lock of the scheduling queue. End it with stop.
func (p *Plugin) inQueue() *until {
	u := untils.Get().(*until)
	u.Context, u.timeout, u.runs, u.ends = p.ctx, p.queueTimeout, false, time.Time{}
	u.spent.Store(0)
	return u
}

// run has the guest run, with as much time as the wait for its instance had: on a busy machine the
// wait alone may take most of it. Without a wait, no time has passed.
func (u *until) run() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.runs = true
	if u.done != nil {
		u.ends = time.Now().Add(u.timeout)
	}
}

// deadline returns the time at which the context ends. u.mu is held.
func (u *until) deadline() time.Time {
	if u.ends.IsZero() {
		u.ends = time.Now().Add(u.timeout)
	}
	return u.ends
}

// Deadline implements context.Context.
func (u *until) Deadline() (time.Time, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.deadline(), true
}

// Err implements context.Context.
func (u *until) Err() error {
	if u.runs && u.spent.Load() < leastFuel {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Now().Before(u.deadline()) {
		return nil
	}
	return context.DeadlineExceeded
}

// Spend implements host.Budget.
func (u *until) Spend(fuel int64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.deadline()
	u.spent.Add(fuel)
	return nil
}

// Done implements context.Context.
func (u *until) Done() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.done == nil {
		done := make(chan struct{})
		u.done, u.timer = done, time.AfterFunc(time.Until(u.deadline()), func() { close(done) })
	}
	return u.done
}

// stop ends the use of the context. One that had a timer is not used again.
func (u *until) stop() {
	if u.timer != nil {
		u.timer.Stop()
		return
	}
	u.Context = nil
	untils.Put(u)
}
