package view

import (
	"math"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/json"
)

// object is the message of an object, and the bytes of the messages in it.
type object struct {
	root message
	// bytes are those of the object, in which all its messages lie.
	bytes []byte
	// version, of 32 bits, counts the contents that the object has had; for bytes that never
	// change it is 1. It is not that of ref, since the object of another ref may
	// lie in the same memory.
	version uint64
	// ref is the host's reference of the object, 0 for bytes that never change.
	ref abi.Ref
	// unread is set until the bytes are fetched.
	unread bool
	// byParts is set if the messages in the fields of root are separate objects, whose fields are
	// fetched when they are read.
	byParts bool
	// part is the number of the field of another object's root, 0 if it is none, and
	// wanted the index of its wantedFields.
	part, wanted uint8
	// looked is the number of entries of its maps that were fetched one by one.
	looked uint8
	// json is set if it is JSON. Then there is a once.
	json bool
	// kept is set if the bytes are never overwritten.
	kept bool
	// missing has a bit, 1<<n, for each field n of root that was not fetched; while unread is
	// set, of the version that was fetched last.
	missing uint64
	once    *once
}

// An object takes two lines of the processor's cache, the first of which is root.
var _ [0]struct{} = [unsafe.Sizeof(object{}) - 2*unsafe.Sizeof(message{})]struct{}{}

// once is the memory of objects that are read once: there is no next version, or it has
// little in common with this one.
type once struct {
	// walker is that of an object in JSON. It finishes one walk before another begins.
	walker json.Walker
	// fields and messages are room for those of several messages: in a Go guest
	// to allocate costs as much as to read a message.
	fields   []field
	messages []message
	// index is the memory of the walker's.
	index []uint64
	// found is the answer of the last look-up in a map.
	found answer
}

// The room for a Pod with two containers; smaller objects get room in proportion.
const (
	spareFields   = 128
	spareMessages = 4
	bytesPerField = 32
)

// makeFields returns n empty fields.
func (o *object) makeFields(n int) []field {
	if o.once == nil {
		return make([]field, n)
	}
	if n > len(o.once.fields) {
		o.once.fields = make([]field, max(n, min(spareFields, len(o.bytes)/bytesPerField)))
	}
	fields := o.once.fields[:n:n]
	o.once.fields = o.once.fields[n:]
	return fields
}

// makeMessages returns n messages of the type.
func (o *object) makeMessages(n int, t *Type) []message {
	var messages []message
	if o.once == nil || n > spareMessages {
		messages = make([]message, n)
	} else {
		if n > len(o.once.messages) {
			o.once.messages = make([]message, spareMessages)
		}
		messages = o.once.messages[:n:n]
		o.once.messages = o.once.messages[n:]
	}
	for i := range messages {
		m := &messages[i]
		m.object, m.typ = o, t
	}
	return messages
}

// fixedVersion is the version of bytes that never change.
const fixedVersion = 1

// FromProto returns a view of the protobuf message in raw, which must not change afterwards.
func FromProto(raw []byte, t *Type) View { return View{&fromBytes(raw, t).root, fixedVersion} }

// FromJSON returns a view of the JSON object in raw, which must not change afterwards.
func FromJSON(raw []byte, t *Type) View {
	if v, ok := fromSlot(raw, t); ok {
		return v
	}
	return View{&newJSON(raw, t, nil).root, fixedVersion}
}

// newJSON returns a new object of the JSON in raw. places are its index, if there are any.
func newJSON(raw []byte, t *Type, places []uint64) *object {
	o := fromBytes(raw, t)
	o.json = true
	if len(places) != 0 {
		o.once.walker.ReadIndexed(o.bytes, places)
		return o
	}
	// One allocation for the index and the fields. A field is as large as two
	// numbers of the index.
	n := json.IndexRoom(len(o.bytes))
	fields := make([]field, n/2+min(spareFields, len(o.bytes)/bytesPerField))
	o.once.index = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(fields))), n)
	o.once.fields = fields[n/2:]
	o.once.walker.Read(o.bytes, o.once.index)
	return o
}

func fromBytes(raw []byte, t *Type) *object {
	if len(raw) > math.MaxInt32 {
		raw = nil // More than the ABI allows.
	}
	// One allocation.
	var both struct {
		object
		once
	}
	o := &both.object
	o.bytes, o.kept, o.once, o.version = raw[:len(raw):len(raw)], true, &both.once, fixedVersion
	o.root = message{object: o, typ: t, end: uint32(len(raw))}
	return o
}

// FromRef returns a view of the host's object ref. Its bytes are fetched when a field is
// first read, or immediately if the object that used the memory before was read: a
// plugin reads the same of each Node. FromRef uses the memory of old, which goes stale.
// old is empty, or a view of the same type that FromRef returned for another ref.
func FromRef(old View, ref abi.Ref, t *Type) View {
	return fromRef(old, ref, t, false)
}

// FromRefByParts is FromRef for an object whose fields are messages, such as a Pod or a
// Node. It fetches only the fields that are read, and single labels and annotations.
func FromRefByParts(old View, ref abi.Ref, t *Type) View {
	return fromRef(old, ref, t, true)
}

// fromRef is FromRef, or FromRefByParts.
func fromRef(old View, ref abi.Ref, t *Type, byParts bool) View {
	m := old.m
	if m == nil {
		o := &object{byParts: byParts && len(t.Names) <= maxParts}
		o.root = message{object: o, typ: t}
		m = &o.root
	} else if m.object.ref == ref {
		return View{m, m.object.version}
	}
	o := m.object
	wasRead := m.made != nil && m.made.key.version() == o.version && !o.byParts
	if o.version++; o.version > math.MaxUint32 {
		o.version = 1 // 0 is the version of messages that were never read.
	}
	o.ref, o.unread = ref, true
	if o.byParts {
		for p := o.root.made; p != nil; p = p.next {
			c := (*message)(unsafe.Pointer(p)) // The root has no other cached values.
			part := c.object
			if part.wanted != 0 {
				c.key = c.key.in(o.version) // All fields are missing, so each is fetched when it is read.
			}
			part.version, part.ref, part.unread, part.looked = o.version, ref, true, 0
		}
	}
	if wasRead {
		m.read(o.version)
	}
	return View{m, o.version}
}

// stale ends the use of a view whose object has changed.
func stale() {
	panic("kubewasm: a view was read after its object had changed: keep strings of an object, not views")
}
