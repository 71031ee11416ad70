package objects

import (
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// Store gives the versions of objects their refs, for one plugin.
//
// An object that was seen before is found by its pointer: objects from informers are never changed
// in place, so an equal pointer means equal content. An object with a new pointer keeps its version
// if it is equal in all fields of the read set. Fields that no instance has read yet may differ: no
// instance can tell.
//
// A Store drops objects that were not requested during the last epochs (see Advance) and uses their
// slots again. So its memory, and that of guests, follows the number of objects in use.
//
// A Store is safe for use by several goroutines.
type Store struct {
	// Reading known objects takes no lock: many goroutines filter nodes at the same time.
	nodes kind[string, corev1.Node]
	pods  kind[podKey, corev1.Pod]
	// kinds are those of other types.
	kinds []*Kind
	epoch atomic.Uint32
	// detects is that of each Kind.
	detects bool

	mu     sync.Mutex
	fields *FieldSet
	// slots is by number. It is copied when it grows, so that Lookup can read
	// it without a lock.
	slots atomic.Pointer[[]*slot]
	free  []*slot
	// transient are the slots of objects of events, and shown the last of them.
	transient [NewEventObject + 1]*slot
	shown     [NewEventObject + 1]atomic.Pointer[shown]
	// sweepAt is the number of objects from which the Store searches for some to drop.
	sweepAt int
	// room is for the bytes to digest.
	room []byte
}

// kind is the objects of a kind, by names of the type K.
type kind[K comparable, T any] struct {
	reads reads[T]
	known pointers[T]
	named map[K]*named[T]
	// lent is set if a program may change an object after the call to which it passed it.
	lent bool
}

// named is the object that has a name.
type named[T any] struct {
	slot *slot
	// version is the last one, nil if there is none with the declared fields.
	version *version[T]
	// digest is that of the version by a read set.
	digest digest
	set    *ReadSet[T]
	// used is the epoch in which the object was last passed.
	used uint32
}

// digest identifies the content of an object in a read set: equal objects have equal digests.
// Different ones do too in one case of 2^64, which cannot be predicted.
type digest struct {
	// class covers the fields by which a guest can tell two objects apart, and identity also the
	// fields that no other object shares.
	class, identity uint64
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
	// epochsKept is the number of epochs for which an unused object is kept. A scheduler that
	// examines a twentieth of its nodes in each cycle comes round to each of them long before.
	epochsKept = 128
	// epochsMissed is the number of epochs that may pass before the use of an object is recorded
	// again. To write it in each would take the object's cache line from the other processors each
	// time.
	epochsMissed = 16
	// sweepMin is the number of objects that a Store has before it searches for any to drop.
	sweepMin = 256
	// maxRoom is the number of bytes that a Store keeps for digests.
	maxRoom = 64 << 10
)

// NewDetectingStore is NewStore for a Store whose kinds panic for an object that was changed under
// its resource version.
func NewDetectingStore() *Store {
	s := NewStore()
	s.detects = true
	return s
}

// NewStore returns an empty Store for a guest that declares nothing.
func NewStore() *Store {
	s := &Store{}
	s.nodes.reads.store, s.pods.reads.store = s, s
	s.Declare(nil)
	return s
}

// Declare sets the fields that the guest gets, from now on. The read set is empty then, and each
// object has a new version.
func (s *Store) Declare(fields *FieldSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fields = fields
	s.nodes.declare(fields.Node())
	s.pods.declare(fields.Pod())
}

// Declared returns the fields that the guest gets, nil for all.
func (s *Store) Declared() *FieldSet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fields
}

func (k *kind[K, T]) declare(e *Encoder[T]) {
	k.reads.set.Store(newReadSet(e))
	k.known.clear()
	for _, n := range k.named {
		n.version = nil
	}
}

// NodeReads returns the read set of Nodes, which grows while the guest reads more.
func (s *Store) NodeReads() *ReadSet[corev1.Node] { return s.nodes.reads.set.Load() }

// Advance begins a new epoch: for a scheduler, the scheduling of another Pod.
func (s *Store) Advance() { s.epoch.Add(1) }

// Pod returns the version of pod.
//
// 0 allocs for a pointer that was seen before: TestStoreDoesNotAllocate.
func (s *Store) Pod(pod *corev1.Pod) *Object {
	if o := s.pods.known.get(pod, s.epoch.Load()); o != nil {
		return o
	}
	return arrive(s, &s.pods, podKey{pod.Namespace, pod.Name}, pod)
}

// Node returns the version of node.
//
// 0 allocs for a pointer that was seen before: TestStoreDoesNotAllocate.
func (s *Store) Node(node *corev1.Node) *Object {
	if o := s.KnownNode(node); o != nil {
		return o
	}
	return arrive(s, &s.nodes, node.Name, node)
}

// KnownNode returns the version of node if its pointer was seen before, and nil if not.
//
// 0 allocs: TestStoreDoesNotAllocate.
func (s *Store) KnownNode(node *corev1.Node) *Object { return s.nodes.known.get(node, s.epoch.Load()) }

// NodeClasses returns the encoder of the fields of Nodes by which the guest can tell two of them
// apart: those of the read set, without name, UID and resource version. It is a new encoder after
// the read set has grown.
func (s *Store) NodeClasses() *Encoder[corev1.Node] { return s.nodes.reads.set.Load().classes }

// PodClasses is NodeClasses for Pods.
func (s *Store) PodClasses() *Encoder[corev1.Pod] { return s.pods.reads.set.Load().classes }

// ClassOf returns a number that is equal for two Nodes, or two Pods, if e, which NodeClasses or
// PodClasses returned, encodes them to the same bytes.
func ClassOf[T any](o *Object, e *Encoder[T]) uint64 {
	v := o.source.(*version[T])
	if v.set.classes == e {
		return v.class
	}
	return maphash.Bytes(seed, e.Append(nil, v.of.Load())) // The read set has grown since.
}

// arrive returns the version of an object whose pointer is new.
func arrive[K comparable, T any](s *Store, k *kind[K, T], name K, of *T) *Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return add(s, k, name, of)
}

// add is arrive under the lock: the version is the last one if the object is equal to it in the
// read set, otherwise a new one.
//
// Two pointers are compared by digests of their encodings by the read set: the object at the
// previous pointer has left the processor's caches. The read set is the one under the lock, under
// which it grows, so that a field that a guest has read of the previous pointer is compared.
func add[K comparable, T any](s *Store, k *kind[K, T], name K, of *T) *Object {
	n := k.named[name]
	if n == nil {
		n = &named[T]{slot: s.allocate()}
		if k.named == nil {
			k.named = map[K]*named[T]{}
		}
		k.named[name] = n
	}
	set := k.reads.set.Load()
	now := lockedDigest(s, set, of)
	same := n.version != nil
	if same {
		before := n.version.of.Load()
		if before == of && !k.lent {
			return &n.version.Object // Another goroutine came first.
		}
		if before != of {
			k.known.remove(before, &n.version.Object)
		}
		switch {
		case n.set == set:
		case k.lent:
			same = false // The previous pointer may point to a different object by now.
		default:
			n.digest = lockedDigest(s, set, before)
		}
	}
	same = same && n.digest == now
	n.digest, n.set, n.used = now, set, s.epoch.Load()
	if same {
		n.version.of.Store(of)
	} else {
		v := &version[T]{kind: &k.reads, set: set, class: n.digest.class}
		v.of.Store(of)
		v.source, v.Ref = v, n.slot.next()
		n.slot.current.Store(&v.Object)
		n.version = v
	}
	k.known.set(of, &n.version.Object, s.epoch.Load())
	return &n.version.Object
}

// lockedDigest returns the digest of an object. s.mu is held.
func lockedDigest[T any](s *Store, set *ReadSet[T], of *T) (d digest) {
	b := set.classes.Append(s.room[:0], of)
	d.class = maphash.Bytes(seed, b)
	b = set.identity.Append(b, of)
	d.identity = maphash.Bytes(seed, b)
	if s.room = b; cap(b) > maxRoom {
		s.room = nil
	}
	return d
}

var seed = maphash.MakeSeed()

// EventSide is the side of a cluster event to which an object belongs.
type EventSide byte

const (
	// OldEventObject and NewEventObject are the object of a cluster event before
	// and after it.
	OldEventObject EventSide = iota
	NewEventObject
)

// shown is an object of an event with its Object.
type shown struct {
	of           metav1.Object
	uid, version string
	object       *Object
}

// Transient returns an object of any kind that is shown for one event. It replaces the last one of
// the same side, and Lookup does not find it. The error is for an object that has no protobuf
// encoding.
//
// A scheduler asks about each pending Pod with the same object, so the last one is returned again
// if the pointer, the UID and the resource version are the same. An object without a resource
// version may have changed in place.
//
// 0 allocs for the last object: TestStoreDoesNotAllocate.
func (s *Store) Transient(side EventSide, object metav1.Object) (*Object, error) {
	uid, version := string(object.GetUID()), object.GetResourceVersion()
	if last := s.shown[side].Load(); last != nil && last.of == object && last.uid == uid && last.version == version && version != "" {
		return last.object, nil
	}
	o, err := newTransient(object)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place := s.transient[side]
	if place == nil {
		place = s.allocate()
		s.transient[side] = place
	}
	o.Ref = place.next()
	s.shown[side].Store(&shown{object, uid, version, o})
	return o, nil
}

// everything selects all fields.
var everything *FieldSet

// newTransient returns an Object without a Ref. Only the requested parts of Pods and Nodes are
// encoded.
func newTransient(object metav1.Object) (*Object, error) {
	switch of := object.(type) {
	case *corev1.Pod:
		return &Object{source: &unversioned[corev1.Pod]{of: of, all: everything.Pod()}}, nil
	case *corev1.Node:
		return &Object{source: &unversioned[corev1.Node]{of: of, all: everything.Node()}}, nil
	}
	b, err := Encode(object)
	if err != nil {
		return nil, err
	}
	o := FromBytes(b)
	if k, ok := object.(*Kept); ok {
		o.kind.Store(&k.Kind)
	} else if t := reflect.TypeOf(object); t.Kind() == reflect.Pointer {
		o.kind.Store(new(t.Elem().Name()))
	}
	return o, nil
}

// Lookup returns the object with a ref, if it is the current version of its slot.
func (s *Store) Lookup(ref abi.Ref) (*Object, bool) {
	slots := s.slots.Load()
	if slots == nil || uint64(ref.Slot()) >= uint64(len(*slots)) {
		return nil, false
	}
	o := (*slots)[ref.Slot()].current.Load()
	if o == nil || o.Ref != ref {
		return nil, false
	}
	return o, true
}

// next returns the ref of the next version of the object in the slot.
func (s *slot) next() abi.Ref {
	if s.version++; s.version == 0 {
		s.version = 1 // A version that wraps round does not become "no object".
	}
	return abi.MakeRef(s.version, s.number)
}

// allocate returns an empty slot for an object. If there are many, it drops some first.
func (s *Store) allocate() *slot {
	if s.size() >= max(s.sweepAt, sweepMin) {
		sweep(s, &s.nodes)
		sweep(s, &s.pods)
		for _, k := range s.kinds {
			k.sweep()
		}
		s.sweepAt = 2 * s.size()
	}
	if n := len(s.free); n > 0 {
		free := s.free[n-1]
		s.free = s.free[:n-1]
		return free
	}
	var old []*slot
	if p := s.slots.Load(); p != nil {
		old = *p
	}
	fresh := &slot{number: uint32(len(old))}
	// append may write beyond the end of the slice that readers have, which they do not read.
	grown := append(old, fresh)
	s.slots.Store(&grown)
	return fresh
}

// size returns the number of objects.
func (s *Store) size() int {
	n := len(s.nodes.named) + len(s.pods.named)
	for _, k := range s.kinds {
		n += k.size()
	}
	return n
}

// inUse reports whether an Object was passed, or its pointer looked up, in one of the last epochs.
func inUse[T any](known *pointers[T], of *T, object *Object, came, epoch uint32) bool {
	used, ok := known.lastUsed(of, object)
	return epoch-came < epochsKept+epochsMissed || ok && epoch-used < epochsKept+epochsMissed
}

// sweep drops the objects of a kind that were not used for epochsKept epochs.
func sweep[K comparable, T any](s *Store, k *kind[K, T]) {
	epoch := s.epoch.Load()
	for name, n := range k.named {
		if n.version != nil {
			of := n.version.of.Load()
			if inUse(&k.known, of, &n.version.Object, n.used, epoch) {
				continue
			}
			k.known.remove(of, &n.version.Object)
		}
		n.slot.current.Store(nil)
		s.free = append(s.free, n.slot)
		delete(k.named, name)
	}
}
