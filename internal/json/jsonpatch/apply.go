package jsonpatch

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/json"
)

// The limits of a patch. A Kubernetes object has at most 3 MiB.
const (
	// MaxOperations is the maximum number of operations of a patch, as for a client of the API
	// server.
	MaxOperations = 10000
	// MaxBytes is the maximum length that a document may reach.
	MaxBytes = 8 << 20
	// MaxCopied is the number of bytes that a patch may copy, as in an API server.
	MaxCopied = 3 << 20
	// applyWork bounds the time that a patch takes, to about a second, and with it
	// the memory.
	applyWork = 1_000_000_000
)

// ErrTest is the error of an operation "test" of a patch that does not hold.
var ErrTest = errors.New("value is another one")

// Apply returns document with the patch applied. The document must be valid JSON, as
// in an AdmissionReview; a patch is checked.
//
// Within the limits above, Apply accepts the patches that k8s.io/apiserver accepts from webhooks,
// with the same result, and refuses the others. The API server uses gopkg.in/evanphx/json-patch.v4,
// which is not RFC 6902 to the letter:
//
//   - "replace" adds a missing member, "copy" of a missing member adds null, and so
//     does "add" without a value.
//   - "test" compares numbers and strings by their bytes: 1 is not 1.0. An array with
//     null equals nothing. A missing member equals null, unless its parent is missing.
//   - An index may be negative, -1 being the last element (after it for "add"), and have a sign
//     or leading zeros.
//   - The empty path is for "test" and "replace" alone. The text of a path before its first slash
//     is ignored.
//   - Nothing can be put into a null.
//
// Errors name the operation: "operations[2]: add /spec/x/y: no such object or array".
// For errors.Is: [ErrTest], [ErrTooMuch].
func Apply(document, patch []byte) ([]byte, error) { return Pay(nil).Apply(document, patch) }

// Apply is the function Apply, which pay may end.
func (pay Pay) Apply(document, patch []byte) ([]byte, error) {
	if !json.Valid(patch) {
		return nil, errors.New("patch is not valid JSON")
	}
	if kind := json.Value(patch).Kind(); kind != json.KindArray && kind != json.KindNull {
		return nil, errors.New("patch is " + kind.String() + ", want array of operations")
	}
	d, i := patched{Document: Parse(document)}, 0
	d.work = work{left: applyWork, pay: pay}
	d.work.do(len(document) + len(patch))
	first := json.Array(patch)
	switch kind := json.Value(document).Kind(); {
	case kind == json.KindObject, kind == json.KindArray, !first.Next(): // A patch without operations is for any document.
	case kind == json.KindNull:
		d.root = sealed()
	default:
		return nil, errors.New("document is " + kind.String() + ", want object or array")
	}
	for e := json.Array(patch); e.Next(); i++ {
		if i == MaxOperations {
			return nil, limitError("patch has more than " + strconv.Itoa(MaxOperations) + " operations")
		}
		op, err := parseOperation(e.Value())
		if err == nil {
			err = d.apply(&op)
		}
		if d.work.err != nil { // Before err, which may follow from it.
			err = d.work.err
		}
		if err != nil {
			return nil, &OperationError{i, op.name, op.path, err}
		}
	}
	out := d.Append(make([]byte, 0, len(document)+len(patch)))
	d.work.do(len(out))
	if d.work.settle(); d.work.err != nil {
		return nil, d.work.err
	}
	if len(out) > MaxBytes {
		return nil, limitError("the patched document has " + strconv.Itoa(len(out)) + " bytes, more than " + strconv.Itoa(MaxBytes))
	}
	if !json.Valid(out) {
		return nil, limitError("the patched document is nested too deeply")
	}
	return out, nil
}

// OperationError is the error of an operation of a patch that cannot be carried out.
type OperationError struct {
	Index    int
	Op, Path string
	Err      error
}

func (e *OperationError) Error() string {
	msg := "operations[" + strconv.Itoa(e.Index) + "]"
	if e.Op != "" {
		msg += ": " + short(e.Op) + " " + short(e.Path)
	}
	return msg + ": " + e.Err.Error()
}

// short cuts a text of a patch for a message.
func short(text string) string { return cut.Marked(text, 200) }

func (e *OperationError) Unwrap() error { return e.Err }

// operation is an operation of a patch.
type operation struct {
	name, path, from string
	// value is nil if it is missing.
	value json.Value
}

// parseOperation reads an operation. Of two members with one name the last counts,
// and null is a missing name or path.
func parseOperation(raw json.Value) (op operation, err error) {
	if raw.Kind() != json.KindObject {
		return op, errors.New("operation is " + raw.Kind().String() + ", want object")
	}
	var name, path, from json.Value
	for m := json.Object(raw); m.Next(); {
		switch m.Key() {
		case "op":
			name = m.Value()
		case "path":
			path = m.Value()
		case "from":
			from = m.Value()
		case "value":
			op.value = m.Value()
		}
	}
	text := func(what string, v json.Value) (s string) {
		switch ok := false; {
		case err != nil:
		case v == nil || v.IsNull():
			err = errors.New(what + " is missing")
		default:
			if s, ok = v.Text(); !ok {
				err = errors.New(what + " is " + v.Kind().String() + ", want string")
			}
		}
		return s
	}
	op.name, op.path = text("op", name), text("path", path)
	switch op.name {
	case "move", "copy":
		op.from = text("from", from)
	case "add", "replace", "test", "remove":
	default:
		if err == nil {
			err = errors.New("op is none of RFC 6902")
		}
	}
	return op, err
}

var (
	errNoValue     = errors.New("no such value")
	errNoContainer = errors.New("no such object or array, or no such index")
)

// patched is a document that a patch edits. The library of the API server tells
// three kinds of null apart, and so does patched:
//
//   - One that a document or a value holds, or that stands for a missing value, is a node of the
//     bytes "null".
//   - The value of an operation is a node without bytes and parts.
//   - A copy of that is sealed: it can be expanded, has no members, and accepts none.
type patched struct {
	*Document
	copied int
}

// sealed returns a null that can be expanded.
func sealed() *node { return &node{parts: &parts{kind: json.KindNull}} }

// absent reports whether a node is nil or a null of the first kind.
func (n *node) absent() bool { return n == nil || n.parts == nil && n.raw.Kind() == json.KindNull }

// null returns a null of the first kind.
func null() *node { return &node{raw: json.Value("null")} }

// valueNode returns the value of an operation.
func (op *operation) valueNode() *node {
	switch {
	case op.value == nil:
		return null()
	case op.value.IsNull():
		return &node{}
	}
	return &node{raw: op.value}
}

func (d *patched) apply(op *operation) error {
	if op.name == "replace" && op.path == "" {
		if kind := op.value.Kind(); kind != json.KindObject && kind != json.KindArray {
			return errors.New("the whole document becomes " + kind.String() + ", want object or array")
		}
		d.root = op.valueNode()
		return nil
	}
	if op.name == "test" && op.path == "" {
		if !d.same(d.root, op.value) {
			return ErrTest
		}
		return nil
	}
	var value *node
	switch op.name {
	case "add", "replace":
		value = op.valueNode()
	case "move", "copy":
		parent, token, err := d.find(op.from)
		if errors.Is(err, ErrTooMuch) {
			return err
		}
		if err != nil {
			return errors.New("from " + short(op.from) + ": " + err.Error())
		}
		n, ok := d.get(parent, token)
		if ok && op.name == "move" {
			ok = d.takeOut(parent, token)
		}
		if !ok {
			return errors.New("from " + short(op.from) + ": no such value")
		}
		if value = n; n == nil {
			value = null()
		}
	}
	parent, token, err := d.find(op.path)
	if err != nil {
		return err
	}
	ok, missing := true, errNoContainer
	switch op.name {
	case "copy":
		if value, err = d.copy(value); err != nil {
			return err
		}
		ok = d.putIn(parent, token, value)
	case "add", "move":
		ok = d.putIn(parent, token, value)
	case "replace":
		ok, missing = d.set(parent, token, value), errNoValue
	case "remove":
		ok, missing = d.takeOut(parent, token), errNoValue
	case "test":
		n, found := d.get(parent, token)
		switch {
		case !found:
			ok, missing = false, errNoValue
		case n.absent():
			ok, missing = op.value == nil || op.value.IsNull(), ErrTest
		default:
			ok, missing = d.same(n, op.value), ErrTest
		}
	}
	if !ok {
		return missing
	}
	return nil
}

// find returns the object or array at a path without its last token, and that token.
func (d *patched) find(path string) (parent *node, token string, err error) {
	slash := strings.IndexByte(path, '/')
	if slash < 0 {
		return nil, "", errors.New("a path begins with /")
	}
	tokens, err := Tokens(path[slash:])
	if err != nil {
		return nil, "", err
	}
	parent, last := d.root, len(tokens)-1
	for _, token := range tokens[:last] {
		if parent, _ = d.get(parent, token); parent.absent() || !d.expand(parent) {
			return nil, "", errNoContainer
		}
	}
	if !d.expand(parent) {
		return nil, "", errNoContainer
	}
	return parent, tokens[last], nil
}

// get returns the value that token names in an object or array: nil and true for a missing member,
// false for an invalid index.
func (d *patched) get(parent *node, token string) (*node, bool) {
	if !d.expand(parent) {
		return nil, false
	}
	switch parent.kind {
	case json.KindObject:
		if i := parent.find(token); i >= 0 {
			return parent.members[i].node, true
		}
		return nil, true
	case json.KindNull:
		return nil, true
	}
	i, ok := signedIndex(token, len(parent.elements))
	if !ok {
		return nil, false
	}
	return parent.elements[i], true
}

// set gives an object a member, or replaces an element of an array.
func (d *patched) set(parent *node, token string, value *node) bool {
	switch parent.kind {
	case json.KindObject:
		parent.set(token, value)
		return true
	case json.KindNull:
		return false
	}
	i, ok := signedIndex(token, len(parent.elements))
	if ok {
		parent.elements[i] = value
	}
	return ok
}

// putIn gives an object a member, or puts an element into an array.
func (d *patched) putIn(parent *node, token string, value *node) bool {
	if parent.kind != json.KindArray {
		return d.set(parent, token, value)
	}
	i, ok := len(parent.elements), true
	if token != "-" {
		i, ok = signedIndex(token, len(parent.elements)+1)
	}
	return ok && d.insert(parent, i, value)
}

// takeOut takes a member out of an object, or an element out of an array.
func (d *patched) takeOut(parent *node, token string) bool {
	switch parent.kind {
	case json.KindObject:
		i := parent.find(token)
		if i >= 0 {
			parent.remove(i)
		}
		return i >= 0
	case json.KindNull:
		return false
	}
	i, ok := signedIndex(token, len(parent.elements))
	return ok && d.delete(parent, i)
}

// signedIndex reads a token as the index of an array of n elements, as the library
// of the API server does.
func signedIndex(token string, n int) (int, bool) {
	i, err := strconv.Atoi(token)
	if i < 0 {
		i += n
	}
	return i, err == nil && 0 <= i && i < n
}

// copy returns a copy of a value, in the library's encoding.
func (d *patched) copy(n *node) (*node, error) {
	switch {
	case n.absent():
		return null(), nil
	case n.parts == nil && n.raw == nil:
		d.copied += len("null")
		n = sealed()
	default:
		n = n.copied(MaxCopied - d.copied)
		d.copied += len(n.raw)
		d.work.do(len(n.raw))
	}
	if d.copied > MaxCopied {
		return nil, limitError("the patch copies more than " + strconv.Itoa(MaxCopied) + " bytes")
	}
	return n, nil
}

// Tokens splits a JSON Pointer (RFC 6901).
func Tokens(pointer string) ([]string, error) {
	if pointer == "" {
		return nil, nil
	}
	if pointer[0] != '/' {
		return nil, errors.New("a path begins with /")
	}
	if strings.Count(pointer, "/") > json.MaxDepth {
		return nil, limitError("path is too deep")
	}
	tokens := strings.Split(pointer[1:], "/")
	for i, t := range tokens {
		if strings.IndexByte(t, '~') >= 0 {
			tokens[i] = unescape.Replace(t)
		}
	}
	return tokens, nil
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// AppendPointer appends tokens to dst as a JSON Pointer.
func AppendPointer(dst []byte, tokens ...string) []byte {
	for _, t := range tokens {
		dst = append(dst, '/')
		for i := range len(t) {
			switch t[i] {
			case '~':
				dst = append(dst, '~', '0')
			case '/':
				dst = append(dst, '~', '1')
			default:
				dst = append(dst, t[i])
			}
		}
	}
	return dst
}
