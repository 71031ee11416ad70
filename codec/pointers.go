package codec

import (
	"hash/maphash"
	"sync/atomic"
)

// pointers finds Objects by the pointers of what they are of. Reading takes no
// lock, and touches one cache line, which is all that a look at a Node needs to
// touch; in a sync.Map it would be four. Writers exclude one another.
//
// It is a table with open addressing. An entry is written once, and what was
// removed stays in it as gone until the table is made anew: a reader that meets a
// writer may miss an Object, and never finds that of another pointer.
type pointers[T any] struct {
	entries atomic.Pointer[[]known[T]]
	// live and removed are how many entries have an Object, and had one.
	live, removed int
	gone          T
}

// known is what is known of a pointer, in half a cache line.
type known[T any] struct {
	of     atomic.Pointer[T]
	object atomic.Pointer[Object]
	// used is the epoch in which the pointer was asked for, or one of the few
	// before it.
	used atomic.Uint64
	_    uint64
}

// leastEntries is how many entries there are at least, a power of two. At most
// half of them are taken.
const leastEntries = 64

var seed = maphash.MakeSeed()

// find returns what is known of a pointer, nil if nothing is.
func (p *pointers[T]) find(of *T) *known[T] {
	entries := p.entries.Load()
	if entries == nil {
		return nil
	}
	for i := maphash.Comparable(seed, of); ; i++ {
		switch k := &(*entries)[i&uint64(len(*entries)-1)]; k.of.Load() {
		case of:
			return k
		case nil:
			return nil
		}
	}
}

// add adds the Object of a pointer, which is not there.
func (p *pointers[T]) add(of *T, o *Object, epoch uint64) {
	entries := p.entries.Load()
	if entries == nil || 2*(p.live+p.removed) >= len(*entries) {
		entries = p.renew(entries)
	}
	p.live++
	put(*entries, of, o, epoch)
}

// put writes an entry. The pointer comes last: who sees it sees the rest.
func put[T any](entries []known[T], of *T, o *Object, epoch uint64) {
	i := maphash.Comparable(seed, of)
	for entries[i&uint64(len(entries)-1)].of.Load() != nil {
		i++
	}
	k := &entries[i&uint64(len(entries)-1)]
	k.object.Store(o)
	k.used.Store(epoch)
	k.of.Store(of)
}

// renew copies the entries that have an Object into a table with room for half as
// many more.
func (p *pointers[T]) renew(old *[]known[T]) *[]known[T] {
	n := leastEntries
	for n < 3*(p.live+1) {
		n *= 2
	}
	fresh := make([]known[T], n)
	if old != nil {
		for i := range *old {
			k := &(*old)[i]
			if of := k.of.Load(); of != nil && of != &p.gone {
				put(fresh, of, k.object.Load(), k.used.Load())
			}
		}
	}
	p.removed = 0
	p.entries.Store(&fresh)
	return &fresh
}

// remove removes a pointer, if it is there.
func (p *pointers[T]) remove(of *T) {
	k := p.find(of)
	if k == nil {
		return
	}
	k.of.Store(&p.gone)
	k.object.Store(nil)
	p.live--
	p.removed++
}

// clear removes all pointers.
func (p *pointers[T]) clear() {
	p.entries.Store(nil)
	p.live, p.removed = 0, 0
}
