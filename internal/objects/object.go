package objects

import (
	"sync/atomic"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// Object is a version of an object. Guests read it by its methods, which are safe for use by
// several goroutines and record the requested fields in the read set.
type Object struct {
	// Ref is the ref by which guests know this version.
	Ref abi.Ref
	// Class is room for the class of equal objects, for the holder of the [Store].
	Class atomic.Value
	// identified is set when a field was read in which no two Nodes are equal.
	identified atomic.Bool
	// kind is the name of the type, if it is neither Pod nor Node; nil if that is not known.
	kind atomic.Pointer[string]
	// stamp is that of the object of a [Kind].
	stamp atomic.Pointer[stamp]
	source
}

// source provides the encoding of an Object.
type source interface {
	// Bytes returns the encoded object, which must not be changed.
	Bytes() []byte
	// AppendPart appends some fields of a part of the object, see [Encoder.AppendPart].
	AppendPart(b []byte, part uint32, fields uint64) []byte
	// Entry returns the value of a key in the labels or the annotations, see
	// [Encoder.Entry].
	Entry(field uint32, key string) (value string, ok bool)
}

// Identified reports whether a guest has read the name, the UID or the resource version of this
// object. The object must be one that is encoded on request.
func (o *Object) Identified() bool { return o.identified.Load() }

// Kind returns the kind of the object without its group, empty if it is not known.
func (o *Object) Kind() string {
	switch o.source.(type) {
	case *version[corev1.Pod], *unversioned[corev1.Pod]:
		return "Pod"
	case *version[corev1.Node], *unversioned[corev1.Node]:
		return "Node"
	}
	if kind := o.kind.Load(); kind != nil {
		return *kind
	}
	return ""
}

// version is an Object that is encoded on request.
type version[T any] struct {
	Object
	kind *reads[T]
	// of is the last of the pointers that are this version: equal in the read set.
	of atomic.Pointer[T]
	// set is the read set in which the version was new, and class that of the object by
	// set.classes.
	set   *ReadSet[T]
	class uint64
	// whole is the encoded object after the first request for it.
	whole atomic.Pointer[[]byte]
}

func (v *version[T]) Bytes() []byte {
	if whole := v.whole.Load(); whole != nil {
		v.identified.Store(true)
		return *whole
	}
	b := v.encode(v.of.Load())
	v.whole.Store(&b) // Another goroutine may have stored the same bytes.
	return b
}

func (v *version[T]) encode(of *T) []byte {
	v.identified.Store(true)
	for part := uint32(1); part <= parts; part++ {
		v.kind.add(part, abi.AllFields)
	}
	return v.set.all.Append(nil, of)
}

func (v *version[T]) AppendPart(b []byte, part uint32, fields uint64) []byte {
	return v.appendPart(b, v.of.Load(), part, fields)
}

func (v *version[T]) appendPart(b []byte, of *T, part uint32, fields uint64) []byte {
	if part == MetadataPart && fields&identity != 0 && !v.identified.Load() {
		v.identified.Store(true)
	}
	v.kind.add(part, fields)
	return v.set.all.AppendPart(b, of, part, fields)
}

func (v *version[T]) Entry(field uint32, key string) (value string, ok bool) {
	return v.entry(v.of.Load(), field, key)
}

func (v *version[T]) entry(of *T, field uint32, key string) (value string, ok bool) {
	if !v.kind.set.Load().hasEntry(field, key) {
		v.kind.addEntry(field, key)
	}
	return v.set.all.Entry(of, field, key)
}

// unversioned is the source of an object that belongs to no read set and is encoded on request.
type unversioned[T any] struct {
	of  *T
	all *Encoder[T]
	// whole is the encoded object after the first request for it.
	whole atomic.Pointer[[]byte]
}

func (u *unversioned[T]) Bytes() []byte {
	if whole := u.whole.Load(); whole != nil {
		return *whole
	}
	b := u.all.Append(nil, u.of)
	u.whole.Store(&b) // Another goroutine may have stored the same bytes.
	return b
}

func (u *unversioned[T]) AppendPart(b []byte, part uint32, fields uint64) []byte {
	return u.all.AppendPart(b, u.of, part, fields)
}

func (u *unversioned[T]) Entry(field uint32, key string) (value string, ok bool) {
	return u.all.Entry(u.of, field, key)
}

// FromBytes returns an Object without a Ref whose encoding is b.
func FromBytes(b []byte) *Object { return &Object{source: encoded(b)} }

// encoded is the source of an object that is a message already.
type encoded []byte

func (e encoded) Bytes() []byte { return e }

func (e encoded) AppendPart(b []byte, part uint32, fields uint64) []byte {
	message := e.field(protowire.Number(part))
	if fields == abi.AllFields {
		return append(b, message...)
	}
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 {
			break
		}
		if number < 64 && fields>>number&1 != 0 {
			b = append(b, message[:n]...)
		}
		message = message[n:]
	}
	return b
}

func (e encoded) Entry(field uint32, key string) (value string, ok bool) {
	if field != LabelsField && field != AnnotationsField {
		return "", false
	}
	for c := wire.NewCursor(e.field(MetadataPart)); c.Next(); {
		if c.Number != protowire.Number(field) {
			continue
		}
		if entry := encoded(c.Bytes()); string(entry.field(1)) == key {
			found := entry.field(2) // It never changes.
			value, ok = unsafe.String(unsafe.SliceData(found), len(found)), true
		}
	}
	return value, ok
}

// field returns the bytes of the last field with the number, nil if there is none.
func (e encoded) field(number protowire.Number) (found []byte) {
	for c := wire.NewCursor(e); c.Next(); {
		if c.Number == number && c.Type() == protowire.BytesType {
			found = c.Bytes()
		}
	}
	return found
}
