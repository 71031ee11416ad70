package nativehost

import (
	"sync"

	"github.com/kubewasm/kubewasm/internal/statemap"
)

// State is the state of a native plugin, as the host functions of module kubewasm/state have it. It
// is used by one call at a time.
type State struct {
	shared *statemap.Map
	tx     statemap.Tx
	keep   bool
	// refused is set if the function of the call has no state.
	refused bool
}

// NewState returns an empty state with the default limits of a host.
func NewState() *State { return &State{shared: statemap.New(10_000, 1<<20)} }

var (
	stateMu sync.Mutex
	state   *State
)

// UseState begins a call with the state, until the function that it returns is called: with keeps,
// the writes of the call count, and with refuses they count if the plugin has called Keep. Another
// UseState waits for that.
func UseState(s *State) (done func(keeps, refuses bool)) {
	stateMu.Lock()
	state, s.keep, s.refused = s, false, false
	return func(keeps, refuses bool) {
		state = nil
		if s.tx.Open() {
			if keeps || refuses && s.keep {
				_ = s.tx.Commit() // There is no other call.
			} else {
				s.tx.Drop()
			}
		}
		stateMu.Unlock()
	}
}

// CurrentState returns the state, nil if there is none, which is empty and has no effect.
func CurrentState() *State { return state }

// Refuse has the call panic if it uses the state, as a host ends calls of functions that have none.
func (s *State) Refuse() { s.refused = true }

// check panics if the function of the call has no state.
func (s *State) check() {
	if s.refused {
		panic("this function has no state that all instances share")
	}
}

// use returns the transaction of the call. It panics as a host ends a call with a key that no entry
// can have.
func (s *State) use(key string) *statemap.Tx {
	s.check()
	if err := statemap.CheckKey(len(key)); err != nil {
		panic(err)
	}
	if !s.tx.Open() {
		s.tx.Begin(s.shared, nil)
	}
	return &s.tx
}

// Get returns the answer of get.
func (s *State) Get(key string) []byte {
	if s == nil {
		return nil
	}
	return statemap.AppendGet(nil, s.use(key).Get(key))
}

// Put returns the answer of put.
func (s *State) Put(key string, value []byte, version int64) uint32 {
	if s == nil {
		return 0
	}
	if err := statemap.CheckValue(len(value)); err != nil {
		panic(err)
	}
	return uint32(s.use(key).Put(key, value, version))
}

// Delete returns the answer of delete.
func (s *State) Delete(key string, version int64) uint32 {
	if s == nil {
		return 1
	}
	return uint32(s.use(key).Delete(key, version))
}

// Add returns the answer of add.
func (s *State) Add(key string, delta, limit int64) uint32 {
	if s == nil {
		return 0
	}
	return uint32(s.use(key).Add(key, delta, limit))
}

// List returns the answer of list.
func (s *State) List(prefix, after string) []byte {
	if s == nil {
		return nil
	}
	return s.use("any").List(nil, prefix, after)
}

// Keep is keep.
func (s *State) Keep() {
	if s != nil {
		s.check()
		s.keep = true
	}
}
