package view

import "github.com/kubewasm/kubewasm/abi"

// objects are the views of objects that came by ref, by slot. The host uses slots again, so
// there are as many as objects in use.
var (
	objects      []View
	objectsEpoch uint64
)

// ObjectKind is the way of reading an object to which a message refers.
type ObjectKind uint8

// The kinds of objects.
const (
	// Parts is an object that consists of metadata, spec and status: fields of these are
	// fetched when they are read.
	Parts ObjectKind = iota
	// Whole is any other object of the Kubernetes API.
	Whole
	// JSON is a custom resource.
	JSON
)

// ByRef returns the view of the object with a ref, an empty one for ref 0. It is for the SDK.
func ByRef(ref abi.Ref, t *Type, kind ObjectKind) View {
	if ref == 0 {
		return View{}
	}
	if epoch := refEpoch(); epoch != objectsEpoch {
		objects, objectsEpoch = nil, epoch
	}
	slot := ref.Slot()
	for uint64(slot) >= uint64(len(objects)) {
		objects = append(objects, View{})
	}
	old := &objects[slot]
	if m := old.m; m != nil {
		if m.object.ref == ref && m.typ == t {
			return View{m, m.object.version}
		}
		if m.typ != t {
			*old = View{} // The slot was that of another kind of object.
		}
	}
	switch kind {
	case Parts:
		*old = FromRefByParts(*old, ref, t)
	case Whole:
		*old = FromRef(*old, ref, t)
	default:
		*old = jsonFromRef(ref, t)
	}
	return *old
}

// jsonFromRef returns a view of a custom resource. Its bytes are never overwritten.
func jsonFromRef(ref abi.Ref, t *Type) View {
	var small [1]byte
	raw := make([]byte, hostObject(ref, small[:0]))
	if n := hostObject(ref, raw); int(n) != len(raw) {
		panic("kubewasm: host answered with an object of another length than before")
	}
	v := FromJSON(raw, t)
	v.m.object.ref = ref
	return v
}

// RefOf returns the ref by which the host knows the object of a view, 0 if it is a part of an
// object or came in a different way.
func RefOf(v View) abi.Ref {
	m := v.m
	if m == nil || m != &m.object.root || m.object.part != 0 {
		return 0
	}
	if m.object.version != v.version {
		stale()
	}
	return m.object.ref
}
