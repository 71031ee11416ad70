// Package swap exchanges a value while requests use it. Each request sees one version from
// its beginning to its end, and the resources of an old version are freed after its last
// request.
package swap

import (
	"sync"
	"sync/atomic"
)

// Value holds a value that is exchanged as a whole. It is safe for use by several goroutines,
// and needs a first Replace before the first Acquire.
type Value[T any] struct {
	current atomic.Pointer[Version[T]]
	// replacing serialises Replace.
	replacing sync.Mutex
}

// Version is a value as it was between two calls of Replace.
type Version[T any] struct {
	// Value is the value, which does not change.
	Value T
	// users are the requests that hold the version.
	users   atomic.Int64
	retired atomic.Bool
	once    sync.Once
	// drained is closed after the last release of this version and of all before it: what
	// they have may be the same.
	drained chan struct{}
	before  <-chan struct{}
}

// Acquire returns the version that is in use. The caller releases it.
func (v *Value[T]) Acquire() *Version[T] {
	for {
		current := v.current.Load()
		current.users.Add(1)
		if v.current.Load() == current {
			return current
		}
		current.Release()
	}
}

// Release ends the use of a version that Acquire returned.
func (v *Version[T]) Release() {
	if v.users.Add(-1) == 0 {
		v.settle()
	}
}

// settle drains the version if it is retired and has no users. They are counted after it was
// seen to be retired: one may have come since a release, before the version was replaced, but
// none after that stays.
func (v *Version[T]) settle() {
	if v.retired.Load() && v.users.Load() == 0 {
		v.drain()
	}
}

// drain notes that a retired version has no users.
func (v *Version[T]) drain() {
	v.once.Do(func() {
		select {
		case <-v.before:
			close(v.drained)
		default:
			go func() {
				<-v.before
				close(v.drained)
			}()
		}
	})
}

// Load returns the value that is in use, for callers that need none of its resources.
func (v *Value[T]) Load() T { return v.current.Load().Value }

// Replace puts value into use. drained is closed after the last release of all versions
// before it.
func (v *Value[T]) Replace(value T) (drained <-chan struct{}) {
	v.replacing.Lock()
	defer v.replacing.Unlock()
	old := v.current.Load()
	if old == nil {
		first := make(chan struct{})
		close(first)
		v.current.Store(&Version[T]{Value: value, drained: make(chan struct{}), before: first})
		return first
	}
	v.current.Store(&Version[T]{Value: value, drained: make(chan struct{}), before: old.drained})
	old.retired.Store(true)
	old.settle()
	return old.drained
}
