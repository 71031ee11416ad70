package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"reflect"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the objects of one Go type in a [Store]. Objects are either read by parts, with a read
// set like Pods and Nodes, or read whole. The latter are all other objects of k8s.io/api, in
// protobuf, and custom resources, in JSON.
//
// Its objects are those of a program that may read another one into the same variable. So a pointer
// stands for the same content only with the same UID and resource version. An object without a
// resource version is compared each time, and nothing is read of an object after its call.
type Kind struct {
	store *Store
	typ   reflect.Type
	// name is that of the type.
	name string
	// parts is for objects that are read by parts.
	byParts bool
	parts   kind[podKey, Any]
	// meta is the offset of the metadata in an object, noMeta if they are no metav1.ObjectMeta in
	// it.
	meta uintptr
	// detects is set if Object panics for an object that was changed under its resource version.
	detects bool
	// encode encodes objects that are read whole: all of their fields, unless Narrow has set
	// another function.
	encode func(o metav1.Object) ([]byte, error)
	// known and named are for objects that are read whole.
	known pointers[Any]
	named map[podKey]*whole
}

// whole is an object that is read whole, by its name.
type whole struct {
	slot *slot
	// of is the last of the pointers that are the current version.
	of      *Any
	bytes   []byte
	current *Object
	// used is the epoch in which it was last passed.
	used uint32
}

// object is the interface of values with metadata that can be copied: everything that Kubernetes
// stores.
type object interface {
	metav1.Object
	runtime.Object
}

// IsObject reports whether pointers to the type are objects.
func IsObject(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[object]())
}

// Kind returns the objects of a type, for which IsObject holds, with the fields that the guest
// gets. fields is nil if it gets them as a whole. Kind is called once for a type.
func (s *Store) Kind(t reflect.Type, fields *Encoder[Any]) *Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &Kind{store: s, typ: t, name: t.Name(), named: map[podKey]*whole{}, meta: noMeta, detects: s.detects, encode: EncodeWhole}
	if f, ok := t.FieldByName("ObjectMeta"); ok && f.Type == reflect.TypeFor[metav1.ObjectMeta]() && len(f.Index) == 1 {
		k.meta = f.Offset
	}
	if k.byParts = fields != nil; k.byParts {
		k.parts.reads.store, k.parts.lent = s, true
		k.parts.declare(fields)
	}
	s.kinds = append(s.kinds, k)
	return k
}

// Narrow replaces [EncodeWhole] by encode for objects that are read whole. It is called before the
// first object is passed.
func (k *Kind) Narrow(encode func(o metav1.Object) ([]byte, error)) { k.encode = encode }

// Object returns the version of the object at of, a pointer to the type of the Kind. The error
// is for an object that has no encoding.
//
// 0 allocs for a pointer that was seen before: TestStoreDoesNotAllocate.
func (k *Kind) Object(of unsafe.Pointer) (*Object, error) {
	known := &k.known
	if k.byParts {
		known = &k.parts.known
	}
	now := k.stampOf(of)
	if o := known.get((*Any)(of), k.store.epoch.Load()); o != nil {
		if was := o.stamp.Load(); was != nil && was.version != "" && was.uid == now.uid && was.version == now.version {
			if k.detects {
				k.detect(of, was)
			}
			return o, nil
		}
	}
	held := k.held(of)
	name := podKey{held.GetNamespace(), held.GetName()}
	var o *Object
	if k.byParts {
		o = arrive(k.store, &k.parts, name, (*Any)(of))
	} else {
		encoded, err := k.encode(held)
		if err != nil {
			return nil, err
		}
		o = k.arrive(name, (*Any)(of), encoded)
	}
	if o.kind.Load() == nil {
		o.kind.Store(&k.name)
	}
	if was := o.stamp.Load(); was == nil || k.detects || was.uid != now.uid || was.version != now.version {
		is := &stamp{now.uid, now.version, 0}
		if k.detects {
			is.digest = k.digest(of)
		}
		o.stamp.Store(is)
	}
	return o, nil
}

// noMeta is the offset of metadata that are not found by their offset.
const noMeta = ^uintptr(0)

// stamp is the identity of an object when it was passed.
type stamp struct {
	uid     types.UID
	version string
	// digest is that of all of the object, if changes are detected.
	digest uint64
}

func (k *Kind) held(of unsafe.Pointer) object {
	return reflect.NewAt(k.typ, of).Interface().(object)
}

func (k *Kind) stampOf(of unsafe.Pointer) stamp {
	if k.meta != noMeta {
		m := (*metav1.ObjectMeta)(unsafe.Add(of, k.meta))
		return stamp{uid: m.UID, version: m.ResourceVersion}
	}
	held := k.held(of)
	return stamp{uid: held.GetUID(), version: held.GetResourceVersion()}
}

// digest returns the digest of all of an object.
func (k *Kind) digest(of unsafe.Pointer) uint64 {
	b, err := EncodeWhole(k.held(of))
	if err != nil {
		return 0 // It has never been passed.
	}
	return maphash.Bytes(seed, b)
}

// detect panics if an object was changed since it was passed: no plugin would see the change.
func (k *Kind) detect(of unsafe.Pointer, was *stamp) {
	if k.digest(of) != was.digest {
		held := k.held(of)
		panic(fmt.Sprintf("kubewasm: the %s %s/%s was changed after it had been passed to a plugin, under the resource version %q: pass another one, made by DeepCopy",
			k.name, held.GetNamespace(), held.GetName(), was.version))
	}
}

// Reading is an Object for a call that passed the object at a pointer. Another call may have passed
// an equal one since, and its program may be about to change that.
type Reading struct {
	*Object
	// version is nil for an Object that is read whole.
	version *version[Any]
	of      *Any
}

// At returns the Object for reading by the call that passed the object at of.
func (o *Object) At(of unsafe.Pointer) Reading {
	v, _ := o.source.(*version[Any])
	return Reading{o, v, (*Any)(of)}
}

// Bytes returns the encoded object, which must not be changed.
func (r Reading) Bytes() []byte {
	if r.version == nil {
		return r.Object.Bytes()
	}
	return r.version.encode(r.of)
}

// AppendPart appends some fields of a part of the object, see [Encoder.AppendPart].
func (r Reading) AppendPart(b []byte, part uint32, fields uint64) []byte {
	if r.version == nil {
		return r.Object.AppendPart(b, part, fields)
	}
	return r.version.appendPart(b, r.of, part, fields)
}

// Entry returns the value of a key in the labels or the annotations, see [Encoder.Entry].
func (r Reading) Entry(field uint32, key string) (value string, ok bool) {
	if r.version == nil {
		return r.Object.Entry(field, key)
	}
	return r.version.entry(r.of, field, key)
}

// EncodeWhole returns the bytes of an object: in protobuf if the type supports it, otherwise in
// JSON. The object is one of a type for which [IsObject] holds.
func EncodeWhole(o metav1.Object) ([]byte, error) {
	if _, ok := o.(interface {
		MarshalToSizedBuffer(b []byte) (int, error)
	}); ok {
		return Encode(o)
	}
	if len(o.GetManagedFields()) != 0 {
		clone := o.(runtime.Object).DeepCopyObject().(object)
		clone.SetManagedFields(nil)
		o = clone
	}
	b, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %T %q: %w", o, o.GetName(), err)
	}
	return b, nil
}

// arrive returns the version of an object that is read whole and whose pointer is new.
func (k *Kind) arrive(name podKey, of *Any, encoded []byte) *Object {
	s := k.store
	s.mu.Lock()
	defer s.mu.Unlock()
	w := k.named[name]
	if w == nil {
		w = &whole{slot: s.allocate()}
		k.named[name] = w
	}
	if w.current != nil && w.of != of {
		k.known.remove(w.of, w.current)
	}
	w.used = s.epoch.Load()
	if w.of = of; w.current == nil || !bytes.Equal(w.bytes, encoded) {
		w.current, w.bytes = FromBytes(encoded), encoded
		w.current.Ref = w.slot.next()
		w.slot.current.Store(w.current)
	}
	k.known.set(of, w.current, s.epoch.Load())
	return w.current
}

func (k *Kind) size() int { return len(k.parts.named) + len(k.named) }

// sweep drops the objects that were not used for epochsKept epochs.
func (k *Kind) sweep() {
	s := k.store
	sweep(s, &k.parts)
	epoch := s.epoch.Load()
	for name, w := range k.named {
		if inUse(&k.known, w.of, w.current, w.used, epoch) {
			continue
		}
		k.known.remove(w.of, w.current)
		w.slot.current.Store(nil)
		s.free = append(s.free, w.slot)
		delete(k.named, name)
	}
}
