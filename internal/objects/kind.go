package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/internal/codec"
)

// Kind is the objects of one Go type in a [Store], whichever it is: those that a guest reads by
// parts, with a read set as Pods and Nodes have, and those that are read whole. The latter are
// all others of k8s.io/api, in protobuf, and custom resources, in JSON.
type Kind struct {
	store *Store
	typ   reflect.Type
	// name is that of the type.
	name string
	// parts is for objects that are read by parts.
	byParts bool
	parts   kind[podKey, codec.Any]
	// known and named are for those that are read whole.
	known pointers[codec.Any]
	named map[podKey]*whole
}

// whole is an object that is read whole, by its name.
type whole struct {
	slot *slot
	// of is the last of the pointers that are the current version.
	of      *codec.Any
	bytes   []byte
	current *Object
}

// object is what has metadata and can be copied: everything that Kubernetes stores.
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
func (s *Store) Kind(t reflect.Type, fields *codec.Encoder[codec.Any]) *Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := &Kind{store: s, typ: t, name: t.Name(), named: map[podKey]*whole{}}
	if k.byParts = fields != nil; k.byParts {
		k.parts.reads.store = s
		k.parts.declare(fields)
	}
	s.kinds = append(s.kinds, k)
	return k
}

// Object returns the version of the object at of, a pointer to the type of the Kind. The error
// is for an object that has no encoding.
//
// 0 allocs for a pointer that was seen before: TestStoreDoesNotAllocate.
func (k *Kind) Object(of unsafe.Pointer) (*Object, error) {
	known := &k.known
	if k.byParts {
		known = &k.parts.known
	}
	if o := known.get((*codec.Any)(of), k.store.epoch.Load()); o != nil {
		return o, nil
	}
	held := reflect.NewAt(k.typ, of).Interface().(object)
	name := podKey{held.GetNamespace(), held.GetName()}
	var o *Object
	if k.byParts {
		o = arrive(k.store, &k.parts, name, (*codec.Any)(of))
	} else {
		encoded, err := encodeWhole(held)
		if err != nil {
			return nil, err
		}
		o = k.arrive(name, (*codec.Any)(of), encoded)
	}
	if o.kind.Load() == nil {
		o.kind.Store(&k.name)
	}
	return o, nil
}

// encodeWhole returns the bytes of an object: in protobuf if it has any, else in JSON.
func encodeWhole(o object) ([]byte, error) {
	if _, ok := o.(interface {
		MarshalToSizedBuffer(b []byte) (int, error)
	}); ok {
		return codec.Encode(o)
	}
	if len(o.GetManagedFields()) != 0 {
		clone := o.DeepCopyObject().(object)
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
func (k *Kind) arrive(name podKey, of *codec.Any, encoded []byte) *Object {
	s := k.store
	s.mu.Lock()
	defer s.mu.Unlock()
	w := k.named[name]
	if w == nil {
		w = &whole{slot: s.allocate()}
		k.named[name] = w
	}
	if w.of == of && w.current != nil {
		return w.current // Another goroutine came first.
	}
	if w.current != nil {
		k.known.remove(w.of)
	}
	if w.of = of; w.current == nil || !bytes.Equal(w.bytes, encoded) {
		w.current, w.bytes = FromBytes(encoded), encoded
		w.current.Ref = w.slot.next()
		w.slot.current.Store(w.current)
	}
	k.known.set(of, w.current, s.epoch.Load())
	return w.current
}

func (k *Kind) size() int { return len(k.parts.named) + len(k.named) }

// sweep forgets the objects that were not used for epochsKept epochs.
func (k *Kind) sweep() {
	s := k.store
	sweep(s, &k.parts)
	epoch := s.epoch.Load()
	for name, w := range k.named {
		if used, ok := k.known.lastUsed(w.of); ok && epoch-used < epochsKept+epochsMissed {
			continue
		}
		k.known.remove(w.of)
		w.slot.current.Store(nil)
		s.free = append(s.free, w.slot)
		delete(k.named, name)
	}
}
