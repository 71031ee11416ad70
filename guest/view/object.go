package view

import (
	"math"

	"github.com/kubewasm/kubewasm/abi"
)

// object is the message of an object, and the bytes that the messages in it lie
// in.
type object struct {
	root message
	// bytes are those of the object, in which all its messages lie.
	bytes []byte
	json  bool
	// kept says that the bytes are never overwritten.
	kept bool
	// unread says that the bytes are still to be fetched.
	unread bool
	// version, of 32 bits, counts the contents that the object has had; for bytes that never
	// change it is 1. It is not that of ref, since the object of another ref may
	// lie in the same memory.
	version uint64
	// ref is what the host knows the object by, 0 for bytes that never change.
	ref abi.Ref
}

// fixedVersion is the version of bytes that never change.
const fixedVersion = 1

// FromProto returns a view of the protobuf message in raw, which nobody may write
// to any more.
func FromProto(raw []byte, t *Type) View { return fromBytes(raw, t, false) }

// FromJSON returns a view of the JSON object in raw, which nobody may write to
// any more.
func FromJSON(raw []byte, t *Type) View { return fromBytes(raw, t, true) }

func fromBytes(raw []byte, t *Type, json bool) View {
	if len(raw) > math.MaxInt32 {
		raw = nil // More than the ABI can carry.
	}
	o := &object{bytes: raw[:len(raw):len(raw)], json: json, kept: true, version: fixedVersion}
	o.root = message{object: o, typ: t, end: uint32(len(raw))}
	return View{&o.root, fixedVersion}
}

// FromRef returns a view of the object that the host knows by ref, whose bytes
// are fetched when a field is first read. It uses the memory of old, which is
// empty or a view of the same type that FromRef returned for another ref, and
// which goes stale.
func FromRef(old View, ref abi.Ref, t *Type) View {
	m := old.m
	if m == nil {
		o := &object{}
		o.root = message{object: o, typ: t}
		m = &o.root
	} else if m.object.ref == ref {
		return View{m, m.object.version}
	}
	o := m.object
	if o.version++; o.version > math.MaxUint32 {
		o.version = 1 // 0 is that of what was never read.
	}
	o.ref, o.unread = ref, true
	return View{m, o.version}
}

// slack is by how much a buffer is larger than its first object, so that the
// next version with one more label still fits.
const slack = 64

// fetch gets the bytes from the host, into the memory of the version before.
//
//go:noinline
func (o *object) fetch() {
	o.unread = false
	buf := o.bytes[:cap(o.bytes)]
	n := hostObject(o.ref, buf)
	if uint64(n) > uint64(len(buf)) {
		buf = make([]byte, uint64(n)+slack)
		if again := hostObject(o.ref, buf); again != n {
			panic("kubewasm: host answered with an object of another length than before")
		}
	}
	o.bytes, o.root.end = buf[:n], n
}

// stale ends the use of a view whose object has changed.
func stale() {
	panic("kubewasm: a view was read after its object had changed: keep strings of an object, not views")
}
