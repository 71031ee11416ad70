package jsonpatch

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Diff returns a patch that turns from into to, nil if they are equal. Both must be valid JSON.
//
// Equal members and elements are left alone. In an array, the part between a common beginning and a
// common end is compared element by element.
//
// The patch has at most [MaxOperations] and len(to) + [MaxExcess] bytes. If that does not suffice,
// or if comparing would take too long, it replaces the members of the root as wholes, and at last
// the root.
func Diff(from, to []byte) []byte {
	patch, _ := Pay(nil).Diff(from, to)
	return patch
}

// Diff is the function Diff, which pay may end.
func (pay Pay) Diff(from, to []byte) ([]byte, error) {
	d := differ{limit: len(to) + MaxExcess, work: work{left: compareWork(from, to), pay: pay}}
	d.diff(from, to)
	if errors.Is(d.err, errWork) || errors.Is(d.err, errLong) {
		d.wholes, d.err, d.left = true, nil, unlimited
		d.patch, d.path, d.operations = d.patch[:0], d.path[:0], 0
		d.diff(from, to)
	}
	if errors.Is(d.err, errLong) {
		d.err = nil
		d.patch = AppendOperation(d.patch[:0], "replace", to)
	}
	if d.settle(); d.err != nil || len(d.patch) == 0 {
		return nil, d.err
	}
	return append(d.patch, ']'), nil
}

// MaxExcess is the maximum length of a patch of Diff beyond that of the resulting document.
const MaxExcess = 64 << 10

// compareWork is the maximum work to compare two documents: ordinary ones need some ten times their
// size, as every level of a document is read once more.
func compareWork(a, b []byte) int { return 32*(len(a)+len(b)) + 1<<20 }

// errLong is the error of a patch that is too long.
var errLong = errors.New("the patch is too long")

type differ struct {
	work
	patch []byte
	path  []string
	// limit is the maximum length of the patch, and operations the number of its operations.
	limit, operations int
	// wholes is set if members of the root are not expanded.
	wholes bool
}

// AppendOperation appends an operation to a patch, which is an array without its end:
// AppendOperation(nil, …) begins one, and ']' closes it. value is nil for
// "remove".
func AppendOperation(patch []byte, op string, value []byte, path ...string) []byte {
	if len(patch) == 0 {
		patch = append(patch, '[')
	} else {
		patch = append(patch, ',')
	}
	patch = append(patch, `{"op":"`...)
	patch = append(patch, op...)
	patch = append(patch, `","path":`...)
	patch = json.AppendString(patch, AppendPointer(nil, path...))
	if value != nil {
		patch = append(patch, `,"value":`...)
		patch = append(patch, value...)
	}
	return append(patch, '}')
}

// operationBytes is the maximum size of an operation beside its path and its value.
const operationBytes = 40

func (d *differ) add(op string, value []byte, path ...string) {
	n := len(value) + operationBytes
	for _, token := range path {
		n += len(token) + 1
	}
	// Escaped, a path is longer, so the patch is checked once more.
	if d.operations++; d.operations > MaxOperations || len(d.patch)+n > d.limit || !d.do(n) {
		d.fail(errLong)
		return
	}
	if d.patch = AppendOperation(d.patch, op, value, path...); len(d.patch) >= d.limit {
		d.fail(errLong)
	}
}

// fail ends the comparison with err, unless it has ended.
func (d *differ) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// at runs f with token at the end of the path.
func (d *differ) at(token string, f func()) {
	d.path = append(d.path, token)
	f()
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) diff(from, to json.Value) {
	if !d.do(min(len(from), len(to))) || bytes.Equal(from, to) {
		return
	}
	kind := from.Kind()
	switch {
	case d.wholes && len(d.path) > 0:
		d.add("replace", to, d.path...)
	case kind == to.Kind() && kind == json.KindObject:
		d.objects(from, to)
	case kind == to.Kind() && kind == json.KindArray && !d.wholes:
		d.arrays(from, to)
	case kind == to.Kind() && kind == json.KindString && from.String() == to.String():
	default:
		d.add("replace", to, d.path...)
	}
}

func (d *differ) objects(from, to json.Value) {
	a, b := d.members(from), d.members(to)
	for _, m := range a.list {
		if d.err != nil {
			return
		}
		if value := b.get(m.key); value == nil {
			d.at(m.key, func() { d.add("remove", nil, d.path...) })
		} else {
			d.at(m.key, func() { d.diff(m.value, value) })
		}
	}
	for _, m := range b.list {
		if d.err != nil {
			return
		}
		if a.get(m.key) == nil {
			d.at(m.key, func() { d.add("add", m.value, d.path...) })
		}
	}
}

func (d *differ) arrays(from, to json.Value) {
	a, b := d.elements(from), d.elements(to)
	start, endA, endB := 0, a.len(), b.len()
	if endA != endB { // Otherwise they are compared one by one, once.
		for start < endA && start < endB && d.equal(a.at(start), b.at(start)) {
			start++
		}
		for endA > start && endB > start && d.equal(a.at(endA-1), b.at(endB-1)) {
			endA--
			endB--
		}
	}
	common := min(endA, endB)
	for i := start; i < common && d.err == nil; i++ {
		d.at(strconv.Itoa(i), func() { d.diff(a.at(i), b.at(i)) })
	}
	for i := endA - 1; i >= common && d.err == nil; i-- {
		d.at(strconv.Itoa(i), func() { d.add("remove", nil, d.path...) })
	}
	for i := common; i < endB && d.err == nil; i++ {
		d.at(strconv.Itoa(i), func() { d.add("add", b.at(i), d.path...) })
	}
}

// object is an expanded object.
type object struct {
	list  []keyed
	index map[string]int
}

type keyed struct {
	key   string
	value json.Value
}

// members expands an object. It has no members if that is too much work.
func (w *work) members(raw json.Value) object {
	var o object
	if !w.do(len(raw)) {
		return o
	}
	for m := json.Object(raw); m.Next(); {
		if i := o.find(m.Key()); i >= 0 {
			o.list[i].value = m.Value() // The last one counts.
			continue
		}
		o.list = append(o.list, keyed{m.Key(), m.Value()})
		if o.index != nil {
			o.index[m.Key()] = len(o.list) - 1
		} else if len(o.list) > indexFrom {
			o.index = make(map[string]int, 2*len(o.list))
			for i, k := range o.list {
				o.index[k.key] = i
			}
		}
	}
	return o
}

func (o *object) find(key string) int {
	if o.index != nil {
		i, ok := o.index[key]
		if !ok {
			return -1
		}
		return i
	}
	for i := range o.list {
		if o.list[i].key == key {
			return i
		}
	}
	return -1
}

func (o *object) get(key string) json.Value {
	if i := o.find(key); i >= 0 {
		return o.list[i].value
	}
	return nil
}

// array is an expanded array. An element may be as short as two bytes, so its record is short, too.
type array struct {
	raw   json.Value
	spans [][2]uint32 // From where up to where an element lies in raw.
}

func (a *array) len() int { return len(a.spans) }

func (a *array) at(i int) json.Value {
	start, end := a.spans[i][0], a.spans[i][1]
	return a.raw[start:end:end]
}

// elements expands an array. It has no elements if that is too much work.
func (w *work) elements(raw json.Value) array {
	if !w.do(len(raw)) {
		return array{}
	}
	a := array{raw: raw}
	for e := json.Array(raw); e.Next(); {
		start, end := e.Span()
		a.spans = append(a.spans, [2]uint32{uint32(start), uint32(end)})
	}
	return a
}

// Equal reports whether two valid JSON values are the same by RFC 6902, section 4.6: strings by
// their characters, numbers by their value, objects regardless of the order of their members.
func Equal(a, b json.Value) bool {
	w := work{left: unlimited}
	return w.equal(a, b)
}

// Equal is the function Equal, which pay may end. Values for which it would take too
// long are not equal.
func (pay Pay) Equal(a, b json.Value) (bool, error) {
	w := work{left: compareWork(a, b), pay: pay}
	equal := w.equal(a, b)
	if w.settle(); w.err != nil && !errors.Is(w.err, errWork) {
		return false, w.err
	}
	return equal, nil
}

// equal is Equal. Two values for which there is not enough work left are not equal.
func (w *work) equal(a, b json.Value) bool {
	if !w.do(min(len(a), len(b))) {
		return false
	}
	if bytes.Equal(a, b) {
		return true
	}
	kind := a.Kind()
	if kind != b.Kind() {
		return false
	}
	switch kind {
	case json.KindString:
		return a.String() == b.String()
	case json.KindNumber:
		return equalNumbers(a, b)
	case json.KindArray:
		w.do(len(a) + len(b))
		x, y := json.Array(a), json.Array(b)
		for {
			more := x.Next()
			if more != y.Next() {
				return false
			}
			if !more {
				return w.err == nil
			}
			if !w.equal(x.Value(), y.Value()) {
				return false
			}
		}
	case json.KindObject:
		x, y := w.members(a), w.members(b)
		if len(x.list) != len(y.list) {
			return false
		}
		for _, m := range x.list {
			if value := y.get(m.key); value == nil || !w.equal(m.value, value) {
				return false
			}
		}
		return w.err == nil
	case json.KindBool:
		x, _ := a.Bool()
		y, _ := b.Bool()
		return x == y
	}
	return true // Null.
}

// equalNumbers compares integers exactly, and anything else as the nearest
// float64.
func equalNumbers(a, b json.Value) bool {
	x, ok1 := a.Int64()
	y, ok2 := b.Int64()
	if ok1 && ok2 {
		return x == y
	}
	f, ok1 := a.Float64()
	g, ok2 := b.Float64()
	return ok1 && ok2 && f == g
}
