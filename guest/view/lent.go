package view

import (
	"math"
	"slices"
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

// Turns lends JSON one after the other: the objects of a list. Views of one are done with
// when the next comes, which uses the memory of what was read of it: they go stale. The
// JSON is never overwritten, so their strings are parts of it. It is for the SDK.
type Turns struct {
	json   []byte
	object *object
}

// turns are those in use: of lists that are gone through, one within the other.
var turns []*Turns

// Next lends raw, which is not written to any more.
func (t *Turns) Next(raw []byte) {
	if !slices.Contains(turns, t) {
		turns = append(turns, t)
	}
	t.json = raw
}

// End takes back what was lent.
func (t *Turns) End() {
	turns = slices.DeleteFunc(turns, func(o *Turns) bool { return o == t })
}

// turn returns a view of what is lent by turns; ok is false if it is not, or was viewed
// already.
func turn(raw []byte, typ *Type) (v View, ok bool) {
	for _, t := range turns {
		if len(t.json) == 0 || unsafe.SliceData(t.json) != unsafe.SliceData(raw) || len(t.json) != len(raw) {
			continue
		}
		t.json = nil
		o := t.object
		if o == nil || o.root.typ != typ {
			o = newJSON(raw, typ, nil)
			t.object = o
		} else {
			o.again(&Loan{JSON: raw})
		}
		return View{&o.root, o.version}, true
	}
	return View{}, false
}

// Return takes back what was lent.
func Return() {
	turns = turns[:0]
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
