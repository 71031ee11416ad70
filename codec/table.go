package codec

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// Object is a version of an object, encoded. It does not change.
type Object struct {
	// What a look at a Node reads comes first, and fits into a line of the
	// processor's cache.

	// Ref is what guests know this version by.
	Ref abi.Ref
	// node or pod is the object itself.
	node *corev1.Node
	// next is the next Object in its bucket.
	next atomic.Pointer[Object]
	// used is the epoch in which the object was asked for, or one of the few
	// before it.
	used atomic.Uint64
	// Notes is room for what the holder of the Table finds out about this version.
	// It stays when the object is encoded anew and its bytes are what they were.
	Notes [4]atomic.Uint64
	pod   *corev1.Pod
	bytes []byte
}

// smallObject is an Object with room for its bytes, of 352 bytes together: what few
// declared fields of a Node have, for the most part.
type smallObject struct {
	Object
	room [256]byte
}

// newObject returns an Object with a copy of b, or the bytes of old, which are the
// same, if it is not nil.
func newObject(b []byte, old *Object) *Object {
	var o *Object
	switch {
	case len(b) <= len(smallObject{}.room):
		// Not the bytes of old: they would keep it and its Node in memory.
		small := &smallObject{}
		o = &small.Object
		o.bytes = small.room[:copy(small.room[:], b):len(b)]
	case old != nil:
		o = &Object{bytes: old.bytes}
	default:
		o = &Object{bytes: bytes.Clone(b)}
	}
	if old != nil {
		for i := range o.Notes {
			o.Notes[i].Store(old.Notes[i].Load())
		}
	}
	return o
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
	// objects holds the current Object of each pointer. Reading it takes no lock:
	// many goroutines filter nodes at the same time.
	objects pointers
	epoch   atomic.Uint64
	// projection is what is encoded; nil is everything.
	projection atomic.Pointer[Projection]

	mu sync.Mutex
	// The slots of Nodes by their names, and of Pods.
	nodes map[string]*slot
	pods  map[podKey]*slot
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

// podKey names a Pod in every version.
type podKey struct{ namespace, name string }

// slot is a place for the versions of one object at a time.
type slot struct {
	number  uint32
	version uint32
	current atomic.Pointer[Object]
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
	t.objects.clear()
}

// Projection returns what the Table encodes, nil for everything.
func (t *Table) Projection() *Projection { return t.projection.Load() }

// Pod returns the encoded version of pod.
//
// 0 allocs for a pointer that was seen before: TestTableDoesNotAllocate.
func (t *Table) Pod(pod *corev1.Pod) (*Object, error) {
	for o := t.objects.bucket(maphash.Comparable(seed, pod)); o != nil; o = o.next.Load() {
		if o.pod == pod {
			return t.use(o), nil
		}
	}
	return t.encode(nil, pod)
}

// Node returns the encoded version of node.
//
// 0 allocs for a pointer that was seen before: TestTableDoesNotAllocate.
func (t *Table) Node(node *corev1.Node) (*Object, error) {
	for o := t.objects.bucket(maphash.Comparable(seed, node)); o != nil; o = o.next.Load() {
		if o.node == node {
			return t.use(o), nil
		}
	}
	return t.encode(node, nil)
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

// use notes that o was asked for.
func (t *Table) use(o *Object) *Object {
	if epoch := t.epoch.Load(); epoch-o.used.Load() >= epochsMissed {
		o.used.Store(epoch)
	}
	return o
}

// scratch holds the buffers that objects are encoded in: most of them turn out to
// be as they were, and are thrown away.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// encode encodes a Node or a Pod that is behind a new pointer.
func (t *Table) encode(node *corev1.Node, pod *corev1.Pod) (*Object, error) {
	buffer := scratch.Get().(*[]byte)
	defer scratch.Put(buffer)
	for {
		projection := t.projection.Load()
		var err error
		b := (*buffer)[:0]
		if node != nil {
			b, err = projection.appendNode(b, node)
		} else {
			b, err = projection.appendPod(b, pod)
		}
		if err != nil {
			return nil, err
		}
		*buffer = b
		if o := t.update(node, pod, b, projection); o != nil {
			return o, nil
		}
	}
}

// update makes b, which it copies, the current version of a Node or a Pod. It returns
// nil if the projection that b was made by has passed.
func (t *Table) update(node *corev1.Node, pod *corev1.Pod, b []byte, projection *Projection) *Object {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.projection.Load() != projection {
		return nil
	}
	s := t.slotOf(node, pod)
	old := s.current.Load()
	if old != nil {
		t.objects.remove(old)
	}
	if old == nil || !bytes.Equal(old.bytes, b) {
		s.version = abi.NextVersion(s.version)
		old = nil
	}
	o := newObject(b, old)
	o.Ref, o.node, o.pod = abi.MakeRef(s.version, s.number), node, pod
	o.used.Store(t.epoch.Load())
	s.current.Store(o)
	t.objects.add(o)
	return o
}

// slotOf returns the slot of a Node or a Pod.
func (t *Table) slotOf(node *corev1.Node, pod *corev1.Pod) *slot {
	if node != nil {
		s := t.nodes[node.Name]
		if s == nil {
			s = t.allocate()
			if t.nodes == nil {
				t.nodes = map[string]*slot{}
			}
			t.nodes[node.Name] = s
		}
		return s
	}
	k := podKey{pod.Namespace, pod.Name}
	s := t.pods[k]
	if s == nil {
		s = t.allocate()
		if t.pods == nil {
			t.pods = map[podKey]*slot{}
		}
		t.pods[k] = s
	}
	return s
}

// allocate returns an empty slot.
func (t *Table) allocate() *slot {
	if t.sweepAt == 0 {
		t.sweepAt = sweepMin
	}
	if len(t.free) == 0 && len(t.nodes)+len(t.pods) >= t.sweepAt {
		t.sweep()
		t.sweepAt = max(sweepMin, 2*(len(t.nodes)+len(t.pods)))
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
	for name, s := range t.nodes {
		if t.release(s) {
			delete(t.nodes, name)
		}
	}
	for k, s := range t.pods {
		if t.release(s) {
			delete(t.pods, k)
		}
	}
}

// release frees a slot, unless its object was used lately.
func (t *Table) release(s *slot) bool {
	o := s.current.Load()
	if o.used.Load()+epochsKept+epochsMissed > t.epoch.Load() {
		return false
	}
	t.objects.remove(o)
	s.current.Store(nil)
	t.free = append(t.free, s)
	return true
}
