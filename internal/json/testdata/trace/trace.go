// Package trace writes down what package json reads, for a comparison of what it
// reads natively with what it reads in WebAssembly.
package trace

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Append appends all that package json finds in doc: the members and elements at
// every level, and of all values where they lie and what they are. A Walker finds
// the same as walks from Object and Array do, with any index.
func Append(out, doc []byte, by Reader) []byte {
	t := tracer{doc: doc, out: append(out, 'V', bit(json.Valid(doc)))}
	index := make([]uint64, json.IndexRoom(len(doc)))
	switch by {
	case Walker:
		t.walker = new(json.Walker)
		t.walker.Read(doc, index)
	case Indexed:
		t.walker = new(json.Walker)
		_, n := json.ValidIndex(doc, index, 0)
		t.walker.ReadIndexed(doc, index[:n])
	case Misled:
		// Places of another document, which may be those of this one by chance.
		t.walker = new(json.Walker)
		random := rand.New(rand.NewPCG(uint64(len(doc)), 1))
		for i := range index {
			index[i] = random.Uint64N(uint64(len(doc)+2))<<32 | uint64(i*random.IntN(3))
		}
		t.walker.ReadIndexed(doc, index)
		t.misled()
		return out
	}
	t.object(0, len(doc), 0)
	t.array(0, len(doc), 0)
	return t.out
}

// Reader is one of the ways in which a document is read.
type Reader uint32

// The readers.
const (
	Walks   Reader = iota // Object and Array.
	Walker                // A Walker with its own index.
	Indexed               // A Walker with the index of ValidIndex, if the document is valid.
	Misled                // A Walker with an index that is wrong. Its trace is empty.
)

// misled walks over everything, which must end.
func (t *tracer) misled() {
	var walk func(from, to, depth int)
	walk = func(from, to, depth int) {
		for _, begin := range []func(start, end int){t.walker.Object, t.walker.Array} {
			begin(from, to)
			var values [][2]int
			last := from
			for t.walker.Next() {
				start, end := t.walker.Span()
				if start < last || end <= start || end > to {
					panic("a value lies outside of the one around it")
				}
				values = append(values, [2]int{start, end})
				last = end
			}
			for _, v := range values[:min(len(values), 20)] {
				if depth < 5 {
					walk(v[0], v[1], depth+1)
				}
			}
		}
	}
	walk(0, len(t.doc), 0)
}

type tracer struct {
	doc, out []byte
	walker   *json.Walker
}

// maxDepth and maxItems bound a trace: nesting makes it grow with its square.
const (
	maxDepth = 20
	maxItems = 200
)

// names are those that a member's name is looked for in: of all lengths around
// those of eight bytes, some alike but for their first, and some but for their last
// byte.
var names = []string{
	"", "a", "b", "kind", "name", "aame", "namf", "labels", "ownerName", "7 bytes", "8 bytes.", "8 bytes,", "9 bytes..", "spec",
	"sixteen bytes...", "sixteen bytes..,", "_ixteen bytes...", "seventeen bytes..", "seventeen bytes,.", "metadata", "status",
}

// item is a member or an element that was found.
type item struct {
	key        string
	start, end int
}

func (t *tracer) object(from, to, depth int) {
	var items []item
	malformed := false
	if w := t.walker; w != nil {
		var want, got [32]json.Field
		w.Object(from, to)
		for n := 0; w.Next() && n < maxItems; n++ {
			start, end := w.Span()
			items = append(items, item{w.Key(), start, end})
			if string(w.Value()) != string(t.doc[start:end]) {
				panic("a value is not where it lies")
			}
			if i := slices.Index(names[1:], w.Key()) + 1; i != 0 {
				want[i] = json.Field{}
				if !w.Value().IsNull() {
					want[i] = json.Field{Value: uint64(end)<<32 | uint64(start), Version: 7}
				}
			}
		}
		malformed = w.Malformed()
		if len(items) < maxItems {
			w.ReadObject(from, to, names, got[:], 7)
			if want != got {
				panic("ReadObject reads something else than Next")
			}
			last := map[string]item{}
			for _, i := range items {
				last[i.key] = i
			}
			for key, i := range last {
				if v, ok := w.Lookup(from, to, key); !ok || string(v) != string(t.doc[i.start:i.end]) {
					panic("Lookup finds something else than Next")
				}
			}
			if _, ok := w.Lookup(from, to, "no such name"); ok {
				panic("Lookup finds what is not there")
			}
		}
	} else {
		m := json.Object(t.doc[from:to])
		for n := 0; m.Next() && n < maxItems; n++ {
			start, end := t.span(m.Value())
			items = append(items, item{m.Key(), start, end})
		}
		malformed = m.Malformed()
	}
	t.items('{', items, malformed, depth)
}

func (t *tracer) array(from, to, depth int) {
	var items []item
	malformed := false
	if w := t.walker; w != nil {
		w.Array(from, to)
		for n := 0; w.Next() && n < maxItems; n++ {
			start, end := w.Span()
			items = append(items, item{"", start, end})
		}
		malformed = w.Malformed()
	} else {
		e := json.Array(t.doc[from:to])
		for n := 0; e.Next() && n < maxItems; n++ {
			start, end := t.span(e.Value())
			items = append(items, item{"", start, end})
		}
		malformed = e.Malformed()
	}
	t.items('[', items, malformed, depth)
}

// span returns where v lies in the document.
func (t *tracer) span(v json.Value) (start, end int) {
	start = int(uintptr(unsafe.Pointer(unsafe.SliceData(v))) - uintptr(unsafe.Pointer(unsafe.SliceData(t.doc))))
	return start, start + len(v)
}

func (t *tracer) items(kind byte, items []item, malformed bool, depth int) {
	t.out = append(t.out, kind, bit(malformed))
	for _, i := range items {
		v := json.Value(t.doc[i.start:i.end])
		t.out = binary.AppendUvarint(append(t.out, 'K'), uint64(len(i.key)))
		t.out = append(append(t.out, i.key...), byte(v.Kind()))
		t.out = binary.AppendUvarint(t.out, uint64(i.start))
		t.out = binary.AppendUvarint(t.out, uint64(len(v)))
		text, ok := v.Text()
		t.out = append(append(t.out, bit(ok)), text...)
		if depth == maxDepth {
			continue
		}
		switch v.Kind() {
		case json.KindObject:
			t.object(i.start, i.end, depth+1)
		case json.KindArray:
			t.array(i.start, i.end, depth+1)
		}
	}
}

func bit(b bool) byte {
	if b {
		return '1'
	}
	return '0'
}
