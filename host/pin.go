package host

import "context"

// Pin keeps a version of a plugin: calls through it run that version even after
// [Plugin.Swap]. A scheduling cycle that began on a version ends on it. It is
// safe for use by several goroutines.
type Pin struct{ version *version }

// Pin pins the version that serves new calls. The caller must release it: a
// version that was replaced is freed only after that.
func (p *Plugin) Pin() *Pin {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.current.Load()
	v.pins++
	return &Pin{v}
}

// Current reports whether the version serves new calls.
func (pin *Pin) Current() bool { return pin.version.plugin.current.Load() == pin.version }

// Acquire is [Plugin.Acquire] for the version. The error is [ErrClosed] once the
// plugin is closed.
//
// again is nil for any instance, or one that the caller had before: Acquire then waits
// for that one while others have it, even if another is idle. It takes any if again is of
// another version, is held, or is gone since its guest trapped and could not be reset.
func (pin *Pin) Acquire(ctx context.Context, again *Instance) (*Instance, error) {
	return pin.version.plugin.acquire(ctx, pin.version, again)
}

// Release ends the hold. The Pin must not be used afterwards.
func (pin *Pin) Release() {
	v := pin.version
	v.plugin.mu.Lock()
	defer v.plugin.mu.Unlock()
	if v.pins--; v.pins == 0 && v.replaced {
		v.pool.close()
	}
}
