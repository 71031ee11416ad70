package codec

import (
	"bytes"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// Object is a version of an object, encoded. It does not change.
type Object struct {
	// Ref is what guests know this version by.
	Ref   abi.Ref
	bytes []byte
	slot  *slot
}

// Bytes returns the encoded object, which must not be changed.
func (o *Object) Bytes() []byte { return o.bytes }

// Table encodes objects once for each of their versions and gives them refs.
//
// An object that was seen before is found by its pointer: objects that come
// from informers are never changed in place, so an equal pointer means equal
// content. Behind a new pointer the object is encoded, and its version moves
// only if the bytes did.
//
// A Table forgets objects that were not asked for during the last epochs
// (see Advance) and uses their slots again, so that its memory, and that of
// guests, follows the number of objects in use.
//
// The zero value is ready to use. A Table is safe for use by several
// goroutines.
type Table struct {
	// objects holds the current *Object of each pointer. Reading it takes no
	// lock: many goroutines filter nodes at the same time.
	objects sync.Map
	epoch   atomic.Uint64
	// projection is what is encoded; nil is everything.
	projection atomic.Pointer[Projection]

	mu    sync.Mutex
	byKey map[key]*slot
	// slots is by number. It is copied when it grows, so that Lookup can read
	// it without a lock.
	slots atomic.Pointer[[]*slot]
	free  []*slot
	// places are the slots of objects that pass.
	places [NewEventObject + 1]*slot
	// sweepAt is how many slots may be in use before the Table looks for some
	// to free.
	sweepAt int
}

// key names an object in every version.
type key struct {
	kind            byte
	namespace, name string
}

// slot is a place for the versions of one object at a time.
type slot struct {
	number  uint32
	version uint32
	key     key
	pointer any
	current atomic.Pointer[Object]
	// used is the epoch in which the object was last asked for.
	used atomic.Uint64
}

const (
	// epochsKept is for how many epochs an unused object is remembered. A
	// scheduler that looks at a twentieth of its nodes in each cycle comes
	// round to each of them long before.
	epochsKept = 128
	// sweepMin is how many slots a Table uses before it looks for any to free.
	sweepMin = 256
)

// Advance begins a new epoch: for a scheduler, the scheduling of another Pod.
func (t *Table) Advance() { t.epoch.Add(1) }

// Project makes the Table encode the fields of p from now on. Objects are encoded
// once more; one whose bytes stay the same keeps its version.
func (t *Table) Project(p *Projection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.projection.Store(p)
	t.objects.Clear()
	for _, s := range t.byKey {
		s.pointer = nil
	}
}

// Projection returns what the Table encodes, nil for everything.
func (t *Table) Projection() *Projection { return t.projection.Load() }

// Pod returns the encoded version of pod.
//
// 0 allocs for a pointer that was seen before: TestTableDoesNotAllocate.
func (t *Table) Pod(pod *corev1.Pod) (*Object, error) {
	if o := t.seen(pod); o != nil {
		return o, nil
	}
	return t.encode(pod, key{'p', pod.Namespace, pod.Name}, func(p *Projection, b []byte) ([]byte, error) { return p.appendPod(b, pod) })
}

// Node returns the encoded version of node.
//
// 0 allocs for a pointer that was seen before: TestTableDoesNotAllocate.
func (t *Table) Node(node *corev1.Node) (*Object, error) {
	if o := t.seen(node); o != nil {
		return o, nil
	}
	return t.encode(node, key{kind: 'n', name: node.Name}, func(p *Projection, b []byte) ([]byte, error) { return p.appendNode(b, node) })
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
	return &Object{Ref: abi.MakeRef(s.version, s.number), bytes: b, slot: s}, nil
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

// seen returns the object of a pointer that is known.
func (t *Table) seen(pointer any) *Object {
	v, ok := t.objects.Load(pointer)
	if !ok {
		return nil
	}
	o := v.(*Object)
	// Writing the same epoch over and over would bounce the cache line between
	// the processors.
	if epoch := t.epoch.Load(); o.slot.used.Load() != epoch {
		o.slot.used.Store(epoch)
	}
	return o
}

// scratch holds the buffers that objects are encoded in: most of them turn out to
// be as they were, and are thrown away.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// encode encodes an object that is behind a new pointer.
func (t *Table) encode(pointer any, k key, by func(*Projection, []byte) ([]byte, error)) (*Object, error) {
	buffer := scratch.Get().(*[]byte)
	defer scratch.Put(buffer)
	for {
		projection := t.projection.Load()
		b, err := by(projection, (*buffer)[:0])
		if err != nil {
			return nil, err
		}
		*buffer = b
		if o := t.update(pointer, k, b, projection); o != nil {
			return o, nil
		}
	}
}

// update makes b, which it copies, the content of the object that key names and
// pointer its pointer. It returns nil if the projection that b was made by has
// passed.
func (t *Table) update(pointer any, k key, b []byte, projection *Projection) *Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.projection.Load() != projection {
		return nil
	}
	s, ok := t.byKey[k]
	if !ok {
		s = t.allocate()
		s.key = k
		if t.byKey == nil {
			t.byKey = map[key]*slot{}
		}
		t.byKey[k] = s
	}
	s.used.Store(t.epoch.Load())
	o := s.current.Load()
	if o == nil || !bytes.Equal(o.bytes, b) {
		s.version = abi.NextVersion(s.version)
		o = &Object{Ref: abi.MakeRef(s.version, s.number), bytes: bytes.Clone(b), slot: s}
		s.current.Store(o)
	}
	if s.pointer != pointer {
		if s.pointer != nil {
			t.objects.Delete(s.pointer)
		}
		s.pointer = pointer
	}
	t.objects.Store(pointer, o)
	return o
}

// allocate returns an empty slot.
func (t *Table) allocate() *slot {
	if t.sweepAt == 0 {
		t.sweepAt = sweepMin
	}
	if len(t.free) == 0 && len(t.byKey) >= t.sweepAt {
		t.sweep()
		t.sweepAt = max(sweepMin, 2*len(t.byKey))
	}
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

// sweep frees the slots of objects that were not used for epochsKept epochs.
func (t *Table) sweep() {
	epoch := t.epoch.Load()
	for k, s := range t.byKey {
		if s.used.Load()+epochsKept >= epoch {
			continue
		}
		delete(t.byKey, k)
		if s.pointer != nil {
			t.objects.Delete(s.pointer)
		}
		s.pointer = nil
		s.current.Store(nil)
		t.free = append(t.free, s)
	}
}
