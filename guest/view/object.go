package view

import (
	"math"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/json"
)

// object is the message of an object, and the bytes that the messages in it lie
// in.
type object struct {
	root message
	// bytes are those of the object, in which all its messages lie.
	bytes []byte
	// version, of 32 bits, counts the contents that the object has had; for bytes that never
	// change it is 1. It is not that of ref, since the object of another ref may
	// lie in the same memory.
	version uint64
	// ref is what the host knows the object by, 0 for bytes that never change.
	ref abi.Ref
	// unread says that the bytes are still to be fetched.
	unread bool
	// byParts says that the messages in the fields of root are objects of their own, of
	// each of which those fields are fetched that are read.
	byParts bool
	// part is which field of another object's root this is, 0 if of none, and wanted which
	// of wantedFields are its own. wasRead says that it was read in the version before.
	part, wanted uint8
	wasRead      bool
	// looked is how many entries of its maps were asked for one by one.
	looked uint8
	// json says that it is JSON. Then there is a once.
	json bool
	// kept says that the bytes are never overwritten.
	kept bool
	// missing has a bit, 1<<n, for each field n of root that was not fetched.
	missing uint64
	once    *once
}

// An object takes two lines of the processor's cache, the first of which is root.
var _ [0]struct{} = [unsafe.Sizeof(object{}) - 2*unsafe.Sizeof(message{})]struct{}{}

// once is what only objects have that are read once: no other version of them comes, or
// one that has little in common with it.
type once struct {
	// walker is that of an object in JSON. It is done with one walk before another
	// begins.
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

// The room that there is for a Pod with two containers, and for smaller objects in
// proportion.
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

// serials is how many elements of lists have a serial number.
var serials uint64

// fixedVersion is the version of bytes that never change.
const fixedVersion = 1

// FromProto returns a view of the protobuf message in raw, which nobody may write
// to any more.
func FromProto(raw []byte, t *Type) View { return View{&fromBytes(raw, t).root, fixedVersion} }

// FromJSON returns a view of the JSON object in raw, which nobody may write to
// any more.
func FromJSON(raw []byte, t *Type) View {
	if v, ok := fromSlot(raw, t); ok {
		return v
	}
	return View{&newJSON(raw, t).root, fixedVersion}
}

// newJSON returns a new object of the JSON in raw.
func newJSON(raw []byte, t *Type) *object {
	o := fromBytes(raw, t)
	o.json = true
	// One allocation for the index and the fields, of which two numbers make one.
	n := json.IndexRoom(len(o.bytes))
	fields := make([]field, n/2+min(spareFields, len(o.bytes)/bytesPerField))
	o.once.index = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(fields))), n)
	o.once.fields = fields[n/2:]
	o.once.walker.Read(o.bytes, o.once.index)
	return o
}

func fromBytes(raw []byte, t *Type) *object {
	if len(raw) > math.MaxInt32 {
		raw = nil // More than the ABI can carry.
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

// FromRef returns a view of the object that the host knows by ref, whose bytes
// are fetched when a field is first read; at once, if what was in the memory before
// was read, since a plugin does the same with each Node. It uses the memory of old,
// which is empty or a view of the same type that FromRef returned for another ref,
// and which goes stale.
func FromRef(old View, ref abi.Ref, t *Type) View {
	return fromRef(old, ref, t, false)
}

// FromRefByParts is FromRef for an object whose fields are messages, such as a Pod or a
// Node: of each message those fields are fetched that are read, and single labels and
// annotations without the others.
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
		o.version = 1 // 0 is that of what was never read.
	}
	o.ref, o.unread = ref, true
	if o.byParts {
		for p := o.root.made; p != nil; p = p.next {
			c := (*message)(unsafe.Pointer(p)) // Nothing else is made of the root.
			part := c.object
			part.wasRead = c.key.version() == part.version
			part.version, part.ref, part.unread, part.missing, part.looked = o.version, ref, true, abi.AllFields, 0
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
