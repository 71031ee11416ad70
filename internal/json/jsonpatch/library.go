package jsonpatch

import (
	"bytes"

	"github.com/kubewasm/kubewasm/internal/json"
)

// same reports whether a value of the document passes a "test" for v, by the rules of the API
// server's library: scalars are compared by their bytes, and an array with null equals nothing. A
// value for which there is not enough work left does not pass.
func (d *patched) same(n *node, v json.Value) bool {
	switch {
	case n.parts == nil && n.raw == nil:
		return v.Kind() == json.KindNull
	case n.parts == nil:
		return d.work.same(n.raw, v)
	case n.kind == json.KindNull:
		return v.Kind() == json.KindObject && len(d.work.members(v).list) == 0 && d.work.err == nil
	case n.kind != v.Kind():
		return false
	}
	if n.kind == json.KindArray {
		e := json.Array(v)
		for _, element := range n.elements {
			if !e.Next() || e.Value().IsNull() || element.absent() || !d.same(element, e.Value()) {
				return false
			}
		}
		return d.work.do(len(v)) && !e.Next()
	}
	members, count := d.work.members(v), 0
	for i := range n.members {
		m := &n.members[i]
		if m.node == nil {
			continue
		}
		count++
		switch other := members.get(m.key); {
		case other == nil:
			return false
		case other.IsNull() || m.node.absent():
			if !other.IsNull() || !m.node.absent() {
				return false
			}
		case !d.same(m.node, other):
			return false
		}
	}
	return d.work.err == nil && count == len(members.list)
}

// same is same of a patched document, for a value that was not expanded.
func (w *work) same(a, b json.Value) bool {
	kind := a.Kind()
	if !w.do(min(len(a), len(b))) || kind != b.Kind() {
		return false
	}
	switch kind {
	default:
		return bytes.Equal(a, b)
	case json.KindArray:
		w.do(len(a) + len(b))
		x, y := json.Array(a), json.Array(b)
		for x.Next() {
			if !y.Next() || x.Value().IsNull() || y.Value().IsNull() || !w.same(x.Value(), y.Value()) {
				return false
			}
		}
		return w.err == nil && !y.Next()
	case json.KindObject:
		x, y := w.members(a), w.members(b)
		if len(x.list) != len(y.list) {
			return false
		}
		for _, m := range x.list {
			if other := y.get(m.key); other == nil || !w.same(m.value, other) {
				return false
			}
		}
		return w.err == nil
	}
}

// copied returns a copy of a value as encoding/json writes it: without white space, and
// with escapes for HTML. It ends when the copy has more than limit bytes.
func (n *node) copied(limit int) *node { return &node{raw: n.appendCopied(nil, limit)} }

func (n *node) appendCopied(dst []byte, limit int) []byte {
	switch {
	case n.parts == nil && n.raw != nil:
		return appendEscaped(dst, n.raw, limit)
	case n.parts == nil || n.kind == json.KindNull:
		return append(dst, "null"...)
	case n.kind == json.KindObject:
		dst = append(dst, '{')
		for i := range n.members {
			m := &n.members[i]
			if m.node == nil || len(dst) > limit {
				continue
			}
			if dst[len(dst)-1] != '{' {
				dst = append(dst, ',')
			}
			dst = append(appendEscaped(dst, json.AppendString(nil, m.key), limit), ':')
			dst = m.node.appendCopied(dst, limit)
		}
		return append(dst, '}')
	}
	dst = append(dst, '[')
	for i, e := range n.elements {
		if len(dst) > limit {
			break
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.appendCopied(dst, limit)
	}
	return append(dst, ']')
}

// appendEscaped appends valid JSON as json.Marshal writes a json.RawMessage.
func appendEscaped(dst, raw []byte, limit int) []byte {
	text := false
	for i := 0; i < len(raw) && len(dst) <= limit; i++ {
		switch c := raw[i]; {
		case !text && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
		case text && c == '\\':
			dst = append(dst, c, raw[i+1])
			i++
		case c == '<' || c == '>' || c == '&':
			dst = append(dst, '\\', 'u', '0', '0', "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		case c == 0xe2 && i+2 < len(raw) && raw[i+1] == 0x80 && raw[i+2]&^1 == 0xa8:
			dst = append(dst, '\\', 'u', '2', '0', '2', '8'+raw[i+2]&1)
			i += 2
		default:
			text = text != (c == '"')
			dst = append(dst, c)
		}
	}
	return dst
}
