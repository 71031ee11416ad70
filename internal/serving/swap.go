package serving

import (
	"sync"
	"sync/atomic"
)

// Value holds a value that is replaced as a whole. Each request uses one version from its beginning
// to its end, and the resources of an old version are freed after its last request. It is safe for
// use by several goroutines. Call Replace before the first Acquire.
type Value[T any] struct {
	current atomic.Pointer[Version[T]]
	// replacing serialises Replace.
	replacing sync.Mutex
	// drained is closed after the last release of all versions before the current one: since
	// versions may share resources.
	drained chan struct{}
}

// Version is a value between two calls of Replace.
type Version[T any] struct {
	// Value is the value, which does not change.
	Value T
	// users is locked for reading by each request that holds the version, and for writing once it
	// was replaced, for good.
	users sync.RWMutex
}

// Acquire returns the current version. The caller must release it.
func (v *Value[T]) Acquire() *Version[T] {
	for {
		// TryRLock fails for a version that was replaced in between.
		if current := v.current.Load(); current.users.TryRLock() {
			return current
		}
	}
}

// Release ends the use of a version that Acquire returned.
func (v *Version[T]) Release() { v.users.RUnlock() }

// Shared is a version with several holders after one Acquire: a request, and calls that outlive it.
type Shared[T any] struct {
	version *Version[T]
	// more is the number of holders besides the first; nil if there can be none.
	more *atomic.Int32
}

// Alone returns the version for a caller that is its only holder.
func (v *Version[T]) Alone() Shared[T] { return Shared[T]{version: v} }

// Share returns the version for a caller that lets others hold it. Each holder calls Release once.
func (v *Version[T]) Share() Shared[T] { return Shared[T]{v, new(atomic.Int32)} }

// Hold counts another holder.
func (s Shared[T]) Hold() { s.more.Add(1) }

// Release ends the use of one holder.
func (s Shared[T]) Release() {
	if s.more == nil || s.more.Add(-1) < 0 {
		s.version.Release()
	}
}

// Load returns the current value, for callers that need none of its resources.
func (v *Value[T]) Load() T { return v.current.Load().Value }

// Replace makes value the current one. drained is closed after the last release of all earlier
// versions.
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
