package objects

import (
	"math/bits"
	"sync/atomic"
	"unsafe"
)

// pointers finds Objects by the pointers to their originals: a map with open addressing. Reading
// takes no lock. Writers exclude one another.
//
// A reader concurrent with a writer may miss an Object, and never finds that of another pointer.
type pointers[T any] struct {
	table atomic.Pointer[table[T]]
	// live is the number of known pointers, and taken the number of places of the table that were
	// ever written.
	live, taken int
}

// table has a fixed size, a power of two. At most half of its places are taken.
type table[T any] struct {
	places []place[T]
	shift  uint8
	// removed is in the places of pointers that are gone.
	removed T
}

// place is the entry of a pointer.
type place[T any] struct {
	of     atomic.Pointer[T] // nil if the place was never taken.
	object atomic.Pointer[Object]
	// used is the epoch in which the pointer was last looked up, or one of the few before it.
	used atomic.Uint32
}

// minPlaces is the minimum number of places of a table.
const minPlaces = 64

func newTable[T any](places int) *table[T] {
	return &table[T]{places: make([]place[T], places), shift: uint8(64 - bits.Len(uint(places-1)))}
}

// place returns the place of a pointer, or otherwise the free one for it. The pointer is one into
// the heap, where nothing moves.
func (t *table[T]) place(of *T) *place[T] {
	const golden = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio.
	for i := uint64(uintptr(unsafe.Pointer(of))) * golden >> t.shift; ; i++ {
		p := &t.places[i&uint64(len(t.places)-1)]
		if at := p.of.Load(); at == of || at == nil {
			return p
		}
	}
}

// get returns the Object of a pointer, nil if it is not known, and records the look-up.
func (p *pointers[T]) get(of *T, epoch uint32) *Object {
	t := p.table.Load()
	if t == nil {
		return nil
	}
	at := t.place(of)
	o := at.object.Load()
	if at.of.Load() != of {
		return nil // It was missing, or o may be that of another pointer.
	}
	if epoch-at.used.Load() >= epochsMissed {
		at.used.Store(epoch)
	}
	return o
}

// lastUsed returns the epoch in which a pointer was last looked up, and reports whether it is known
// as that of an Object.
func (p *pointers[T]) lastUsed(of *T, object *Object) (epoch uint32, ok bool) {
	t := p.table.Load()
	if t == nil {
		return 0, false
	}
	at := t.place(of)
	return at.used.Load(), at.of.Load() == of && at.object.Load() == object
}

// set makes o the Object of a pointer.
func (p *pointers[T]) set(of *T, o *Object, epoch uint32) {
	t := p.table.Load()
	if t != nil {
		if at := t.place(of); at.of.Load() == of {
			at.object.Store(o)
			at.used.Store(epoch)
			return
		}
	}
	if t == nil || 2*p.taken >= len(t.places) {
		t = p.renew(t)
	}
	at := t.place(of)
	at.object.Store(o)
	at.used.Store(epoch)
	at.of.Store(of)
	p.live++
	p.taken++
}

// renew copies the known pointers into a table with room for as many again.
func (p *pointers[T]) renew(old *table[T]) *table[T] {
	size := minPlaces
	for size < 4*(p.live+1) {
		size *= 2
	}
	fresh := newTable[T](size)
	p.taken = 0
	if old != nil {
		for i := range old.places {
			from := &old.places[i]
			of := from.of.Load()
			if of == nil || of == &old.removed {
				continue
			}
			to := fresh.place(of)
			to.object.Store(from.object.Load())
			to.used.Store(from.used.Load())
			to.of.Store(of)
			p.taken++
		}
	}
	p.table.Store(fresh)
	return fresh
}

// remove removes a pointer, if it is known as that of an Object.
func (p *pointers[T]) remove(of *T, object *Object) {
	t := p.table.Load()
	if t == nil {
		return
	}
	if at := t.place(of); at.of.Load() == of && at.object.Load() == object {
		at.of.Store(&t.removed)
		at.object.Store(nil)
		p.live--
	}
}

// clear removes all pointers.
func (p *pointers[T]) clear() {
	p.table.Store(nil)
	p.live, p.taken = 0, 0
}
