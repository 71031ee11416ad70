package objects

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// pointers finds Objects by the pointers of what they are of. Reading takes no
// lock. Writers exclude one another.
//
// What is known of the pointers lies in the order in which they came, and an index
// with open addressing says where. Who asks in the same order again needs no index:
// the processor has fetched the next when it is asked for, which a scheduler with
// thousands of nodes, that has done much else since it looked at one, would wait for
// longer than for all the rest of finding it.
//
// A reader that meets a writer may miss an Object, and never finds that of another
// pointer.
type pointers[K comparable, T any] struct {
	table atomic.Pointer[table[K, T]]
	// live is how many pointers are known, taken how many places of the index were
	// ever written, and next the first entry that is free.
	live, taken, next int
	// turns are those of the goroutines that ask in turn, as *turn. There is one for
	// each processor, for the most part.
	turns sync.Pool
}

// table has a fixed size.
type table[K comparable, T any] struct {
	// index has the numbers of entries, 0 where none was ever.
	index []atomic.Uint32
	// entries begin with one that is empty.
	entries []known[K, T]
}

// named is the object that has a name.
type named[K comparable, T any] struct {
	name K
	// of is where it was last.
	of   *T
	slot *slot
	// entry is the number of what is known of that pointer, 0 if nothing is.
	entry uint32
}

// known is what is known of a pointer.
type known[K comparable, T any] struct {
	of     atomic.Pointer[T] // nil while it changes.
	object atomic.Pointer[Object]
	named  *named[K, T] // For writers.
	// used is the epoch in which the pointer was asked for, or one of the few
	// before it.
	used atomic.Uint32
	// next is the entry that was asked for after this one, in turn.
	next atomic.Uint32
}

// turn is the entries that were asked for last in two rows, the last row first. Rows are
// mixed when two goroutines have filtered the nodes that are then scored.
type turn struct{ at [2]uint32 }

// leastIndex is how many places an index has at least, a power of two. At most half
// of them are taken.
const leastIndex = 64

var seed = maphash.MakeSeed()

// number returns the number of the entry of a pointer, 0 if there is none.
func (t *table[K, T]) number(of *T) uint32 {
	if t == nil {
		return 0
	}
	for i := maphash.Comparable(seed, of); ; i++ {
		n := t.index[i&uint64(len(t.index)-1)].Load()
		if n == 0 || t.entries[n].of.Load() == of {
			return n
		}
	}
}

// get returns the Object of a pointer, nil if it is not known, and notes that it was
// asked for.
func (p *pointers[K, T]) get(of *T, epoch uint32) *Object {
	t := p.table.Load()
	return t.use(t.number(of), of, epoch)
}

// inTurn is get for one who asks in the same order again and again. If it finds
// nothing, next is the entry that was asked for in this turn, 0 if that is not known:
// mostly what is asked for now is a new version of the same.
func (p *pointers[K, T]) inTurn(of *T, epoch uint32) (o *Object, next uint32) {
	last, ok := p.turns.Get().(*turn)
	if !ok {
		last = &turn{}
	}
	o, next = p.inTurnAfter(last, of, epoch)
	p.turns.Put(last)
	return o, next
}

func (p *pointers[K, T]) inTurnAfter(last *turn, of *T, epoch uint32) (o *Object, next uint32) {
	t := p.table.Load()
	if t == nil {
		return nil, 0
	}
	next = t.following(last.at[0])
	n := next
	if t.entries[n].of.Load() != of {
		if n = t.following(last.at[1]); t.entries[n].of.Load() != of {
			switch n = t.number(of); {
			case n == 0 && next != 0:
				last.at[0] = next // It will be there.
				return nil, next
			case n != 0 && uint64(last.at[0]) < uint64(len(t.entries)):
				t.entries[last.at[0]].next.Store(n)
			}
		}
		last.at[1] = last.at[0]
	}
	last.at[0] = n
	return t.use(n, of, epoch), next
}

// following returns the entry that was asked for after that with a number, which may be
// one of a larger table.
func (t *table[K, T]) following(n uint32) uint32 {
	if uint64(n) >= uint64(len(t.entries)) {
		return 0
	}
	return t.entries[n].next.Load()
}

func (t *table[K, T]) use(n uint32, of *T, epoch uint32) *Object {
	if n == 0 {
		return nil
	}
	k := &t.entries[n]
	o := k.object.Load()
	if k.of.Load() != of {
		return nil // It has changed, and o may be that of another pointer.
	}
	if epoch-k.used.Load() >= epochsMissed {
		k.used.Store(epoch)
	}
	return o
}

// namedIn returns what an entry is of, nil if nothing is known of it.
func (p *pointers[K, T]) namedIn(entry uint32) *named[K, T] {
	t := p.table.Load()
	if t == nil || uint64(entry) >= uint64(len(t.entries)) {
		return nil
	}
	return t.entries[entry].named
}

// lastUsed returns when the pointer of an object was last asked for, and whether it is
// known.
func (p *pointers[K, T]) lastUsed(n *named[K, T]) (epoch uint32, ok bool) {
	if n.entry == 0 {
		return 0, false
	}
	return p.table.Load().entries[n.entry].used.Load(), true
}

// set makes o the Object of a pointer, which takes the place of the one that n had
// before.
func (p *pointers[K, T]) set(n *named[K, T], of *T, o *Object, epoch uint32) {
	t := p.table.Load()
	if t == nil || 2*p.taken >= len(t.index) || p.next == len(t.entries) {
		t = p.renew(t)
	}
	if n.entry == 0 {
		n.entry = uint32(p.next)
		p.next++
		p.live++
	}
	n.of = of
	k := &t.entries[n.entry]
	k.named = n
	k.of.Store(nil)
	k.object.Store(o)
	k.used.Store(epoch)
	k.of.Store(of)
	p.point(t, of, n.entry)
}

// point makes the index lead from a pointer to its entry. It may have led there
// before: what is no longer known stays in the index until renew.
func (p *pointers[K, T]) point(t *table[K, T], of *T, n uint32) {
	for i := maphash.Comparable(seed, of); ; i++ {
		place := &t.index[i&uint64(len(t.index)-1)]
		switch place.Load() {
		case n:
			return
		case 0:
			place.Store(n)
			p.taken++
			return
		}
	}
}

// renew copies what is known into a table with room for half as much more, and an index
// for several times as many pointers.
func (p *pointers[K, T]) renew(old *table[K, T]) *table[K, T] {
	size := leastIndex
	for size < 6*(p.live+1) {
		size *= 2
	}
	fresh := &table[K, T]{make([]atomic.Uint32, size), make([]known[K, T], 1+size/4)}
	p.taken, p.next = 0, 1
	if old != nil {
		numbers := make([]uint32, len(old.entries)) // In fresh.
		for i := range old.entries {
			k := &old.entries[i]
			of := k.of.Load()
			if of == nil {
				continue
			}
			n := uint32(p.next)
			p.next++
			numbers[i], k.named.entry = n, n
			to := &fresh.entries[n]
			to.of.Store(of)
			to.object.Store(k.object.Load())
			to.named = k.named
			to.used.Store(k.used.Load())
			p.point(fresh, of, n)
		}
		for i, n := range numbers {
			if n == 0 && i != 0 {
				continue
			}
			fresh.entries[n].next.Store(numbers[old.entries[i].next.Load()])
		}
	}
	p.table.Store(fresh)
	return fresh
}

// remove removes the pointer of an object, if it is known.
func (p *pointers[K, T]) remove(n *named[K, T]) {
	if n.entry == 0 {
		return
	}
	k := &p.table.Load().entries[n.entry]
	k.of.Store(nil)
	k.object.Store(nil)
	k.named, n.entry = nil, 0
	p.live--
}

// clear removes all pointers.
func (p *pointers[K, T]) clear() {
	if t := p.table.Load(); t != nil {
		for i := range t.entries {
			if n := t.entries[i].named; n != nil {
				n.entry = 0
			}
		}
	}
	p.table.Store(nil)
	p.live, p.taken, p.next = 0, 0, 0
}
