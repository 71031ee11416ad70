package view

import (
	"strings"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// metadataPart is the field of an object that is its metadata.
const metadataPart = 1

// maxLooked is how many entries of a part's maps are asked for one by one, in a version,
// before the part is fetched.
const maxLooked = 4

// messageByPart is slowMessage for the root of an object that is read by parts.
func (o *object) messageByPart(version uint64, n uint32, t *Type) View {
	k := keyOf(madeMessage, 0, n)
	for p := o.root.made; p != nil; p = p.next {
		if p.key.sameField(k) {
			c := (*message)(unsafe.Pointer(p))
			if c.object.wasRead {
				c.object.wasRead = false
				c.read(version)
			}
			return View{c, version}
		}
	}
	p := &object{part: n, version: version, ref: o.ref, unread: true}
	p.root = message{object: p, typ: t}
	p.root.key = k
	o.root.add(&p.root.part)
	return View{&p.root, version}
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
	for p := m.made; p != nil; p = p.next {
		if !p.key.sameField(at) {
			continue
		}
		a := &(*answers)(unsafe.Pointer(p)).first
		if uint64(a.version) == at.version() || len(a.Key) != len(key) || unsafe.StringData(a.Key) != unsafe.StringData(key) {
			break
		}
		p.key = at
		return m.fetchEntry(a, at.version(), at.field(), key)
	}
	return nil
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
	if value := inPlace(entryBuffer[:size]); !wire.Equal(value, a.Value) {
		a.Value = strings.Clone(value)
	}
	return a
}

// entryBuffer is where the host writes an entry.
var entryBuffer = make([]byte, 256)
