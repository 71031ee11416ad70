package admission

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/admission/internal/encode"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// Patch is the changes of a [Mutator] to an object. It has only differences: to
// set a field to its present value is no change, so that a plugin need not
// compare first. Later changes see the earlier ones.
//
// Paths are those of package field, the same as in messages about fields:
//
//	requests := field.NewPath("spec", "containers").Index(0).Child("resources", "requests")
//	patch.Default(requests.Key("cpu"), "100m")
//
// Values are strings, numbers, bools, lists and maps of these, or JSON as []byte.
//
// A change that is impossible, such as to set a field of a string, is an error
// of the whole patch. The call then counts as a failure of the plugin.
type Patch struct {
	// read returns the object as it came in.
	read func() []byte
	// document is the object with the changes so far, nil before the first
	// access.
	document *jsonpatch.Document
	// operations is a JSON Patch without its end.
	operations []byte
	object     []byte
	err        error
}

// NewPatch returns a Patch of an object in JSON, for native tests.
func NewPatch(object []byte) *Patch { return &Patch{read: func() []byte { return object }} }

// doc returns the object, with the changes so far; nil if it cannot be changed.
func (p *Patch) doc() *jsonpatch.Document {
	if p.err != nil {
		return nil
	}
	if p.document == nil {
		object := p.read()
		if json.Value(object).Kind() != json.KindObject {
			p.err = errors.New("patch: the request has no object")
			return nil
		}
		p.document = jsonpatch.Parse(object)
	}
	return p.document
}

func (p *Patch) fail(path *field.Path, what string) {
	p.err = errors.New("patch: " + path.String() + ": " + what)
}

// Has reports whether there is a value at path.
func (p *Patch) Has(path *field.Path) bool {
	d := p.doc()
	return d != nil && d.Kind(tokens(path)...) != json.KindNone
}

// Set gives the field at path a value. Objects on the way that are missing, or
// null, are made; elements of lists are not. A value that has no form in JSON, such as a
// struct or a channel, fails the patch.
func (p *Patch) Set(path *field.Path, value any) {
	d := p.doc()
	if d == nil {
		return
	}
	raw, formless := encode.Value(value)
	if formless != "" {
		p.fail(path, "has no form in JSON: "+formless)
		return
	}
	if path == nil {
		p.fail(path, "the whole object is set by SetObject")
		return
	}
	at := tokens(path)
	if old := d.Get(at...); old != nil {
		if jsonpatch.Equal(old, raw) {
			return
		}
		d.Replace(raw, at...)
		p.operations = jsonpatch.AppendOperation(p.operations, "replace", raw, at...)
		return
	}
	// All missing objects are added by one operation, with the value in it.
	for missing := path; ; missing, raw = missing.Parent(), wrap(missing, raw) {
		token, isIndex := missing.Token()
		at = at[:len(at)-1]
		switch kind := d.Kind(at...); {
		case kind == json.KindObject && !isIndex:
			d.Add(raw, append(at, token)...)
			p.operations = jsonpatch.AppendOperation(p.operations, "add", raw, append(at, token)...)
			return
		case kind == json.KindNull && !isIndex:
			raw = wrap(missing, raw)
			d.Replace(raw, at...)
			p.operations = jsonpatch.AppendOperation(p.operations, "replace", raw, at...)
			return
		case kind == json.KindNone && !isIndex && len(at) > 0:
		case isIndex:
			p.fail(missing, "there is no such element")
			return
		default:
			p.fail(missing.Parent(), "is "+kind.String()+", want object")
			return
		}
	}
}

// wrap returns an object whose only member is the last step of path.
func wrap(path *field.Path, raw []byte) []byte {
	token, _ := path.Token()
	out := append(json.AppendString([]byte{'{'}, token), ':')
	return append(append(out, raw...), '}')
}

// Default gives the field at path a value unless it has one other than null. It
// reports whether it did.
func (p *Patch) Default(path *field.Path, value any) bool {
	d := p.doc()
	if d == nil {
		return false
	}
	if kind := d.Kind(tokens(path)...); kind != json.KindNone && kind != json.KindNull {
		return false
	}
	p.Set(path, value)
	return p.err == nil
}

// Append adds an element to the list at path, which is made if it is missing.
func (p *Patch) Append(path *field.Path, value any) {
	d := p.doc()
	if d == nil {
		return
	}
	raw, formless := encode.Value(value)
	if formless != "" {
		p.fail(path, "has no form in JSON: "+formless)
		return
	}
	at := tokens(path)
	switch kind := d.Kind(at...); kind {
	case json.KindArray:
		at = append(at, "-")
		d.Add(raw, at...)
		p.operations = jsonpatch.AppendOperation(p.operations, "add", raw, at...)
	case json.KindNone, json.KindNull:
		p.Set(path, append(append([]byte{'['}, raw...), ']'))
	default:
		p.fail(path, "is "+kind.String()+", want array")
	}
}

// Remove removes the field or the element at path, if there is one. The
// elements after it move up.
func (p *Patch) Remove(path *field.Path) {
	d := p.doc()
	if d == nil {
		return
	}
	if at := tokens(path); d.Remove(at...) {
		p.operations = jsonpatch.AppendOperation(p.operations, "remove", nil, at...)
	}
}

// SetObject replaces the whole object, in JSON, and every change before and after
// it. The host computes the difference.
func (p *Patch) SetObject(object []byte) {
	if !json.Valid(object) || json.Value(object).Kind() != json.KindObject {
		p.err = errors.New("patch: what the object is set to is no JSON object")
		return
	}
	p.object = object
}

// JSON returns the changes as a JSON Patch (RFC 6902), nil if there are none or
// the whole object was set.
func (p *Patch) JSON() []byte {
	if len(p.operations) == 0 || p.object != nil || p.err != nil {
		return nil
	}
	return append(p.operations[:len(p.operations):len(p.operations)], ']')
}

// Object returns the object with the changes, in JSON, for native tests.
func (p *Patch) Object() []byte {
	if p.object != nil {
		return p.object
	}
	d := p.doc()
	if d == nil {
		return nil
	}
	return d.Append(nil)
}

// Err returns the first error of a change, nil if all were possible.
func (p *Patch) Err() error { return p.err }

// tokens returns the steps of a path, with room for one more.
func tokens(path *field.Path) []string {
	n := 0
	for q := path; q != nil; q = q.Parent() {
		n++
	}
	list := make([]string, n, n+1)
	for q := path; q != nil; q = q.Parent() {
		n--
		list[n], _ = q.Token()
	}
	return list
}
