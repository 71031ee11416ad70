package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// pool is a bounded set of instances. Idle ones are in slots, each in a separate cache line, and a
// caller takes one by a single atomic operation. It tries first the slot that its processor used
// last, then the one that any processor used last, then the others. So an instance stays with the
// processor whose caches have its memory. Callers contend only if there are fewer instances than
// callers.
//
// It is not a sync.Pool, which drops instances without closing them: wazero
// keeps an instance until it is closed. The sync.Pool in it has only the slot
// to try first on each processor, which may be lost.
type pool struct {
	slots []slot
	// guarded is set if the memory of idle instances is hidden.
	guarded bool
	// near has the *slot that each processor used last, last the one used last
	// of all. several is set once there were two instances: before, all use the first slot.
	near    sync.Pool
	last    atomic.Pointer[slot]
	several atomic.Bool
	// rare is not 0 if there is more to do than take an instance or put it back: the pool is
	// closed, or a caller waits or is about to wait.
	rare atomic.Int32

	mu    sync.Mutex
	count int // Instances that exist or are being made.
	// waiters are the callers that found no instance, oldest first. Each gets
	// an instance, or nil, which allows it to make one.
	waiters []chan *Instance
	// returning are the callers that wait for the instance that they had before.
	returning []returning
	closed    bool
	// holds are the holds whose instance, now or later, is not in count.
	holds map[*Hold]struct{}
	// fresh is the number of instances of Plugin.Fresh, which are not in count either.
	fresh int
	// discard closes an instance that came back too late to be used.
	discard func(*Instance)
	// drained is closed when the pool is closed and the last instance, fresh ones included, and
	// hold are gone.
	drained chan struct{}
}

// returning is a caller that waits for inst, which it had before. It gets inst, or nil if
// inst is gone or the pool is closed.
type returning struct {
	inst   *Instance
	served chan *Instance
}

// slot has room for an idle instance.
type slot struct {
	idle atomic.Pointer[Instance]
	// Processors fetch lines in pairs.
	_ [120]byte
}

func newPool(limit int, guarded bool, discard func(*Instance)) *pool {
	p := &pool{slots: make([]slot, limit), guarded: guarded, discard: discard, holds: map[*Hold]struct{}{}, drained: make(chan struct{})}
	p.last.Store(&p.slots[0])
	return p
}

// add counts an instance. p.mu is held.
func (p *pool) add() {
	if p.count++; p.count > 1 {
		p.several.Store(true)
	}
}

// takeFrom takes the instance of a slot, nil if there is none.
func (p *pool) takeFrom(s *slot) *Instance {
	inst := s.idle.Load()
	if inst == nil || !s.idle.CompareAndSwap(inst, nil) {
		return nil
	}
	if p.guarded {
		inst.linear.Show()
	}
	return inst
}

// take takes an idle instance, nil if there is none.
func (p *pool) take() *Instance {
	if !p.several.Load() {
		return p.takeFrom(p.last.Load())
	}
	near, _ := p.near.Get().(*slot)
	if near != nil {
		if inst := p.takeFrom(near); inst != nil {
			p.near.Put(near)
			return inst
		}
	}
	last := p.last.Load()
	if inst := p.takeFrom(last); inst != nil {
		p.near.Put(last)
		return inst
	}
	for i := range p.slots {
		if inst := p.takeFrom(&p.slots[i]); inst != nil {
			p.used(&p.slots[i])
			return inst
		}
	}
	if near != nil {
		p.near.Put(near)
	}
	return nil
}

// used records the slot of an instance that was in another before. p.near has
// nothing for the processor.
func (p *pool) used(s *slot) {
	p.last.Store(s)
	p.near.Put(s)
}

// idle returns the number of idle instances.
func (p *pool) idle() (n int) {
	for i := range p.slots {
		if p.slots[i].idle.Load() != nil {
			n++
		}
	}
	return n
}

// acquire takes an idle instance, or nil when the caller may make one; it must
// then call either put or forget. It waits while the limit is reached. It takes again, or
// waits for that, unless that is nil, gone, or of another pool.
func (p *pool) acquire(ctx context.Context, again *Instance) (*Instance, error) {
	if again != nil && again.version.pool == p {
		if inst, err := p.acquireAgain(ctx, again); inst != nil || err != nil {
			return inst, err
		}
	}
	if p.rare.Load() == 0 {
		if inst := p.take(); inst != nil {
			return inst, nil
		}
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	inst := p.takeOrWait()
	if inst == nil && p.count < len(p.slots) {
		p.add()
		p.rare.Add(-1)
		p.mu.Unlock()
		return nil, nil
	}
	if inst == nil {
		return p.wait(ctx)
	}
	p.mu.Unlock()
	return inst, nil
}

// takeThis takes inst if it is idle, and reports whether it was.
func (p *pool) takeThis(inst *Instance) bool {
	for i := range p.slots {
		if s := &p.slots[i]; s.idle.Load() == inst && s.idle.CompareAndSwap(inst, nil) {
			if p.guarded {
				inst.linear.Show()
			}
			return true
		}
	}
	return false
}

// acquireAgain takes inst, which the caller had before, and waits while others have it. It
// returns nil if inst is gone, or the pool is closed.
func (p *pool) acquireAgain(ctx context.Context, inst *Instance) (*Instance, error) {
	if p.takeThis(inst) {
		return inst, nil
	}
	p.mu.Lock()
	p.rare.Add(1) // From now on, put serves the callers that wait.
	if taken := p.takeThis(inst); taken || inst.gone || p.closed {
		p.rare.Add(-1)
		p.mu.Unlock()
		if taken {
			return inst, nil
		}
		return nil, nil
	}
	wait := returning{inst, make(chan *Instance, 1)}
	p.returning = append(p.returning, wait)
	p.mu.Unlock()

	select {
	case inst := <-wait.served:
		return inst, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	p.release(func(w returning) bool { return w == wait })
	p.mu.Unlock()
	if inst := <-wait.served; inst != nil { // The instance came before ctx ended.
		p.put(inst)
	}
	return nil, fmt.Errorf("%w: %w", ErrSaturated, ctx.Err())
}

// errNoOther is the error of waitInstead if there is no other instance to wait for.
var errNoOther = errors.New("the plugin has no other instance")

// waitInstead returns the slot that acquire reserved, after an out-of-memory error, and
// waits for an instance of another caller, or for a slot to try again. The error is
// [errNoOther] if the plugin has no other instance.
func (p *pool) waitInstead(ctx context.Context) (*Instance, error) {
	p.mu.Lock()
	if p.count == 1 || p.closed {
		// Another caller that waits may try, and get the same error.
		p.mu.Unlock()
		p.forget()
		return nil, errNoOther
	}
	p.count--
	if inst := p.takeOrWait(); inst != nil {
		p.mu.Unlock()
		return inst, nil
	}
	return p.wait(ctx)
}

// takeOrWait takes an idle instance, unless others wait for it. If it returns nil the caller is
// counted in p.rare, so from then on put serves the waiting callers. p.mu is held.
func (p *pool) takeOrWait() *Instance {
	p.rare.Add(1)
	if len(p.waiters) > 0 {
		return nil
	}
	inst := p.take()
	if inst != nil {
		p.rare.Add(-1)
	}
	return inst
}

// wait waits for an instance, or until the caller may make one. It is called
// with p.mu held and releases it; p.rare counts the caller already.
func (p *pool) wait(ctx context.Context) (*Instance, error) {
	wait := make(chan *Instance, 1)
	p.waiters = append(p.waiters, wait)
	p.mu.Unlock()

	select {
	case inst, ok := <-wait:
		if !ok {
			return nil, ErrClosed
		}
		return inst, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	for i, w := range p.waiters {
		if w == wait {
			p.waiters = append(p.waiters[:i], p.waiters[i+1:]...)
			p.rare.Add(-1)
			p.mu.Unlock()
			return nil, fmt.Errorf("%w: %w", ErrSaturated, ctx.Err())
		}
	}
	p.mu.Unlock()
	// It was served between the end of ctx and the lock: pass it on.
	if inst, ok := <-wait; !ok {
		return nil, ErrClosed
	} else if inst != nil {
		p.put(inst)
	} else {
		p.forget()
	}
	return nil, fmt.Errorf("%w: %w", ErrSaturated, ctx.Err())
}

// put returns an instance that may run again to the pool.
func (p *pool) put(inst *Instance) {
	if p.guarded {
		inst.linear.Hide()
	}
	if s := inst.slot; s == nil || !s.idle.CompareAndSwap(nil, inst) {
		p.move(inst)
	}
	if p.rare.Load() != 0 {
		p.settle()
	}
}

// move puts an instance into another slot than its last. There are as many slots as
// instances, so one is free.
func (p *pool) move(inst *Instance) {
	for i := 0; ; i = (i + 1) % len(p.slots) {
		s := &p.slots[i]
		if inst.slot = s; s.idle.CompareAndSwap(nil, inst) {
			p.near.Get()
			p.used(s)
			return
		}
	}
}

// sweep discards each idle instance for which over returns true, unless its memory is wanted.
func (p *pool) sweep(over func(inst *Instance) bool) {
	for i := range p.slots {
		inst := p.takeFrom(&p.slots[i])
		if inst == nil {
			continue
		}
		if !over(inst) || inst.retained.Load() > 0 {
			p.put(inst)
			continue
		}
		p.discard(inst)
		p.lose(inst)
	}
}

// settle gives the idle instances to the waiting callers, or discards them if the pool is closed.
func (p *pool) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serve()
	for len(p.waiters) > 0 || p.closed {
		inst := p.take()
		if inst == nil {
			return
		}
		if !p.closed {
			p.popWaiter() <- inst
			continue
		}
		p.discard(inst)
		p.count--
		p.checkDrained()
	}
}

// serve gives idle instances to the callers that wait for them. p.mu is held.
func (p *pool) serve() {
	p.returning = slices.DeleteFunc(p.returning, func(w returning) bool {
		if !p.takeThis(w.inst) {
			return false
		}
		w.served <- w.inst
		p.rare.Add(-1)
		return true
	})
}

// lose removes inst from the pool.
func (p *pool) lose(inst *Instance) {
	p.mu.Lock()
	inst.gone = true
	p.release(func(w returning) bool { return w.inst == inst })
	p.mu.Unlock()
	p.forget()
}

// release ends the wait of the callers of acquireAgain that which selects: they get
// nothing. p.mu is held.
func (p *pool) release(which func(returning) bool) {
	p.returning = slices.DeleteFunc(p.returning, func(w returning) bool {
		if !which(w) {
			return false
		}
		w.served <- nil
		p.rare.Add(-1)
		return true
	})
}

// forget uncounts an instance that is gone, or was not made after all.
func (p *pool) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.popWaiter(); w != nil {
		w <- nil // The waiter may make one instead; count stays.
		return
	}
	p.count--
	p.checkDrained()
}

// hold counts a hold; limit is the maximum of holds.
func (p *pool) hold(h *Hold, limit int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	if len(p.holds) >= limit {
		return fmt.Errorf("%w: all %d of limits.heldInstances are held", ErrSaturated, limit)
	}
	p.holds[h] = struct{}{}
	return nil
}

// lend takes an idle instance out of the pool for a hold, nil if there is none or
// others wait for it.
func (p *pool) lend() *Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.waiters) > 0 {
		return nil
	}
	inst := p.take()
	if inst != nil {
		p.count--
		inst.gone = true // A hold may last for long.
		p.release(func(w returning) bool { return w.inst == inst })
	}
	return inst
}

// endHold ends a hold. Its instance, which may be nil, goes to the pool if there is
// room, and is gone otherwise.
func (p *pool) endHold(h *Hold, inst *Instance) {
	p.mu.Lock()
	delete(p.holds, h)
	if inst != nil && !p.closed && p.count < len(p.slots) {
		p.add()
		inst.gone = false
		p.mu.Unlock()
		p.put(inst)
		return
	}
	defer p.mu.Unlock()
	if inst != nil {
		p.discard(inst)
	}
	p.checkDrained()
}

// addFresh counts a fresh instance.
func (p *pool) addFresh() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.fresh++
	return nil
}

// endFresh is called when a fresh instance is gone.
func (p *pool) endFresh() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh--
	p.checkDrained()
}

// close ends the pool: it discards the idle instances and those that are held, turns
// the waiters away and leaves the instances in use to their callers. drained is closed
// after the last of them came back.
func (p *pool) close() {
	for h := range p.shut() {
		h.Release()
	}
}

// shut closes the pool as close does, except that it returns the holds instead of ending them.
func (p *pool) shut() map[*Hold]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.rare.Add(1) // It is never taken back.
	for inst := p.take(); inst != nil; inst = p.take() {
		p.discard(inst)
		p.count--
	}
	for w := p.popWaiter(); w != nil; w = p.popWaiter() {
		close(w)
	}
	p.release(func(returning) bool { return true })
	p.checkDrained()
	return maps.Clone(p.holds)
}

func (p *pool) popWaiter() chan *Instance {
	if len(p.waiters) == 0 {
		return nil
	}
	w := p.waiters[0]
	p.waiters = p.waiters[1:]
	p.rare.Add(-1)
	return w
}

func (p *pool) checkDrained() {
	if p.closed && p.count == 0 && p.fresh == 0 && len(p.holds) == 0 {
		close(p.drained)
	}
}
