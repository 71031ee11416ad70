package objects

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// origin is what an object is encoded from: one of them.
type origin struct {
	pod  *corev1.Pod
	node *corev1.Node
}

// at returns the object and what encodes it.
func (o origin) at(p *Projection) (encoder, unsafe.Pointer) {
	p = p.orEverything()
	if o.pod != nil {
		return p.pod, unsafe.Pointer(o.pod)
	}
	return p.node, unsafe.Pointer(o.node)
}

func (o origin) append(b []byte, p *Projection) ([]byte, error) {
	if o.pod != nil {
		return p.appendPod(b, o.pod)
	}
	return p.appendNode(b, o.node)
}

// source is that of an object that is encoded when somebody asks.
type source struct {
	// One of them, and always the same. It is the last one of which the same is encoded,
	// so that no other is kept.
	pod        atomic.Pointer[corev1.Pod]
	node       atomic.Pointer[corev1.Node]
	projection *Projection
	// whole are its bytes, once somebody has asked for all.
	whole atomic.Pointer[[]byte]
}

// newLateObject returns an Object that is encoded when somebody asks.
func newLateObject(from origin, p *Projection) *Object {
	both := &struct {
		Object
		from source
	}{}
	both.from.projection = p
	both.from.set(from)
	both.source = &both.from
	return &both.Object
}

func (s *source) set(from origin) {
	if from.pod != nil {
		s.pod.Store(from.pod)
	} else {
		s.node.Store(from.node)
	}
}

func (s *source) origin() origin { return origin{s.pod.Load(), s.node.Load()} }

// equals reports whether what is encoded of the object by p is the same of another.
func (s *source) equals(from origin, p *Projection) bool {
	if s == nil || s.projection != p {
		return false
	}
	before := s.origin()
	if before == from {
		return true
	}
	e, at := before.at(p)
	_, other := from.at(p)
	return e.equal(at, other)
}

// is reports whether the object was encoded as b, which is not nil then.
func (o *Object) is(b []byte) bool { return o.source == nil && b != nil && bytes.Equal(o.bytes, b) }

// Bytes returns the encoded object, which must not be changed. Of an object that was not
// encoded when it came, it panics with the error of the encoder of a field of
// k8s.io/api; none is known that fails.
func (o *Object) Bytes() []byte {
	if o.source == nil {
		return o.bytes
	}
	if whole := o.source.whole.Load(); whole != nil {
		return *whole
	}
	b, err := o.source.origin().append(nil, o.source.projection)
	if err != nil {
		panic(err)
	}
	o.source.whole.Store(&b) // The same as anybody else's.
	return b
}

// AppendPart appends the bytes of the message in a field of the object, nothing if it is
// not there. In a Pod and a Node, metadata is 1, spec 2 and status 3. Of its fields those
// are left out whose bits are not set in the mask: the bit 1<<n is that of the field n,
// which only [abi.AllFields] has if n is over 63.
func (o *Object) AppendPart(b []byte, part uint32, fields uint64) ([]byte, error) {
	if o.source == nil {
		return appendFields(b, lastField(o.bytes, protowire.Number(part)), fields), nil
	}
	e, at := o.source.origin().at(o.source.projection)
	for i := range e {
		f := &e[i]
		if f.number != uint64(part) || f.kind != submessage || f.holds != one {
			continue
		}
		at := unsafe.Add(at, f.offset)
		var err error
		for i := range f.message {
			if only := f.message[i : i+1]; has(fields, only[0].number) {
				if b, err = only.append(b, at); err != nil {
					return nil, fmt.Errorf("encode part %d: %w", part, err)
				}
			}
		}
	}
	return b, nil
}

// has reports whether a mask of [Object.AppendPart] has a field.
func has(fields, number uint64) bool {
	return fields == abi.AllFields || number < 64 && fields>>number&1 != 0
}

// appendFields appends those fields of a message that we encoded that a mask has.
func appendFields(b, message []byte, fields uint64) []byte {
	if fields == abi.AllFields {
		return append(b, message...)
	}
	for len(message) > 0 {
		number, _, n := protowire.ConsumeField(message)
		if n < 0 {
			break
		}
		if has(fields, uint64(number)) {
			b = append(b, message[:n]...)
		}
		message = message[n:]
	}
	return b
}

// The metadata of an object, as a part, and its fields that are maps of strings.
const (
	MetadataPart     = 1
	LabelsField      = 11
	AnnotationsField = 12
)

// Entry returns the value of a key in the labels or the annotations of the object. Of
// other fields none is known. The key is not kept.
func (o *Object) Entry(field uint32, key string) (value string, ok bool) {
	if field != LabelsField && field != AnnotationsField {
		return "", false
	}
	if o.source == nil {
		return entry(lastField(o.bytes, MetadataPart), protowire.Number(field), key)
	}
	p := o.source.projection.orEverything()
	if pod := o.source.pod.Load(); pod != nil {
		return p.podTexts.value(&pod.ObjectMeta, field, key)
	}
	return p.nodeTexts.value(&o.source.node.Load().ObjectMeta, field, key)
}

// texts are the encoders of labels and annotations, nil for what does not travel.
type texts struct{ labels, annotations *stringMap }

func (t *texts) value(meta *metav1.ObjectMeta, field uint32, key string) (value string, ok bool) {
	if field == LabelsField {
		return t.labels.value(meta.Labels, key)
	}
	return t.annotations.value(meta.Annotations, key)
}

// large reports whether labels or annotations travel without being named one by one.
func (t *texts) large() bool {
	return t.labels != nil && t.labels.whole || t.annotations != nil && t.annotations.whole
}

// Late reports whether the object is encoded when somebody asks for its bytes, so that
// parts and entries cost less than the whole.
func (o *Object) Late() bool { return o.source != nil }

// LateNode reports whether it is such an object, and a Node.
func (o *Object) LateNode() bool { return o.source != nil && o.source.node.Load() != nil }

// texts returns the encoders of the labels and annotations of an object.
func (e encoder) texts() (t texts) {
	for i := range e {
		if e[i].number != MetadataPart {
			continue
		}
		for _, f := range e[i].message {
			switch f.number {
			case LabelsField:
				t.labels = f.strings
			case AnnotationsField:
				t.annotations = f.strings
			}
		}
	}
	return t
}

// lastField returns the bytes of the last field with the number in a message that we
// encoded.
func lastField(b []byte, number protowire.Number) (found []byte) {
	eachField(b, func(n protowire.Number, value []byte) {
		if n == number {
			found = value
		}
	})
	return found
}

// entry returns the value of a key in a map of strings of a message that we encoded.
func entry(b []byte, number protowire.Number, key string) (value string, ok bool) {
	eachField(b, func(n protowire.Number, e []byte) {
		if n == number && string(lastField(e, 1)) == key {
			value, ok = string(lastField(e, 2)), true
		}
	})
	return value, ok
}

// eachField calls f with each field that has bytes.
func eachField(b []byte, f func(number protowire.Number, value []byte)) {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if typ == protowire.BytesType {
			value, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return
			}
			f(number, value)
			b = b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, typ, b); n < 0 {
			return
		}
		b = b[n:]
	}
}
