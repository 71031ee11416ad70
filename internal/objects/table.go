package objects

import (
	"bytes"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// Object is a version of an object. It does not change.
type Object struct {
	// Ref is what guests know this version by.
	Ref abi.Ref
	// Notes is room for what the holder of the Table finds out about this version.
	Notes [5]atomic.Uint64
	// bytes are those of an object that was encoded when it came. One that was not has
	// a source.
	bytes  []byte
	source *source
}

// smallObject is an Object with room for its bytes, of 320 bytes together: what few
// declared fields of a Node have, for the most part.
type smallObject struct {
	Object
	room [240]byte
}

// newObject returns an Object with a copy of b.
func newObject(b []byte) *Object {
	if len(b) > len(smallObject{}.room) {
		return &Object{bytes: bytes.Clone(b)}
	}
	small := &smallObject{}
	small.bytes = small.room[:copy(small.room[:], b):len(b)]
	return &small.Object
}

// Table encodes objects once for each of their versions and gives them refs.
//
// An object that was seen before is found by its pointer: objects that come
// from informers are never changed in place, so an equal pointer means equal
// content. Behind a new pointer the object is encoded, and its version moves
// only if the bytes did; what is encoded when somebody asks for it is compared
// instead, or has a new version (see Project).
//
// If the Projection leaves out which Node it is, Nodes with equal bytes are one
// object: they have the same ref, and a guest reads it once for all of them.
//
// A Table forgets objects that were not asked for during the last epochs
// (see Advance) and uses their slots again, so that its memory, and that of
// guests, follows the number of objects in use.
//
// The zero value is ready to use. A Table is safe for use by several
// goroutines.
type Table struct {
	// Reading what is known takes no lock: many goroutines filter nodes at the same
	// time.
	nodes objects[string, corev1.Node]
	pods  objects[podKey, corev1.Pod]
	epoch atomic.Uint32
	// projection is what is encoded; nil is everything.
	projection atomic.Pointer[Projection]

	mu sync.Mutex
	// contents are the slots that Nodes with equal bytes share, by these bytes, and held
	// is how many of them some Node has.
	contents map[string]*slot
	held     int
	// slots is by number. It is copied when it grows, so that Lookup can read
	// it without a lock.
	slots atomic.Pointer[[]*slot]
	free  []*slot
	// places are the slots of objects that pass.
	places [NewEventObject + 1]*slot
	// sweepAt is how many objects and contents there may be before the Table looks
	// for some to forget.
	sweepAt int
}

// objects are those of a kind.
type objects[K comparable, T any] struct {
	known pointers[K, T]
	named map[K]*named[K, T]
	// late says that they are encoded when somebody asks for their bytes.
	late atomic.Bool
}

// podKey names a Pod in every version.
type podKey struct{ namespace, name string }

// slot is a place for the versions of one object at a time.
type slot struct {
	number  uint32
	version uint32
	current atomic.Pointer[Object]
	// shared says that it is one of contents, and holders how many objects have it
	// then.
	shared  bool
	holders int
}

const (
	// epochsKept is for how many epochs an unused object is remembered. A
	// scheduler that looks at a twentieth of its nodes in each cycle comes
	// round to each of them long before.
	epochsKept = 128
	// epochsMissed is how many epochs may pass before it is noted that an object
	// is still used. To write it in each would take the object's cache line from
	// the other processors each time.
	epochsMissed = 16
	// sweepMin is how many objects a Table has before it looks for any to forget.
	sweepMin = 256
)

// Advance begins a new epoch: for a scheduler, the scheduling of another Pod.
func (t *Table) Advance() { t.epoch.Add(1) }

// Project makes the Table encode the fields of p from now on. Objects are encoded
// once more; one that is encoded when it comes keeps its version if its bytes stay the
// same.
//
// byParts says that guests ask for parts and entries of objects ([Object.AppendPart],
// [Object.Entry]). Then Nodes are encoded when somebody asks for their bytes, unless
// equal ones are one object, and so are Pods of which labels or annotations travel
// without being named one by one. Those of which everything travels have a new version
// behind each new pointer.
func (t *Table) Project(p *Projection, byParts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.projection.Store(p)
	t.pods.late.Store(byParts && p.orEverything().podTexts.large())
	t.nodes.late.Store(byParts && !p.Nameless())
	t.nodes.known.clear()
	t.pods.known.clear()
}

// Projection returns what the Table encodes, nil for everything.
func (t *Table) Projection() *Projection { return t.projection.Load() }

// Nodes returns how many Nodes the Table knows, and how many contents they have together
// if those with equal bytes are one object.
func (t *Table) Nodes() (nodes, contents int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.nodes.named), t.held
}

// Pod returns the encoded version of pod.
//
// 0 allocs for a pointer that was seen before: TestTableDoesNotAllocate.
func (t *Table) Pod(pod *corev1.Pod) (*Object, error) {
	if o := t.pods.known.get(pod, t.epoch.Load()); o != nil {
		return o, nil
	}
	a := arrival[podKey, corev1.Pod]{name: podKey{pod.Namespace, pod.Name}, of: pod, from: origin{pod: pod}}
	return encode(t, &t.pods, a, func(*Projection) bool { return false })
}

// Node returns the encoded version of node.
//
// 0 allocs for a pointer that was seen before: TestTableDoesNotAllocate.
func (t *Table) Node(node *corev1.Node) (*Object, error) {
	if o := t.nodes.known.get(node, t.epoch.Load()); o != nil {
		return o, nil
	}
	return t.encodeNode(node, 0)
}

// NodeInTurn is Node for who looks at the Nodes in the same order again and again, as
// the Filter of a scheduler does. It is faster if the one comes that came last time,
// and slower otherwise.
func (t *Table) NodeInTurn(node *corev1.Node) (*Object, error) {
	o, next := t.nodes.known.inTurn(node, t.epoch.Load())
	if o != nil {
		return o, nil
	}
	return t.encodeNode(node, next)
}

func (t *Table) encodeNode(node *corev1.Node, entry uint32) (*Object, error) {
	a := arrival[string, corev1.Node]{name: node.Name, of: node, from: origin{node: node}, entry: entry}
	return encode(t, &t.nodes, a, (*Projection).Nameless)
}

// Place is where an object lies that is shown once and not seen again.
type Place byte

// The places of objects that pass.
const (
	// OldEventObject and NewEventObject are the object of a cluster event before
	// and after it.
	OldEventObject Place = iota
	NewEventObject
)

// Passing returns an encoded object of any kind, which takes the place of the one
// before. It is not found by Lookup. The error is for an object that has no
// protobuf encoding.
func (t *Table) Passing(place Place, object metav1.Object) (*Object, error) {
	b, err := Encode(object)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.places[place]
	if s == nil {
		s = t.allocate()
		t.places[place] = s
	}
	s.version = abi.NextVersion(s.version)
	return &Object{Ref: abi.MakeRef(s.version, s.number), bytes: b}, nil
}

// Lookup returns the object that ref names, if it is the current version of its
// slot.
func (t *Table) Lookup(ref abi.Ref) (*Object, bool) {
	slots := t.slots.Load()
	if slots == nil || uint64(ref.Slot()) >= uint64(len(*slots)) {
		return nil, false
	}
	o := (*slots)[ref.Slot()].current.Load()
	if o == nil || o.Ref != ref {
		return nil, false
	}
	return o, true
}

// scratch holds the buffers that objects are encoded in: most of them turn out to
// be as they were, and are thrown away.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// arrival is an object behind a new pointer.
type arrival[K comparable, T any] struct {
	name K
	of   *T
	from origin // The same, for its encoder.
	// entry may be that of its pointer before.
	entry uint32
}

// encode encodes an object. shares says whether those of the kind with equal bytes are
// one.
func encode[K comparable, T any](t *Table, k *objects[K, T], a arrival[K, T], shares func(*Projection) bool) (*Object, error) {
	for {
		projection := t.projection.Load()
		var o *Object
		if k.late.Load() {
			o = encodeLate(t, k, a, projection)
		} else {
			buffer := scratch.Get().(*[]byte)
			b, err := a.from.append((*buffer)[:0], projection)
			if err == nil {
				*buffer = b
				o = update(t, k, a, b, nil, projection, shares(projection))
			}
			scratch.Put(buffer)
			if err != nil {
				return nil, err
			}
		}
		if o != nil {
			return o, nil
		}
	}
}

// encodeLate is encode for an object whose bytes nobody has asked for. It returns nil if
// something has changed meanwhile.
func encodeLate[K comparable, T any](t *Table, k *objects[K, T], a arrival[K, T], projection *Projection) *Object {
	var o *Object
	if projection != nil {
		// To compare needs no bytes of before, and holds no lock. Of everything,
		// something has changed behind nearly each new pointer.
		o = current(t, k, a)
	}
	if o == nil || !o.source.equals(a.from, projection) {
		o = newLateObject(a.from, projection)
	}
	return update(t, k, a, nil, o, projection, false)
}

// current returns the version of an object that was there last, nil if there is none.
func current[K comparable, T any](t *Table, k *objects[K, T], a arrival[K, T]) *Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := k.find(a); n != nil {
		return n.slot.current.Load()
	}
	return nil
}

// find returns what has the name of an object, nil if nothing has.
func (k *objects[K, T]) find(a arrival[K, T]) *named[K, T] {
	if n := k.known.namedIn(a.entry); n != nil && n.name == a.name {
		return n
	}
	return k.named[a.name]
}

// update makes b, which it copies, the bytes of an object, or late its version, which is
// a new one or that of before. It returns nil if the projection or that version has
// passed.
func update[K comparable, T any](t *Table, k *objects[K, T], a arrival[K, T], b []byte, late *Object, projection *Projection, shared bool) *Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.projection.Load() != projection || k.late.Load() != (late != nil) {
		return nil
	}
	t.makeRoom()
	n := k.find(a)
	if n == nil {
		if late != nil && late.Ref != 0 {
			return nil // It was forgotten meanwhile.
		}
		n = &named[K, T]{name: a.name}
		if k.named == nil {
			k.named = map[K]*named[K, T]{}
		}
		k.named[a.name] = n
	}
	switch {
	case late != nil && n.slot != nil && n.of == a.of && n.slot.current.Load().source.equals(a.from, projection):
		// Another goroutine came first.
	case late != nil && late.Ref != 0:
		if n.slot.current.Load() != late {
			return nil
		}
		late.source.set(a.from)
	case n.slot == nil || !n.slot.current.Load().is(b):
		t.move(&n.slot, b, late, shared)
	}
	o := n.slot.current.Load()
	k.known.set(n, a.of, o, t.epoch.Load())
	return o
}

// move gives an object the slot that has b as its bytes, or will have, or late as its
// version.
func (t *Table) move(at **slot, b []byte, late *Object, shared bool) {
	s := *at
	if shared {
		t.leave(s)
		if s = t.contents[string(b)]; s == nil {
			s = t.allocate()
			s.put(newObject(b))
			s.shared = true
			if t.contents == nil {
				t.contents = map[string]*slot{}
			}
			t.contents[string(b)] = s
		}
		if s.holders++; s.holders == 1 {
			t.held++
		}
	} else {
		if s == nil || s.shared {
			t.leave(s)
			s = t.allocate()
		}
		if late == nil {
			late = newObject(b)
		}
		s.put(late)
	}
	*at = s
}

// put makes o, which nobody has yet, the next version of what is in the slot.
func (s *slot) put(o *Object) {
	s.version = abi.NextVersion(s.version)
	o.Ref = abi.MakeRef(s.version, s.number)
	s.current.Store(o)
}

// leave takes an object out of its slot, if it has one. A slot that others may come
// back to, since it has bytes that they had, stays until sweep.
func (t *Table) leave(s *slot) {
	switch {
	case s == nil:
	case s.shared:
		if s.holders--; s.holders == 0 {
			t.held--
		}
	default:
		t.release(s)
	}
}

// release makes a slot one that is free.
func (t *Table) release(s *slot) {
	s.current.Store(nil)
	s.shared = false
	t.free = append(t.free, s)
}

// allocate returns an empty slot.
func (t *Table) allocate() *slot {
	if n := len(t.free); n > 0 {
		s := t.free[n-1]
		t.free = t.free[:n-1]
		return s
	}
	var old []*slot
	if p := t.slots.Load(); p != nil {
		old = *p
	}
	s := &slot{number: uint32(len(old))}
	// append may write beyond the end of the slice that readers have, which
	// they do not look at.
	grown := append(old, s)
	t.slots.Store(&grown)
	return s
}

// makeRoom forgets objects if there are many.
func (t *Table) makeRoom() {
	if t.size() < max(t.sweepAt, sweepMin) {
		return
	}
	sweep(t, &t.nodes)
	sweep(t, &t.pods)
	for b, s := range t.contents {
		if s.holders == 0 {
			delete(t.contents, b)
			t.release(s)
		}
	}
	t.sweepAt = 2 * t.size()
}

func (t *Table) size() int { return len(t.nodes.named) + len(t.pods.named) + len(t.contents) }

// sweep forgets the objects of a kind that were not used for epochsKept epochs.
func sweep[K comparable, T any](t *Table, k *objects[K, T]) {
	epoch := t.epoch.Load()
	for name, n := range k.named {
		if used, ok := k.known.lastUsed(n); ok && epoch-used < epochsKept+epochsMissed {
			continue
		}
		k.known.remove(n)
		t.leave(n.slot)
		delete(k.named, name)
	}
}
