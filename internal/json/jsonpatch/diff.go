package jsonpatch

import (
	"bytes"
	"strconv"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Diff returns a patch that makes to of from, nil if they are equal. Both must be
// valid JSON.
//
// Members and elements that are equal are left alone; of an array what differs
// lies between a common beginning and a common end, and is compared element by
// element.
func Diff(from, to []byte) []byte {
	d := differ{}
	d.diff(from, to)
	if len(d.patch) == 0 {
		return nil
	}
	return append(d.patch, ']')
}

type differ struct {
	patch []byte
	path  []string
}

// Operation appends an operation to a patch, which is an array without its end:
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

func (d *differ) add(op string, value []byte, path ...string) {
	d.patch = AppendOperation(d.patch, op, value, path...)
}

// at runs f with token at the end of the path.
func (d *differ) at(token string, f func()) {
	d.path = append(d.path, token)
	f()
	d.path = d.path[:len(d.path)-1]
}

func (d *differ) diff(from, to json.Value) {
	if bytes.Equal(from, to) {
		return
	}
	kind := from.Kind()
	switch {
	case kind == to.Kind() && kind == json.KindObject:
		d.objects(from, to)
	case kind == to.Kind() && kind == json.KindArray:
		d.arrays(from, to)
	case kind == to.Kind() && kind == json.KindString && from.String() == to.String():
	default:
		d.add("replace", to, d.path...)
	}
}

func (d *differ) objects(from, to json.Value) {
	a, b := members(from), members(to)
	for _, m := range a.list {
		if value := b.get(m.key); value == nil {
			d.at(m.key, func() { d.add("remove", nil, d.path...) })
		} else {
			d.at(m.key, func() { d.diff(m.value, value) })
		}
	}
	for _, m := range b.list {
		if a.get(m.key) == nil {
			d.at(m.key, func() { d.add("add", m.value, d.path...) })
		}
	}
}

func (d *differ) arrays(from, to json.Value) {
	a, b := elements(from), elements(to)
	start := 0
	for start < len(a) && start < len(b) && Equal(a[start], b[start]) {
		start++
	}
	endA, endB := len(a), len(b)
	for endA > start && endB > start && Equal(a[endA-1], b[endB-1]) {
		endA--
		endB--
	}
	common := min(endA, endB)
	for i := start; i < common; i++ {
		d.at(strconv.Itoa(i), func() { d.diff(a[i], b[i]) })
	}
	for i := endA - 1; i >= common; i-- {
		d.at(strconv.Itoa(i), func() { d.add("remove", nil, d.path...) })
	}
	for i := common; i < endB; i++ {
		d.at(strconv.Itoa(i), func() { d.add("add", b[i], d.path...) })
	}
}

// object is an object that was taken apart.
type object struct {
	list  []keyed
	index map[string]int
}

type keyed struct {
	key   string
	value json.Value
}

func members(raw json.Value) object {
	var o object
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

func elements(raw json.Value) []json.Value {
	var list []json.Value
	for e := json.Array(raw); e.Next(); {
		list = append(list, e.Value())
	}
	return list
}

// Equal reports whether two valid JSON values are the same by RFC 6902, section
// 4.6: strings by their characters, numbers by their value, objects whatever the
// order of their members.
func Equal(a, b json.Value) bool {
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
		x, y := elements(a), elements(b)
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !Equal(x[i], y[i]) {
				return false
			}
		}
		return true
	case json.KindObject:
		x, y := members(a), members(b)
		if len(x.list) != len(y.list) {
			return false
		}
		for _, m := range x.list {
			if value := y.get(m.key); value == nil || !Equal(m.value, value) {
				return false
			}
		}
		return true
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
