package host

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Hold keeps an instance for one user from call to call: data that the guest leaves in its memory
// is there in the next call, and no other call runs in between. It is for guests with state that
// the host cannot pass to another instance. It is safe for use by several goroutines; one at a time
// has the instance.
//
// # Notes
//
//   - Limits.Instances does not count held instances: they may be idle for long, and
//     other callers must not wait for them.
//   - An instance whose guest trapped is reset, as all are: [Instance.State] is a new
//     one then.
//   - A Hold ends with its version. A [Pin] keeps the version.
type Hold struct {
	version *version
	// turn has a token unless a call runs. The goroutine that takes the token
	// owns inst.
	turn chan struct{}
	// inst is nil before the first call, and after a call whose instance could not be reset.
	inst *Instance
	// over is set once the hold is to end. It ends when no call runs; ended is closed then.
	over  atomic.Bool
	ended chan struct{}
}

// Hold returns a hold on an instance of the version. The caller must release
// it.
//
// Errors, for errors.Is: [ErrSaturated] at once if there are Limits.HeldInstances,
// [ErrClosed] if the plugin is closed.
func (pin *Pin) Hold() (*Hold, error) {
	v := pin.version
	h := &Hold{version: v, turn: make(chan struct{}, 1), ended: make(chan struct{})}
	h.turn <- struct{}{}
	if err := v.pool.hold(h, v.limits.HeldInstances); err != nil {
		err = fmt.Errorf("plugin %q: hold an instance: %w", v.plugin.cfg.Name, err)
		v.plugin.refused(context.Background(), err)
		return nil, err
	}
	return h, nil
}

// Acquire takes the instance for the caller alone, and waits while another has it.
// [Instance.Release] gives it back to the hold. The first call gets an idle instance, if there is
// one, and creates one otherwise.
//
// Errors, for errors.Is: [ErrClosed] if the hold, the version or the plugin has ended;
// [ErrSaturated] together with ctx's error if ctx ends first; [ErrDisabled]; [ErrMemory].
// A new instance may also fail as in [Runtime.Load].
func (h *Hold) Acquire(ctx context.Context) (*Instance, error) {
	p := h.version.plugin
	inst, err := h.acquire(ctx)
	if err != nil {
		err = fmt.Errorf("plugin %q: %w", p.cfg.Name, err)
		p.refused(ctx, err)
		return nil, err
	}
	return inst, nil
}

func (h *Hold) acquire(ctx context.Context) (*Instance, error) {
	v := h.version
	if b := v.plugin.breaker; b != nil {
		if err := b.allow(); err != nil {
			return nil, err
		}
	}
	select {
	case <-h.turn:
	case <-h.ended:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrSaturated, ctx.Err())
	}
	err := ErrClosed
	if !h.over.Load() {
		if h.inst != nil {
			h.inst.linear.Show()
			return h.inst, nil
		}
		if h.inst = v.pool.lend(); h.inst != nil && v.tapes != nil && h.inst.used {
			// A recording of a hold begins with the hold.
			if v.restore(h.inst) {
				h.inst.renew()
			} else {
				v.discard(h.inst)
				h.inst = nil
			}
		}
		if h.inst == nil {
			h.inst, err = v.instantiate(ctx)
		}
		if h.inst != nil {
			h.inst.hold = h
			h.inst.record()
			return h.inst, nil
		}
	}
	h.pass()
	return nil, err
}

// giveBack ends the turn of a call. ok is set if the instance may run again.
func (h *Hold) giveBack(ok bool) {
	if ok {
		h.inst.linear.Hide()
	} else {
		h.inst = nil
	}
	h.pass()
}

// pass gives a turn up.
func (h *Hold) pass() {
	h.turn <- struct{}{}
	if h.over.Load() {
		h.end()
	}
}

// Release ends the hold: at once, or after the running call. The instance serves others then.
// Release may be called more than once.
func (h *Hold) Release() {
	h.over.Store(true)
	h.end()
}

// end takes the hold's last turn, if it is free: otherwise a call runs, or the hold has ended
// before.
func (h *Hold) end() {
	select {
	case <-h.turn:
	default:
		return
	}
	inst := h.inst
	h.inst = nil
	close(h.ended)
	if inst != nil {
		inst.hold = nil
		inst.linear.Show()
		if inst.tape != nil {
			if h.version.restore(inst) {
				inst.renew()
			} else {
				h.version.discard(inst)
				inst = nil
			}
		}
	}
	h.version.pool.endHold(h, inst)
}
