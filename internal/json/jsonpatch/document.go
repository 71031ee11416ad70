package jsonpatch

import (
	"slices"
	"strconv"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Document is a JSON value for editing.
type Document struct {
	root *node
	// work counts work that depends on the length of the document.
	work work
}

// node is a value of a document. Until something below it is requested, it consists of its original
// bytes. A large array has a node for every few bytes of it, so nodes are small.
type node struct {
	raw json.Value
	// parts are those of an expanded object or array, nil for any other value.
	*parts
}

type parts struct {
	// kind is KindObject, KindArray, or KindNull for a null that can be expanded.
	kind json.Kind
	// members are those of an object, in order; one without a node was removed.
	members []member
	// index finds a member of a large object.
	index map[string]int
	// elements are those of an array.
	elements []*node
}

type member struct {
	key  string
	node *node
}

// indexFrom is the number of members from which an index pays off.
const indexFrom = 16

// Parse returns the document in raw, which must be valid (json.Valid) and not be written to
// afterwards.
func Parse(raw []byte) *Document {
	return &Document{root: &node{raw: raw}, work: work{left: unlimited}}
}

// Append appends the document to dst.
func (d *Document) Append(dst []byte) []byte { return d.root.append(dst) }

func (n *node) append(dst []byte) []byte {
	switch {
	case n.parts == nil && n.raw != nil:
		return append(dst, n.raw...)
	case n.parts == nil || n.kind == json.KindNull:
		return append(dst, "null"...)
	case n.kind == json.KindObject:
		dst = append(dst, '{')
		first := true
		for i := range n.members {
			m := &n.members[i]
			if m.node == nil {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = append(json.AppendString(dst, m.key), ':')
			dst = m.node.append(dst)
		}
		return append(dst, '}')
	}
	dst = append(dst, '[')
	for i, e := range n.elements {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.append(dst)
	}
	return append(dst, ']')
}

// bytes returns the value as JSON.
func (n *node) bytes() json.Value {
	if n.parts == nil {
		return n.raw
	}
	return n.append(nil)
}

// nodeWork is the work of making a node: its time and its memory, of which a document of zeros
// would take fifty times its own.
const nodeWork = 500

// expand splits a value into parts, once, and reports whether it has parts now.
func (d *Document) expand(n *node) bool {
	if n.parts != nil {
		return true
	}
	p, spare, room := &parts{kind: n.raw.Kind()}, []node(nil), 4
	if p.kind != json.KindObject && p.kind != json.KindArray || !d.work.do(len(n.raw)) {
		return false
	}
	// fresh returns a node of a block: a separate node would cost twice as much.
	fresh := func(raw json.Value) *node {
		if len(spare) == 0 {
			room = min(2*room, 1024)
			if !d.work.do(nodeWork * room) {
				return nil
			}
			spare = make([]node, room)
		}
		one := &spare[0]
		one.raw, spare = raw, spare[1:]
		return one
	}
	if p.kind == json.KindObject {
		for m := json.Object(n.raw); m.Next(); {
			one := fresh(m.Value())
			if one == nil {
				return false
			}
			p.set(m.Key(), one) // Of two members with one name the last counts.
		}
	} else {
		for e := json.Array(n.raw); e.Next(); {
			one := fresh(e.Value())
			if one == nil {
				return false
			}
			p.elements = append(p.elements, one)
		}
	}
	n.parts = p
	return true
}

// find returns the index of the member with a key, -1 if there is none.
func (n *parts) find(key string) int {
	if n.index != nil {
		i, ok := n.index[key]
		if !ok {
			return -1
		}
		return i
	}
	for i := range n.members {
		if n.members[i].key == key && n.members[i].node != nil {
			return i
		}
	}
	return -1
}

// set gives an object a member.
func (n *parts) set(key string, value *node) {
	if i := n.find(key); i >= 0 {
		n.members[i].node = value
		return
	}
	n.members = append(n.members, member{key, value})
	switch {
	case n.index != nil:
		n.index[key] = len(n.members) - 1
	case len(n.members) > indexFrom:
		n.index = make(map[string]int, 2*len(n.members))
		for i, m := range n.members {
			if m.node != nil {
				n.index[m.key] = i
			}
		}
	}
}

// remove takes a member from an object.
func (n *parts) remove(i int) {
	delete(n.index, n.members[i].key)
	n.members[i] = member{}
}

// child returns the value that token names in n, nil if there is none.
func (d *Document) child(n *node, token string) *node {
	if !d.expand(n) {
		return nil
	}
	if n.kind == json.KindObject {
		if i := n.find(token); i >= 0 {
			return n.members[i].node
		}
	} else if i, ok := index(token); ok && i < len(n.elements) {
		return n.elements[i]
	}
	return nil
}

// walk returns the value at the end of path, nil if there is none.
func (d *Document) walk(path []string) *node {
	n := d.root
	for _, token := range path {
		if n = d.child(n, token); n == nil {
			return nil
		}
	}
	return n
}

// index reads a token as the index of an array, RFC 6901, section 4.
func index(token string) (int, bool) {
	if token == "" || len(token) > 9 || len(token) > 1 && token[0] == '0' {
		return 0, false
	}
	for i := range len(token) {
		if token[i] < '0' || token[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.Atoi(token)
	return n, err == nil
}

// Kind returns the kind of the value at the end of path, KindNone if there is none.
func (d *Document) Kind(path ...string) json.Kind {
	n := d.walk(path)
	switch {
	case n == nil:
		return json.KindNone
	case n.parts != nil:
		return n.kind
	}
	return n.raw.Kind()
}

// Len returns the number of elements of the array at the end of path, 0 if there is no array.
func (d *Document) Len(path ...string) int {
	n := d.walk(path)
	if n == nil || !d.expand(n) {
		return 0
	}
	return len(n.elements)
}

// Get returns the value at the end of path, nil if there is none.
func (d *Document) Get(path ...string) json.Value {
	n := d.walk(path)
	if n == nil {
		return nil
	}
	return n.bytes()
}

// Add carries out the operation "add": it gives an object a member or puts an element into an
// array, at its end if the last token is "-". It reports whether there is an object or array for
// the value.
func (d *Document) Add(value []byte, path ...string) bool { return d.add(&node{raw: value}, path) }

func (d *Document) add(value *node, path []string) bool {
	if len(path) == 0 {
		d.root = value
		return true
	}
	parent, token := d.walk(path[:len(path)-1]), path[len(path)-1]
	if parent == nil || !d.expand(parent) {
		return false
	}
	if parent.kind == json.KindObject {
		parent.set(token, value)
		return true
	}
	i, ok := index(token)
	if token == "-" {
		i, ok = len(parent.elements), true
	}
	if !ok || i > len(parent.elements) {
		return false
	}
	return d.insert(parent, i, value)
}

// insert puts an element into an array, and reports whether there is work left.
func (d *Document) insert(array *node, i int, value *node) bool {
	array.elements = slices.Insert(array.elements, i, value)
	return d.work.do(len(array.elements) - i) // A unit for each that makes room.
}

// delete takes an element out of an array, and reports whether there is work left.
func (d *Document) delete(array *node, i int) bool {
	ok := d.work.do(len(array.elements) - i)
	array.elements = slices.Delete(array.elements, i, i+1)
	return ok
}

// Replace carries out the operation "replace". It reports whether there is a value to replace.
func (d *Document) Replace(value []byte, path ...string) bool {
	n := d.walk(path)
	if n == nil {
		return false
	}
	*n = node{raw: value}
	return true
}

// Remove carries out the operation "remove". It reports whether there was a value; the root cannot
// be removed.
func (d *Document) Remove(path ...string) bool { return d.remove(path) != nil }

func (d *Document) remove(path []string) *node {
	if len(path) == 0 {
		return nil
	}
	parent, token := d.walk(path[:len(path)-1]), path[len(path)-1]
	if parent == nil {
		return nil
	}
	n := d.child(parent, token)
	if n == nil {
		return nil
	}
	if parent.kind == json.KindObject {
		parent.remove(parent.find(token))
		return n
	}
	i, _ := index(token)
	d.delete(parent, i)
	return n
}
