package view

import (
	"math"
	"unsafe"

	"github.com/kubewasm/kubewasm/internal/json"
)

// loan is what is lent. There is one for all: a guest is asked one thing at a time.
var loan struct {
	// number is that of the loan. That of what was never lent is 0.
	number uint64
	bytes  [2]*byte
	// objects are those whose memory is used again, in this loan or a later one.
	objects []*object
}

// maxObjects is how many objects keep their memory: those of a request, as two types.
const maxObjects = 4

// Lend says that views of the JSON in raw are done with when [Return] is called: the
// memory of what was read of it is then used again, and the views go stale. raw
// itself is not written to, and strings may be kept.
//
// It is for the SDK, and for the objects of a request, of which there are two.
func Lend(raw []byte) {
	if loan.number == 0 {
		loan.number = 1
	}
	if loan.bytes[0] == nil {
		loan.bytes[0] = unsafe.SliceData(raw)
	} else {
		loan.bytes[1] = unsafe.SliceData(raw)
	}
}

// Return takes back what was lent.
func Return() {
	loan.bytes = [2]*byte{}
	loan.number++
}

func isLent(raw []byte) bool {
	p := unsafe.SliceData(raw)
	return p != nil && (p == loan.bytes[0] || p == loan.bytes[1])
}

// fromLent is FromJSON for what was lent.
func fromLent(raw []byte, t *Type) View {
	var o *object
	for _, used := range loan.objects {
		switch {
		case used.root.typ != t:
		case used.once.loan != loan.number:
			o = used
		case unsafe.SliceData(used.bytes) == unsafe.SliceData(raw) && len(used.bytes) == len(raw):
			return View{&used.root, used.version}
		}
	}
	if o == nil {
		o = newJSON(raw, t)
		if len(loan.objects) < maxObjects {
			loan.objects = append(loan.objects, o)
		}
	} else {
		o.again(raw)
	}
	o.once.loan = loan.number
	return View{&o.root, o.version}
}

// again makes o an object with other bytes.
func (o *object) again(raw []byte) {
	if o.version++; o.version > math.MaxUint32 {
		o.version = fixedVersion
	}
	o.bytes, o.root.end = raw[:len(raw):len(raw)], uint32(len(raw))
	if n := json.IndexRoom(len(raw)); n > len(o.once.index) {
		o.once.index = make([]uint64, n)
	}
	o.once.walker.Read(o.bytes, o.once.index)
}
