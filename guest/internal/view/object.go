package view

import (
	"math"

	"github.com/kubewasm/kubewasm/abi"
)

// Object is the message of an object, and the bytes that the messages in it lie
// in.
type Object struct {
	Message
	json bool
	// version is that of the bytes; for bytes that never change it is 1.
	version uint32
	// ref is what the host knows the object by, 0 for bytes that never change.
	ref abi.Ref
	// unread reads the object's own level; it is nil once it was read.
	unread, read func()
}

// fixedVersion is the version of bytes that never change.
const fixedVersion = 1

// Init prepares an object. read reads its own level, and says by [Message.Set]
// where the messages lie that are part of the object's memory.
func (o *Object) Init(read func()) {
	o.object, o.read = o, read
}

// SetBytes makes o the object in raw, which nobody may write to any more. It
// returns the version for views of it.
func (o *Object) SetBytes(raw []byte, json bool) (version uint32) {
	if len(raw) > math.MaxInt32 {
		raw = nil // More than the ABI can carry.
	}
	o.raw, o.kept, o.json = raw, true, json
	o.version, o.unread = fixedVersion, o.read
	return o.version
}

// SetRef makes o the object that the host knows by ref, whose bytes are fetched
// when a field is first read. Views of what o was before go stale. It returns
// the version for views of it.
func (o *Object) SetRef(ref abi.Ref) (version uint32) {
	o.version, o.ref, o.unread = ref.Version(), ref, o.read
	return o.version
}

// start makes the object's own level known, once, and checks that version is
// its version.
func (o *Object) start(version uint32) {
	if o.version != version {
		stale()
	}
	if read := o.unread; read != nil {
		o.unread = nil
		if o.ref != 0 {
			o.fetch()
		}
		read()
	}
}

// slack is by how much a buffer is larger than its first object, so that the
// next version with one more label still fits.
const slack = 256

// fetch gets the bytes from the host, into the memory of the version before.
func (o *Object) fetch() {
	buf := o.raw[:cap(o.raw)]
	n := hostObject(o.ref, buf)
	if uint64(n) > uint64(len(buf)) {
		buf = make([]byte, uint64(n)+slack)
		if again := hostObject(o.ref, buf); again != n {
			panic("kubewasm: host answered with an object of another length than before")
		}
	}
	o.raw = buf[:n]
}

// stale ends the use of a view whose object has changed.
func stale() {
	panic("kubewasm: a view was read after its object had changed: keep strings of an object, not views")
}
