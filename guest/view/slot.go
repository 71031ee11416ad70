package view

import (
	"math"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Slot is the memory of views of JSON objects that come one after another: the items of a list, or
// the objects of requests. The view of an object uses the memory of the previous view, which goes
// stale. It is for the SDK.
type Slot struct {
	json []byte
	// index returns the index of json that the host has made.
	index func() []byte
	// object is that of the last view, whose bytes are those of json or of an earlier one.
	object *object
}

// slots are those that hold an object.
var slots []*Slot

// Put makes raw the object of the slot. raw is never written to, so strings of its
// views share its memory and stay valid. index is nil, or returns the places of arrays and objects
// of raw as the host gives them (object_index of kubewasm.admission.v1.Request), or nothing. It is
// called for the first view, and its bytes must not be written to.
func (s *Slot) Put(raw []byte, index func() []byte) {
	if !slices.Contains(slots, s) {
		slots = append(slots, s)
	}
	s.json, s.index = raw, index
}

// Close ends the use of the slot until the next Put.
func (s *Slot) Close() { slots = slices.DeleteFunc(slots, func(o *Slot) bool { return o == s }) }

// CloseSlots closes all slots, at the end of a call.
func CloseSlots() {
	clear(slots)
	slots = slots[:0]
}

// fromSlot returns the view of the object in a slot; ok is false if raw is in none.
func fromSlot(raw []byte, t *Type) (v View, ok bool) {
	for _, s := range slots {
		if !same(s.json, raw) {
			continue
		}
		switch o := s.object; {
		case o == nil || o.root.typ != t:
			s.object = newJSON(raw, t, s.places())
		case !same(o.bytes, raw):
			o.reset(raw, s.places())
		}
		return View{&s.object.root, s.object.version}, true
	}
	return View{}, false
}

// same reports whether a and b are the same memory.
func same(a, b []byte) bool {
	return len(a) == len(b) && len(a) != 0 && unsafe.SliceData(a) == unsafe.SliceData(b)
}

// places returns the index of the object in the slot, nil if there is none.
func (s *Slot) places() []uint64 {
	if s.index == nil {
		return nil
	}
	b := s.index()
	// A number may lie at any address in WebAssembly.
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

// reset makes raw the bytes of o. places are its index, if there are any.
func (o *object) reset(raw []byte, places []uint64) {
	if o.version++; o.version > math.MaxUint32 {
		o.version = fixedVersion
	}
	o.bytes, o.root.end = raw[:len(raw):len(raw)], uint32(len(raw))
	if len(places) != 0 {
		o.once.walker.ReadIndexed(o.bytes, places)
		return
	}
	if n := json.IndexRoom(len(raw)); n > len(o.once.index) {
		o.once.index = make([]uint64, n)
	}
	o.once.walker.Read(o.bytes, o.once.index)
}
