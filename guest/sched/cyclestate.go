package sched

import (
	"github.com/kubewasm/kubewasm/abi"
)

// CycleState is the state of a plugin during the scheduling of one Pod: Filter
// and Score read the values that PreFilter wrote in the same cycle. It is empty
// when PreFilter begins. The host does not see it.
//
// If its values implement [StateData], PreFilter does not run again for each dry run
// of a preemption.
//
// Only later calls on the same instance of the guest see the values that Filter
// or Score write. Write values that other calls need in PreFilter, PreScore or Reserve.
//
// An instance that has not seen a cycle repeats PreFilter, AddPod, RemovePod, PreScore and
// Reserve: look-ups, waiting Pods and nodes are as they were the first time, and events and
// rejections happen once. Permit, PreBind, Bind, PostBind and Unreserve run on an instance that
// has the values. If the guest has trapped meanwhile, and PreFilter or PreScore asked about
// nodes, the call fails without reaching the guest, and the Pod is tried again.
type CycleState struct{ c *cycle }

type cycle struct {
	keys   []string
	values []any
}

// NewCycleState returns an empty CycleState, for native tests.
func NewCycleState() CycleState { return CycleState{&cycle{}} }

// Read returns the value under key, and whether there is one.
func (s CycleState) Read(key string) (value any, ok bool) {
	for i, k := range s.c.keys {
		if k == key {
			return s.c.values[i], true
		}
	}
	return nil, false
}

// Write stores value under key.
func (s CycleState) Write(key string, value any) {
	for i, k := range s.c.keys {
		if k == key {
			s.c.values[i] = value
			return
		}
	}
	s.c.keys = append(s.c.keys, key)
	s.c.values = append(s.c.values, value)
}

// Clone returns a copy, and whether it can be copied, see [StateData]. It is for native
// tests, which clone as the scheduler does.
func (s CycleState) Clone() (CycleState, bool) {
	clone := NewCycleState()
	return clone, clone.c.clone(s.c)
}

// Delete removes the value under key.
func (s CycleState) Delete(key string) {
	for i, k := range s.c.keys {
		if k == key {
			s.c.keys = append(s.c.keys[:i], s.c.keys[i+1:]...)
			s.c.values = append(s.c.values[:i], s.c.values[i+1:]...)
			return
		}
	}
}

// StateData is implemented by values of a CycleState that can be copied, as those of the
// framework are. The scheduler simulates added and removed Pods on copies: hundreds of
// them in a preemption, and one for each node with nominated Pods. If a CycleState has
// only such values, strings, numbers and bools, each copy has their clones. Otherwise
// PreFilter runs again for it.
type StateData interface {
	// Clone returns a copy. A change that AddPod, RemovePod, PreScore or Reserve makes to
	// one must not be visible in the other. Parts that none of them changes may be shared.
	Clone() StateData
}

// clone makes c a copy of another, and reports whether it can: otherwise it is empty.
func (c *cycle) clone(from *cycle) bool {
	c.reset()
	for i, v := range from.values {
		switch data := v.(type) {
		case StateData:
			v = data.Clone()
		case nil, bool, string, int, int32, int64, uint32, uint64, float64:
		default:
			c.reset()
			return false
		}
		c.keys, c.values = append(c.keys, from.keys[i]), append(c.values, v)
	}
	return true
}

// reset removes all values.
func (c *cycle) reset() {
	clear(c.values) // Let the garbage collector have them.
	c.keys, c.values = c.keys[:0], c.values[:0]
}

// maxSlot bounds the tables of a guest in case of a faulty host.
const maxSlot = 1 << 20

// slots is a table of views by the slots of their Refs.
type slots[T any] struct{ table []slot[T] }

type slot[T any] struct {
	version uint32
	view    T
}

// at returns the entry of ref's slot, and whether its version has changed.
func (s *slots[T]) at(ref abi.Ref) (e *slot[T], renewed bool) {
	i := ref.Slot()
	if i >= uint32(len(s.table)) {
		s.table = grown(s.table, i)
	}
	e = &s.table[i]
	renewed = e.version != ref.Version()
	e.version = ref.Version()
	return e, renewed
}

// grown returns the table with a place for slot i.
func grown[T any](table []T, i uint32) []T {
	if i >= maxSlot {
		panic("kubewasm: host used a slot beyond the largest")
	}
	return append(table, make([]T, int(i)+1-len(table))...)
}
