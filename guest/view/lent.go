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
	lent   [2]Loan
	// objects are those whose memory is used again, in this loan or a later one.
	objects []*object
}

// maxObjects is how many objects keep their memory: those of a request, as two types.
const maxObjects = 4

// Loan is JSON of which views are done with when [Return] is called. Their strings may
// be kept.
type Loan struct {
	JSON []byte
	// Again says that its memory is then used again, and that of what was read of it:
	// the views go stale.
	Again bool
	// Index writes the index of JSON, as json.Index does, and returns how many numbers
	// it has; 0 if there is none, or no room. nil means that nobody knows it.
	Index func(room []uint64) int
}

// Lend lends JSON. It is for the SDK, and for the objects of a request, of which there
// are two.
func Lend(l Loan) {
	if loan.number == 0 {
		loan.number = 1
	}
	if loan.lent[0].JSON == nil {
		loan.lent[0] = l
	} else {
		loan.lent[1] = l
	}
}

// Return takes back what was lent.
func Return() {
	loan.lent = [2]Loan{}
	loan.number++
}

// lentAs returns the loan that raw is a part of, or the whole; nil if it was not lent.
func lentAs(raw []byte) (l *Loan, whole bool) {
	for i := range loan.lent {
		l := &loan.lent[i]
		at := uintptr(unsafe.Pointer(unsafe.SliceData(raw))) - uintptr(unsafe.Pointer(unsafe.SliceData(l.JSON)))
		if at < uintptr(len(l.JSON)) {
			return l, len(raw) == len(l.JSON)
		}
	}
	return nil, false
}

// readIndexed has the walker of the object read its bytes.
func (o *object) readIndexed(l *Loan) {
	w, index := &o.once.walker, o.once.index
	if l == nil || l.Index == nil || len(index) == 0 {
		w.Read(o.bytes, index)
		return
	}
	w.ReadIndexed(o.bytes, index[:l.Index(index)])
}

// fromLent is FromJSON for what was lent.
func fromLent(l *Loan, t *Type) View {
	raw := l.JSON
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
		o = newJSON(raw, t, l)
		o.kept = false
		if len(loan.objects) < maxObjects {
			loan.objects = append(loan.objects, o)
		}
	} else {
		o.again(l)
	}
	o.once.loan = loan.number
	return View{&o.root, o.version}
}

// again makes o an object with other bytes.
func (o *object) again(l *Loan) {
	raw := l.JSON
	if o.version++; o.version > math.MaxUint32 {
		o.version = fixedVersion
	}
	o.bytes, o.root.end = raw[:len(raw):len(raw)], uint32(len(raw))
	if n := json.IndexRoom(len(raw)); n > len(o.once.index) {
		o.once.index = make([]uint64, n)
	}
	o.readIndexed(l)
}
