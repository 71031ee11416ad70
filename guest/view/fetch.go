package view

import (
	"slices"

	"github.com/kubewasm/kubewasm/abi"
)

// metadataPart is the field of an object that is its metadata.
const metadataPart = 1

// maxLooked is the maximum number of labels and annotations of a version that are fetched one by
// one, before all of them are.
const maxLooked = 4

// identity are the fields of the metadata that distinguish objects: name, uid and
// resourceVersion. They are fetched only from objects whose plugin reads them: a host
// that passed them could not share the result between objects.
const identity = 1<<1 | 1<<5 | 1<<6

// wantedFields are the fields, except identity, that were ever read from a part of any
// object of a type: a plugin reads the same fields of each Node. They are fetched at
// once. wantedOf has the index of each part. Index 0 is all fields: for types beyond
// maxWanted and for those with more than maxFields.
var (
	wantedFields = []uint64{abi.AllFields}
	wantedOf     = map[partOfType]uint8{}
)

type partOfType struct {
	object *Type
	part   uint32
}

const (
	// maxParts is the maximum number of parts of an object, and maxWanted that of their kinds.
	maxParts, maxWanted = 1 << 8, 1 << 8
	// maxFields is the maximum number of fields of a part that can be fetched one by one.
	maxFields = 64
)

// wantedOf returns the index in wantedFields of a part, of the type t, of such an
// object.
func (o *object) wantedOf(part uint32, t *Type) uint8 {
	k := partOfType{o.root.typ, part}
	n, ok := wantedOf[k]
	if !ok && t.Numbers == nil && len(t.Names) <= maxFields && len(wantedFields) < maxWanted {
		n = uint8(len(wantedFields))
		wantedFields = append(wantedFields, 0)
		wantedOf[k] = n
	}
	return n
}

// slack is the minimum by which a buffer is larger than its first object, so that
// the next version with one more label still fits.
const slack = 32

// fetch gets the bytes of the object from the host; for a part, only the wanted
// fields.
func (o *object) fetch() {
	if o.byParts { // A field that is no message is read.
		o.byParts, o.root.made = false, nil
	}
	o.unread = false
	buf := o.bytes[:cap(o.bytes)]
	n := o.write(buf)
	if uint64(n) > uint64(len(buf)) {
		buf = slices.Grow([]byte(nil), int(n)+slack)
		buf = buf[:cap(buf)]
		if again := o.write(buf); again != n {
			panic("kubewasm: host answered with an object of another length than before")
		}
	}
	o.bytes, o.root.end = buf[:n], n
	if o.part != 0 {
		o.missing = abi.AllFields &^ wantedFields[o.wanted]
	}
}

// write has the host write the bytes into buf, by the buffer-limit rule.
func (o *object) write(buf []byte) uint32 {
	switch {
	case o.part == 0:
		return hostObject(o.ref, buf)
	case wantedFields[o.wanted] == 0:
		return 0
	}
	return hostPart(o.ref, uint32(o.part), wantedFields[o.wanted], buf)
}

// partOf returns the message in field n of an object that is read by parts. The message is a
// separate object, whose fields are fetched when one of them is read.
func (o *object) partOf(version uint64, n uint32, t *Type) View {
	k := keyOf(madeMessage, 0, n)
	c := reusable[message](&o.root, k)
	if c == nil {
		p := &object{part: uint8(n), wanted: o.wantedOf(n, t), version: version, ref: o.ref, unread: true, missing: abi.AllFields}
		p.root = message{object: p, typ: t}
		c = &p.root
		if c.key = k; p.wanted != 0 {
			c.fields = &noFields[0]
		}
		o.root.add(&c.cached)
	}
	if c.object.wanted != 0 {
		c.key = c.key.in(version)
	}
	return View{c, version}
}

// fetchField gets a field of a part that was not fetched: together with all wanted fields if none
// was fetched yet, and otherwise alone, after the bytes of the others, which stay where they are.
func (m *message) fetchField(version uint64, n uint32) {
	o := m.object
	if field := uint64(1) << n; o.part != metadataPart || field&identity == 0 {
		wantedFields[o.wanted] |= field
	}
	if o.unread {
		m.read(version)
		if !m.lacks(n) {
			return
		}
	}
	at := len(o.bytes)
	buf := o.bytes[at:cap(o.bytes)]
	size := hostPart(o.ref, uint32(o.part), 1<<n, buf)
	if uint64(size) > uint64(len(buf)) {
		o.bytes = append(make([]byte, 0, at+int(size)+slack), o.bytes...)
		buf = o.bytes[at:cap(o.bytes)]
		if again := hostPart(o.ref, uint32(o.part), 1<<n, buf); again != size {
			panic("kubewasm: host answered with a field of another length than before")
		}
	}
	o.bytes = o.bytes[:at+int(size)]
	m.end = uint32(len(o.bytes))
	o.missing &^= 1 << n
}

// fetchEntry is lookup for a map in the metadata that was not fetched: it fetches one entry. It
// returns nil if it is better to fetch all entries at once.
func (m *message) fetchEntry(version uint64, n uint32, key string) *answer {
	o := m.object
	if o.version != version {
		stale()
	}
	if o.looked == maxLooked {
		return nil
	}
	o.looked++
	a := m.answerTo(version, n, key)
	a.version = uint32(version)
	size := hostEntry(o.ref, n, key, entryBuffer)
	if a.found = size != abi.NoEntry; !a.found {
		a.Value = ""
		return a
	}
	if uint64(size) > uint64(len(entryBuffer)) {
		entryBuffer = make([]byte, size)
		hostEntry(o.ref, n, key, entryBuffer)
	}
	a.Value = m.keep(entryBuffer[:size], a.Value)
	return a
}

// entryBuffer is the buffer for an entry.
var entryBuffer = make([]byte, 256)
