package view

import (
	"github.com/kubewasm/kubewasm/abi"
)

// metadataPart is the field of an object that is its metadata.
const metadataPart = 1

// maxLooked is how many entries of a part's maps are asked for one by one, in a version,
// before the part is fetched.
const maxLooked = 4

// identity are the fields of the metadata that say which object it is: name, uid and
// resourceVersion. They are fetched of those objects alone of which they are read, since a
// host that handed them over has to ask about each.
const identity = 1<<1 | 1<<5 | 1<<6

// wantedFields are those that were ever read of a part of objects of a type, but for
// identity: what a plugin reads of one Node it reads of the next, and no more is fetched.
// wantedOf says which they are. The first are all fields, for all types beyond maxWanted
// and for those with too many fields.
var (
	wantedFields = []uint64{abi.AllFields}
	wantedOf     = map[partOfType]uint8{}
)

type partOfType struct {
	object *Type
	part   uint32
}

const (
	// maxParts is how many parts an object can have, and maxWanted of how many kinds.
	maxParts, maxWanted = 1 << 8, 1 << 8
	// maxFields is how many fields of a part can be fetched one by one.
	maxFields = 64
)

// wantedOf returns which of wantedFields are those of a part, of the type t, of such an
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

// messageByPart is slowMessage for the root of an object that is read by parts.
func (o *object) messageByPart(version uint64, n uint32, t *Type) View {
	k := keyOf(madeMessage, 0, n)
	c := partOf[message](&o.root, k)
	if c == nil {
		p := &object{part: uint8(n), wanted: o.wantedOf(n, t), version: version, ref: o.ref, unread: true, missing: abi.AllFields}
		p.root = message{object: p, typ: t}
		c = &p.root
		c.key = k
		o.root.add(&c.part)
	}
	if p := c.object; p.wasRead {
		p.wasRead = false
		c.read(version)
	}
	return View{c, version}
}

// whole ends the reading by parts of an object of which something else is read than the
// messages in its fields.
func (o *object) whole() {
	o.byParts, o.root.made = false, nil
}

// fetchField gets a field of a part that was not fetched: with all that are wanted if
// nothing was fetched yet, and else behind what there is, which stays where it is.
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
	m.readFrom(at)
}

// entryByPart is lookup in the metadata of an object of which the map was not fetched, nil
// if it is better to fetch it.
func (m *message) entryByPart(version uint64, n uint32, key string) *answer {
	o := m.object
	if o.version != version {
		stale()
	}
	if o.looked == maxLooked {
		return nil
	}
	return m.fetchEntry(m.answerTo(version, n, key), version, n, key)
}

// fetchEntry asks the host for the answer to a key.
func (m *message) fetchEntry(a *answer, version uint64, n uint32, key string) *answer {
	o := m.object
	o.looked++
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

// entryBuffer is where the host writes an entry.
var entryBuffer = make([]byte, 256)
