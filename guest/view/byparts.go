package view

import (
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
)

// metadataPart is the field of an object that is its metadata.
const metadataPart = 1

// maxLooked is how many entries of a part's maps are asked for one by one, in a version,
// before the part is fetched.
const maxLooked = 4

// messageByPart is slowMessage for the root of an object that is read by parts.
func (o *object) messageByPart(version uint64, n uint32, t *Type) View {
	k := keyOf(madeMessage, 0, n)
	c := partOf[message](&o.root, k)
	if c == nil {
		p := &object{part: n, version: version, ref: o.ref, unread: true}
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

// entryByPart is lookup in the metadata of an object if it was not fetched, nil if it is
// better to fetch it.
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

// entryAgain is entryByPart for the key that the first look-up of the version before was
// for, nil if it is another one: the usual way of a plugin that looks up the same label
// of each Node.
func (m *message) entryAgain(at partKey, key string) *answer {
	o := m.object
	if o.version != at.version() || o.looked == maxLooked {
		return nil
	}
	l := partOf[answers](m, at)
	if l == nil {
		return nil
	}
	a := &l.first
	if uint64(a.version) == at.version() || len(a.Key) != len(key) || unsafe.StringData(a.Key) != unsafe.StringData(key) {
		return nil
	}
	l.key = at
	return m.fetchEntry(a, at.version(), at.field(), key)
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
