package shadow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kubewasm/kubewasm/host"
)

// Place holds the shadow of a plugin, at most one at a time. The zero value holds none. It is
// safe for use by several goroutines.
type Place struct {
	shadow atomic.Pointer[Shadow]

	mu     sync.Mutex
	closed bool
}

// Shadow returns the shadow, nil if there was none. It may have ended.
func (p *Place) Shadow() *Shadow { return p.shadow.Load() }

// Put puts s in the place of the shadow that was there, and closes that. If the Place is closed,
// it closes s, and the error is [host.ErrClosed].
func (p *Place) Put(ctx context.Context, s *Shadow) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errors.Join(fmt.Errorf("plugin %q: begin shadow: %w", s.opts.Plugin, host.ErrClosed), s.Close(ctx))
	}
	old := p.shadow.Swap(s)
	p.mu.Unlock()
	return old.Close(ctx)
}

// Close closes the shadow and takes no other.
func (p *Place) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.shadow.Load().Close(ctx)
}
