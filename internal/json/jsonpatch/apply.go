package jsonpatch

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/json"
)

// The limits of a patch. A Kubernetes object has at most 3 MiB.
const (
	// MaxOperations is how many operations a patch may have, as for a client of
	// the API server.
	MaxOperations = 10000
	// MaxBytes is how long a document may become, and how much a patch may copy.
	MaxBytes = 8 << 20
	// applyWork bounds the time that a patch takes, to about a second, and with it
	// the memory.
	applyWork = 1_000_000_000
)

// ErrTest says that an operation "test" of a patch does not hold.
var ErrTest = errors.New("value is another one")

// Apply returns document with the patch applied. Both must be valid JSON: a
// document that came in as an AdmissionReview is, a patch is checked.
//
// It takes what k8s.io/apiserver takes, which applies patches of webhooks by
// gopkg.in/evanphx/json-patch.v4, but for these: a member may not occur twice in
// an operation, and the limits above hold. Errors name the operation:
// "operations[2]: add /spec/x/y: no such object or array". For errors.Is:
// [ErrTest], [ErrTooMuch].
func Apply(document, patch []byte) ([]byte, error) { return Pay(nil).Apply(document, patch) }

// Apply is the function Apply, which pay may end.
func (pay Pay) Apply(document, patch []byte) ([]byte, error) {
	if !json.Valid(patch) {
		return nil, errors.New("patch is not valid JSON")
	}
	if json.Value(patch).Kind() != json.KindArray {
		return nil, errors.New("patch is " + json.Value(patch).Kind().String() + ", want array of operations")
	}
	d, copied, i := Parse(document), 0, 0
	d.work = work{left: applyWork, pay: pay}
	d.work.do(len(document) + len(patch))
	for e := json.Array(patch); e.Next(); i++ {
		if i == MaxOperations {
			return nil, limitError("patch has more than " + strconv.Itoa(MaxOperations) + " operations")
		}
		op, err := parseOperation(e.Value())
		if err == nil {
			err = d.apply(&op, &copied)
		}
		if d.work.err != nil { // Before err, which may follow from it.
			err = d.work.err
		}
		if err != nil {
			return nil, &OperationError{i, op.name, op.path, err}
		}
	}
	if d.root == nil {
		return nil, errors.New("the patch leaves nothing")
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

// OperationError says which operation of a patch cannot be carried out.
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

// operation is one of a patch.
type operation struct {
	name, path, from        string
	hasPath, hasFrom, hasOp bool
	value                   json.Value
}

func parseOperation(raw json.Value) (op operation, err error) {
	if raw.Kind() != json.KindObject {
		return op, errors.New("operation is " + raw.Kind().String() + ", want object")
	}
	for m := json.Object(raw); m.Next(); {
		text, seen := (*string)(nil), (*bool)(nil)
		switch m.Key() {
		case "op":
			text, seen = &op.name, &op.hasOp
		case "path":
			text, seen = &op.path, &op.hasPath
		case "from":
			text, seen = &op.from, &op.hasFrom
		case "value":
			if op.value != nil {
				return op, errors.New("value occurs twice")
			}
			op.value = m.Value()
			continue
		default:
			continue
		}
		if *seen {
			return op, errors.New(m.Key() + " occurs twice")
		}
		if *text, *seen = m.Value().Text(); !*seen {
			return op, errors.New(m.Key() + " is " + m.Value().Kind().String() + ", want string")
		}
	}
	switch op.name {
	case "add", "replace", "test":
		if op.value == nil {
			return op, errors.New("value is missing")
		}
	case "move", "copy":
		if !op.hasFrom {
			return op, errors.New("from is missing")
		}
	case "remove":
	case "":
		return op, errors.New("op is missing")
	default:
		return op, errors.New("op is none of RFC 6902")
	}
	if !op.hasPath {
		return op, errors.New("path is missing")
	}
	return op, nil
}

var (
	errNoValue     = errors.New("no such value")
	errNoContainer = errors.New("no such object or array, or no such index")
)

func (d *Document) apply(op *operation, copied *int) error {
	path, err := Tokens(op.path)
	if err != nil {
		return err
	}
	ok, missing := true, errNoContainer
	switch op.name {
	case "add":
		ok = d.Add(op.value, path...)
	case "replace":
		ok, missing = d.Replace(op.value, path...), errNoValue
	case "remove":
		ok, missing = d.Remove(path...), errNoValue
	case "test":
		n := d.walk(path)
		// What is not there equals null, as the API server has it.
		if n == nil {
			ok, missing = op.value.IsNull(), ErrTest
			break
		}
		raw := n.bytes()
		d.work.do(len(raw))
		ok, missing = d.work.equal(raw, op.value), ErrTest
	case "move", "copy":
		from, err := Tokens(op.from)
		if errors.Is(err, ErrTooMuch) {
			return err
		}
		if err != nil {
			return errors.New("from: " + err.Error())
		}
		n := d.walk(from)
		if n == nil {
			return errors.New("from " + short(op.from) + ": no such value")
		}
		if op.name == "move" {
			if len(path) > len(from) && slices.Equal(path[:len(from)], from) {
				return errors.New("from " + short(op.from) + ": a value cannot move into itself")
			}
			if len(from) == 0 {
				return errors.New("the whole document cannot move")
			}
			n = d.remove(from)
		} else {
			raw := n.bytes()
			d.work.do(len(raw))
			if *copied += len(raw); *copied > MaxBytes {
				return limitError("the patch copies more than " + strconv.Itoa(MaxBytes) + " bytes")
			}
			n = &node{raw: raw}
		}
		ok = d.add(n, path)
	}
	if !ok {
		return missing
	}
	return nil
}

// Tokens takes a JSON Pointer (RFC 6901) apart.
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
