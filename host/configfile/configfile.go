// Package configfile decodes the configuration files of kubewasm: plugins in the arguments of a
// scheduler, policies, the file of a node agent, services. It works on the same structs as package
// json, and differs from it in these points, for authors of files:
//
//   - Every mistake is reported, not the first alone, each with its path and in the words of YAML:
//     "plugins[0].limits.timeout is the number 100, want a duration such as 100ms".
//   - A field that does not exist, or that occurs twice, is a mistake. The case of names counts.
//   - A [time.Duration] is a text such as "1m30s".
//   - An integer whose name ends in Bytes may be a quantity: 64Mi, 1.5G.
//
// A type with a method UnmarshalJSON or UnmarshalText is decoded by that.
package configfile

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	goyaml "go.yaml.in/yaml/v2"

	"github.com/kubewasm/kubewasm/internal/jsonfields"
	"github.com/kubewasm/kubewasm/internal/nearest"
	"github.com/kubewasm/kubewasm/internal/yamlsize"
)

// Error has all mistakes of a document.
type Error struct {
	Mistakes []Mistake
}

// Mistake is one of them.
type Mistake struct {
	// Path leads to the value from the document on: plugins[0].limits.timeout. It is empty for
	// the document as a whole.
	Path string
	// Text describes the mistake, for a message in which the path stands before it, or in the place
	// of %s.
	Text string
	// Err is the error of a type that decodes itself, or nil.
	Err error
}

// Error returns the mistakes, a line each.
func (e *Error) Error() string {
	lines := make([]string, len(e.Mistakes))
	for i, m := range e.Mistakes {
		lines[i] = m.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the mistakes.
func (e *Error) Unwrap() []error {
	errs := make([]error, len(e.Mistakes))
	for i, m := range e.Mistakes {
		errs[i] = m
	}
	return errs
}

// Error returns the path and the text of the mistake.
func (m Mistake) Error() string {
	path := cmp.Or(m.Path, "the document")
	if strings.Contains(m.Text, "%s") {
		return strings.Replace(m.Text, "%s", strconv.Quote(path), 1)
	}
	return path + " " + m.Text
}

// Unwrap returns Err.
func (m Mistake) Unwrap() error { return m.Err }

// maxExpanded bounds the length of a document after its aliases are replaced.
const maxExpanded = 64 << 20

// maxDepth bounds how deeply values are nested.
const maxDepth = 500

var errTooDeep = fmt.Errorf("values are nested more than %d deep", maxDepth)

// YAML decodes a document in YAML or JSON into the struct that to points to, as the API server
// reads YAML: y, n, yes, no, on and off are true or false. Fields missing in the document keep
// their values. The error is an [*Error], or that of the parser.
func YAML(data []byte, to any) error {
	if err := yamlsize.Check(data, maxExpanded); err != nil {
		return err
	}
	document, err := parseYAML(data)
	if err != nil {
		return err
	}
	// The parser stops at the first name that occurs twice.
	var tree any
	p := parser{mistakes: duplicates(goyaml.UnmarshalStrict(data, &tree))}
	n, err := p.yaml("", document, 0)
	if err != nil {
		return err
	}
	return assign(n, p.mistakes, to)
}

// parseYAML returns a document, whose mappings have their order.
func parseYAML(data []byte) (document any, err error) {
	if err := goyaml.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	if _, ok := document.(map[any]any); !ok {
		return document, nil
	}
	var mapping goyaml.MapSlice
	err = goyaml.Unmarshal(data, &mapping)
	return mapping, err
}

// yaml returns a value of a document in the types of JSON.
func (p *parser) yaml(path string, value any, depth int) (n node, err error) {
	if depth > maxDepth {
		return n, errTooDeep
	}
	switch value := value.(type) {
	case nil, bool, string:
		n.value = value
	case int:
		n.value = json.Number(strconv.Itoa(value))
	case int64:
		n.value = json.Number(strconv.FormatInt(value, 10))
	case uint64:
		n.value = json.Number(strconv.FormatUint(value, 10))
	case float64:
		if math.IsInf(value, 0) || math.IsNaN(value) {
			p.mistakes = append(p.mistakes, Mistake{Path: path, Text: fmt.Sprintf("is %v, which JSON has no form for", value)})
			return n, nil
		}
		text, err := json.Marshal(value)
		n.value = json.Number(text)
		return n, err
	case []any:
		list := make([]node, len(value))
		for i, item := range value {
			if list[i], err = p.yaml(fmt.Sprintf("%s[%d]", path, i), item, depth+1); err != nil {
				return n, err
			}
		}
		n.value = list
	case goyaml.MapSlice:
		members := make([]member, 0, len(value))
		for _, item := range value {
			name := fmt.Sprint(item.Key)
			of, err := p.yaml(join(path, name), item.Value, depth+1)
			if err != nil {
				return n, err
			}
			members = append(members, member{name, of})
		}
		n.value = members
	case map[any]any: // Of a document that is a list.
		members := make([]member, 0, len(value))
		for key, item := range value {
			of, err := p.yaml(join(path, fmt.Sprint(key)), item, depth+1)
			if err != nil {
				return n, err
			}
			members = append(members, member{fmt.Sprint(key), of})
		}
		n.value = members
	default:
		return n, fmt.Errorf("%s is a %T, which JSON has no form for", cmp.Or(path, "the document"), value)
	}
	return n, nil
}

// JSON decodes a document in JSON, see [YAML].
func JSON(data []byte, to any) error { return decode(data, to) }

// duplicates returns the mistakes of the error of a strict parser.
func duplicates(err error) (mistakes []Mistake) {
	var of *goyaml.TypeError
	if !errors.As(err, &of) {
		return nil
	}
	for _, text := range of.Errors {
		if line, key, ok := strings.Cut(text, ": key "); ok {
			key = strings.TrimSuffix(key, " already set in map")
			mistakes = append(mistakes, Mistake{Path: strings.Trim(key, `"`), Text: "occurs twice in one mapping, at " + line})
		}
	}
	return mistakes
}

func decode(data []byte, to any) error {
	p := parser{data: data, Decoder: json.NewDecoder(bytes.NewReader(data))}
	p.UseNumber()
	document, err := p.value("", 0)
	if err != nil {
		return readable(err)
	}
	if _, err := p.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one document")
	}
	return assign(document, p.mistakes, to)
}

// assign decodes a document. mistakes are those found in it earlier.
func assign(document node, mistakes []Mistake, to any) error {
	v := reflect.ValueOf(to)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return fmt.Errorf("decode into %T, want a pointer", to)
	}
	d := decoder{mistakes: mistakes}
	d.fields("", document, v.Elem())
	if len(d.mistakes) == 0 {
		return nil
	}
	return &Error{d.mistakes}
}

// fields decodes a document. It is called from a method UnmarshalJSON of its type.
func (d *decoder) fields(path string, n node, to reflect.Value) {
	if to.Kind() == reflect.Struct {
		d.object(path, n, to)
		return
	}
	d.value(path, n, to)
}

func readable(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the document is empty")
	}
	return err
}

// node is a value of a document.
type node struct {
	// raw is the text of a list or a mapping in JSON; nil of others, and in YAML.
	raw []byte
	// value is nil, a bool, a string, a json.Number, a []node or a []member.
	value any
}

type member struct {
	name  string
	value node
}

// json returns the text of the value in JSON.
func (n *node) json() []byte {
	if n.raw != nil {
		return n.raw
	}
	switch v := n.value.(type) {
	case []node:
		text := []byte{'['}
		for i := range v {
			if i > 0 {
				text = append(text, ',')
			}
			text = append(text, v[i].json()...)
		}
		return append(text, ']')
	case []member:
		text := []byte{'{'}
		for i := range v {
			if i > 0 {
				text = append(text, ',')
			}
			name, _ := json.Marshal(v[i].name) // A text is JSON.
			text = append(append(append(text, name...), ':'), v[i].value.json()...)
		}
		return append(text, '}')
	}
	text, _ := json.Marshal(n.value) // So are scalars.
	return text
}

type parser struct {
	*json.Decoder
	data     []byte
	mistakes []Mistake
}

func (p *parser) value(path string, depth int) (n node, err error) {
	if depth > maxDepth {
		return n, errTooDeep
	}
	token, err := p.Token()
	if err != nil {
		return n, err
	}
	start := p.InputOffset()
	delim, ok := token.(json.Delim)
	if !ok {
		n.value = token
		return n, nil
	}
	start--
	if delim == '[' {
		list := []node{}
		for p.More() {
			item, err := p.value(fmt.Sprintf("%s[%d]", path, len(list)), depth+1)
			if err != nil {
				return n, err
			}
			list = append(list, item)
		}
		n.value = list
	} else {
		members, seen := []member{}, map[string]bool{}
		for p.More() {
			token, err := p.Token()
			if err != nil {
				return n, err
			}
			name := token.(string)
			item, err := p.value(join(path, name), depth+1)
			if err != nil {
				return n, err
			}
			if seen[name] {
				p.mistakes = append(p.mistakes, Mistake{Path: join(path, name), Text: "occurs twice"})
				continue
			}
			seen[name] = true
			members = append(members, member{name, item})
		}
		n.value = members
	}
	_, err = p.Token()
	n.raw = p.data[start:p.InputOffset()]
	return n, err
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

type decoder struct{ mistakes []Mistake }

func (d *decoder) fail(path, text string, args ...any) {
	d.mistakes = append(d.mistakes, Mistake{Path: path, Text: fmt.Sprintf(text, args...)})
}

// want reports a value of another type.
func (d *decoder) want(path string, n node, what string) {
	d.fail(path, "is %s, want %s", kindOf(n), what)
}

func kindOf(n node) string {
	switch v := n.value.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case json.Number:
		return "the number " + v.String()
	case []node:
		return "a list"
	}
	return "a mapping"
}

var (
	durationType    = reflect.TypeFor[time.Duration]()
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	textType        = reflect.TypeFor[encoding.TextUnmarshaler]()
)

const aText = "a text"

// texts are the types of other packages that are written as texts, with what the texts are.
var texts = map[reflect.Type]string{
	reflect.TypeFor[time.Time]():  "a time such as 2026-01-31T18:00:00Z",
	reflect.TypeFor[slog.Level](): "debug, info, warn or error",
}

// value decodes a value. Null is the zero value, as for package json.
func (d *decoder) value(path string, n node, to reflect.Value) {
	t := to.Type()
	switch pointer := reflect.PointerTo(t); {
	case t == durationType:
		d.duration(path, n, to)
		return
	case texts[t] != "":
		text, ok := n.value.(string)
		switch {
		case n.value == nil:
		case !ok:
			d.want(path, n, texts[t])
		case to.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)) != nil:
			d.fail(path, "is %.80q, want %s", text, texts[t])
		}
		return
	case pointer.Implements(unmarshalerType):
		d.unmarshal(path, to.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(n.json()))
		return
	case n.value == nil:
		return
	case t.Kind() != reflect.Pointer && pointer.Implements(textType):
		text, ok := n.value.(string)
		if !ok {
			d.want(path, n, aText)
		} else if err := to.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			d.mistakes = append(d.mistakes, Mistake{Path: path, Text: fmt.Sprintf("is %.80q: %v", text, err), Err: err})
		}
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		if to.IsNil() {
			to.Set(reflect.New(t.Elem()))
		}
		d.value(path, n, to.Elem())
	case reflect.Struct:
		d.object(path, n, to)
	case reflect.Map:
		d.mapping(path, n, to)
	case reflect.Slice:
		d.list(path, n, to)
	case reflect.String:
		text, ok := n.value.(string)
		switch _, isBool := n.value.(bool); {
		case ok:
			to.SetString(text)
		case isBool:
			d.want(path, n, aText+"; YAML reads y, n, yes, no, on and off without quotes as true or false")
		default:
			d.want(path, n, aText)
		}
	case reflect.Bool:
		if b, ok := n.value.(bool); ok {
			to.SetBool(b)
		} else {
			d.want(path, n, "true or false")
		}
	case reflect.Float32, reflect.Float64:
		number, ok := n.value.(json.Number)
		f, err := strconv.ParseFloat(number.String(), t.Bits())
		if !ok || err != nil {
			d.want(path, n, "a number")
			return
		}
		to.SetFloat(f)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.integer(path, n, to)
	default:
		d.unmarshal(path, json.Unmarshal(n.json(), to.Addr().Interface()))
	}
}

// unmarshal reports the error of a type that has decoded itself.
func (d *decoder) unmarshal(path string, err error) {
	var all *Error
	switch {
	case err == nil:
	case errors.As(err, &all):
		for _, m := range all.Mistakes {
			switch {
			case m.Path == "":
				m.Path = path
			case strings.HasPrefix(m.Path, "["):
				m.Path = path + m.Path
			default:
				m.Path = join(path, m.Path)
			}
			d.mistakes = append(d.mistakes, m)
		}
	default:
		text := "cannot be read: " + err.Error()
		if typed := (*json.UnmarshalTypeError)(nil); errors.As(err, &typed) {
			text = fmt.Sprintf("is a %s, which has no textual form", typed.Value)
		}
		d.mistakes = append(d.mistakes, Mistake{Path: path, Text: strings.ReplaceAll(text, "%s", "%%s"), Err: err})
	}
}

func (d *decoder) duration(path string, n node, to reflect.Value) {
	const want = "a duration such as 100ms"
	text, ok := n.value.(string)
	if !ok {
		if n.value != nil {
			d.want(path, n, want)
		}
		return
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		d.fail(path, "is %.80q, want %s", text, want)
		return
	}
	to.SetInt(int64(parsed))
}

// integer decodes a whole number, or a quantity of bytes.
func (d *decoder) integer(path string, n node, to reflect.Value) {
	want, bytes := "a whole number", strings.HasSuffix(path, "Bytes")
	if bytes {
		want += " of bytes or a quantity such as 64Mi"
	}
	var text string
	switch v := n.value.(type) {
	case json.Number:
		text = v.String()
	case string:
		number, err := quantity(v)
		if !bytes || err != nil {
			if bytes {
				d.fail(path, "is %.80q, want %s", v, want)
			} else {
				d.want(path, n, want)
			}
			return
		}
		text = strconv.FormatUint(number, 10)
	default:
		d.want(path, n, want)
		return
	}
	if to.CanUint() {
		number, err := strconv.ParseUint(text, 10, 64)
		switch {
		case errors.Is(err, strconv.ErrRange) || err == nil && to.OverflowUint(number):
			d.fail(path, "is %.80s, want at most %d", text, uint64(math.MaxUint64)>>(64-to.Type().Bits()))
		case err != nil:
			if _, negative := strings.CutPrefix(text, "-"); negative && want == "a whole number" {
				want += " that is not negative"
			}
			d.fail(path, "is the number %.80s, want %s", text, want)
		default:
			to.SetUint(number)
		}
		return
	}
	number, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || err == nil && to.OverflowInt(number):
		d.fail(path, "is %.80s, want a number of at most %d bits", text, to.Type().Bits())
	case err != nil:
		d.fail(path, "is the number %.80s, want %s", text, want)
	default:
		to.SetInt(number)
	}
}

// units are the suffixes of quantities.
var units = map[string]float64{
	"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
}

// quantity returns the number of bytes that a text such as 64Mi or 1.5G stands for.
func quantity(text string) (uint64, error) {
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(text)
	}
	unit, ok := units[text[end:]]
	if !ok || len(text) > 32 {
		return 0, errors.New("no quantity")
	}
	if whole, err := strconv.ParseUint(text[:end], 10, 64); err == nil {
		if product := whole * uint64(unit); whole == 0 || product/whole == uint64(unit) {
			return product, nil
		}
		return 0, errors.New("out of range")
	}
	number, err := strconv.ParseFloat(text[:end], 64)
	if number *= unit; err != nil || number < 0 || number >= 1<<63 || number != math.Trunc(number) {
		return 0, errors.New("not a whole number of bytes")
	}
	return uint64(number), nil
}

func (d *decoder) list(path string, n node, to reflect.Value) {
	t := to.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		text, ok := n.value.(string)
		if !ok {
			d.want(path, n, "base64")
			return
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			d.fail(path, "is not base64: %v", err)
			return
		}
		to.SetBytes(data)
		return
	}
	list, ok := n.value.([]node)
	if !ok {
		want := "a list"
		if t.Elem().Kind() == reflect.String {
			want += " of texts"
		}
		d.want(path, n, want)
		return
	}
	items := reflect.MakeSlice(t, len(list), len(list))
	for i := range list {
		d.value(fmt.Sprintf("%s[%d]", path, i), list[i], items.Index(i))
	}
	to.Set(items)
}

func (d *decoder) mapping(path string, n node, to reflect.Value) {
	t := to.Type()
	members, ok := n.value.([]member)
	if !ok {
		d.want(path, n, "a mapping")
		return
	}
	if t.Key().Kind() != reflect.String {
		d.unmarshal(path, json.Unmarshal(n.json(), to.Addr().Interface()))
		return
	}
	if to.IsNil() {
		to.Set(reflect.MakeMapWithSize(t, len(members)))
	}
	for _, m := range members {
		item := reflect.New(t.Elem()).Elem()
		d.value(join(path, m.name), m.value, item)
		to.SetMapIndex(reflect.ValueOf(m.name).Convert(t.Key()), item)
	}
}

func (d *decoder) object(path string, n node, to reflect.Value) {
	if n.value == nil {
		return
	}
	members, ok := n.value.([]member)
	if !ok {
		d.want(path, n, "a mapping")
		return
	}
	known := jsonfields.Of(to.Type())
	for _, m := range members {
		i := slices.IndexFunc(known, func(f jsonfields.Field) bool { return f.Name == m.name })
		if i < 0 {
			names := make([]string, len(known))
			for i, f := range known {
				names[i] = f.Name
			}
			slices.Sort(names)
			d.fail(join(path, m.name), "unknown field %%s%s", strings.ReplaceAll(nearest.Hint(", ", m.name, names), "%", "%%"))
			continue
		}
		field, err := to.FieldByIndexErr(known[i].Index)
		if err != nil { // An embedded pointer.
			d.fail(path, "has %s in the wrong place: %v", m.name, err)
			continue
		}
		d.value(join(path, m.name), m.value, field)
	}
}

// Marshal returns a struct in JSON as package json does, with durations as texts. It is for the
// method MarshalJSON of a type, passed as a type without that method; package json marshals the
// values of its fields.
func Marshal(of any) ([]byte, error) {
	v := reflect.ValueOf(of)
	out := []byte{'{'}
	for _, f := range jsonfields.Of(v.Type()) {
		value, err := v.FieldByIndexErr(f.Index)
		if err != nil || f.Omit == "omitzero" && isZero(value) || f.Omit == "omitempty" && isEmpty(value) {
			continue
		}
		item := value.Interface()
		if f.Type == durationType {
			item = time.Duration(value.Int()).String()
		}
		text, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(strconv.AppendQuote(out, f.Name), ':'), text...)
	}
	return append(out, '}'), nil
}

func isZero(v reflect.Value) bool {
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok {
		return z.IsZero()
	}
	return v.IsZero()
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String, reflect.Array:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}
