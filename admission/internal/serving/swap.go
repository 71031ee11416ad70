package serving

import (
	"sync"
	"sync/atomic"
)

// Value holds a value that is exchanged as a whole. Each request sees one version from its
// beginning to its end, and the resources of an old version are freed after its last request. It is safe for use by several goroutines,
// and needs a first Replace before the first Acquire.
type Value[T any] struct {
	current atomic.Pointer[Version[T]]
	// replacing serialises Replace.
	replacing sync.Mutex
	// drained is closed after the last release of all versions before the current one:
	// what they have may be the same.
	drained chan struct{}
}

// Version is a value as it was between two calls of Replace.
type Version[T any] struct {
	// Value is the value, which does not change.
	Value T
	// users is locked for reading by each request that holds the version, and for writing
	// once it was replaced, for ever.
	users sync.RWMutex
}

// Acquire returns the version that is in use. The caller releases it.
func (v *Value[T]) Acquire() *Version[T] {
	for {
		// It fails for a version that was replaced in between.
		if current := v.current.Load(); current.users.TryRLock() {
			return current
		}
	}
}

// Release ends the use of a version that Acquire returned.
func (v *Version[T]) Release() { v.users.RUnlock() }

// Shared is a version that several hold for one that has acquired it: a request, and what outlives
// it.
type Shared[T any] struct {
	version *Version[T]
	// more is how many hold it beside the first; nil if there can be none.
	more *atomic.Int32
}

// Alone returns the version of a caller that holds it alone.
func (v *Version[T]) Alone() Shared[T] { return Shared[T]{version: v} }

// Share returns the version of a caller that lets others hold it. Each calls Release once.
func (v *Version[T]) Share() Shared[T] { return Shared[T]{v, new(atomic.Int32)} }

// Hold counts another holder.
func (s Shared[T]) Hold() { s.more.Add(1) }

// Release ends the use of one holder.
func (s Shared[T]) Release() {
	if s.more == nil || s.more.Add(-1) < 0 {
		s.version.Release()
	}
}

// Load returns the value that is in use, for callers that need none of its resources.
func (v *Value[T]) Load() T { return v.current.Load().Value }

// Replace puts value into use. drained is closed after the last release of all versions
// before it.
func (v *Value[T]) Replace(value T) (drained <-chan struct{}) {
	v.replacing.Lock()
	defer v.replacing.Unlock()
	old, before, after := v.current.Load(), v.drained, make(chan struct{})
	v.current.Store(&Version[T]{Value: value})
	v.drained = after
	go func() {
		if old != nil {
			<-before
			old.users.Lock()
		}
		close(after)
	}()
	return after
}
