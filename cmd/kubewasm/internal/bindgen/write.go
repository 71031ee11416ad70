package bindgen

import (
	"fmt"
	"go/format"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// viewPackage is the package that generated views use.
const viewPackage = "github.com/kubewasm/kubewasm/guest/view"

const abiPackage = "github.com/kubewasm/kubewasm/abi"

// maxFile is the length in bytes after which a family continues in another file.
const maxFile = 250_000

// File is a file of Go source.
type File struct {
	Name string
	Text []byte
}

// Write returns the files of a package, one for each family of messages: an
// object of Kubernetes with what it is made of. A family of more than 250 KB has
// several.
func Write(p *Package) ([]File, error) {
	p, err := goNames.named(p)
	if err != nil {
		return nil, err
	}
	var files []File
	add := func(w *writer, name string) error {
		text, err := w.file()
		if err != nil {
			return fmt.Errorf("format %s: %w", name, err)
		}
		files = append(files, File{name, text})
		return nil
	}
	var messages []*Message
	if len(p.Services) == 0 {
		messages = p.Messages // Those of services are written by WriteGuest.
	}
	for _, f := range families(messages) {
		w, name, part := newWriter(p), f.name, 1
		for i, m := range f.messages {
			if w.message(m); w.body.Len() < maxFile && i+1 < len(f.messages) {
				continue
			}
			if err := add(w, name+".gen.go"); err != nil {
				return nil, err
			}
			part++
			w, name = newWriter(p), fmt.Sprintf("%s%d", f.name, part)
		}
	}
	if len(p.Enums) > 0 || len(p.Constants) > 0 {
		w := newWriter(p)
		for _, e := range p.Enums {
			w.enum(e)
		}
		for _, g := range p.Constants {
			w.constants(g)
		}
		if err := add(w, "values.gen.go"); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// family is the messages of one file.
type family struct {
	name     string
	messages []*Message
}

// families sorts the messages into files. A message belongs to the object that it is a part
// of: of several objects, to the one that it is named after, or else to the first by name.
func families(messages []*Message) []family {
	byName := map[string]*Message{}
	var kinds []string
	for _, m := range messages {
		byName[m.Name] = m
		if m.Kind {
			kinds = append(kinds, m.Name)
		}
	}
	slices.Sort(kinds)
	reached := map[string]map[string]bool{}
	for _, k := range kinds {
		reached[k] = map[string]bool{}
		reach(byName, k, reached[k])
	}
	owner := func(name string) string {
		best := ""
		for _, k := range kinds {
			if strings.HasPrefix(name, k) && len(k) > len(best) && (reached[k][name] || name == k+"List") {
				best = k
			}
		}
		if best != "" {
			return best
		}
		for _, k := range kinds {
			if reached[k][name] {
				return k
			}
		}
		return "Types"
	}
	var out []family
	at := map[string]int{}
	for _, m := range messages {
		name := strings.ToLower(owner(m.Name))
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out = append(out, family{name: name})
		}
		out[i].messages = append(out[i].messages, m)
	}
	return out
}

// reach adds the messages of the package that are parts of a message to seen.
func reach(byName map[string]*Message, name string, seen map[string]bool) {
	m := byName[name]
	if m == nil || seen[name] {
		return
	}
	seen[name] = true
	for _, f := range m.Fields {
		if f.Type.Kind == MessageKind && f.Type.Package == "" {
			reach(byName, f.Type.Name, seen)
		}
	}
}

// writer writes one file.
type writer struct {
	pkg     *Package
	body    strings.Builder
	imports map[string]bool
	// names are the names of the imports, and taken those that are taken in the file.
	names map[string]string
	taken scope
	// tags is the build constraint of the file, empty if there is none.
	tags string
}

func newWriter(p *Package) *writer {
	w := &writer{pkg: p, imports: map[string]bool{}, names: map[string]string{}, taken: scopeOf(goLocals)}
	for _, name := range goPredeclared {
		w.taken[name] = true
	}
	return w
}

// goLocals are the parameters and variables in generated functions.
var goLocals = append(strings.Fields("at cfg ctx err hosts in inner old ptr raw ref req request resp rt serviceSchema text"), strings.Split("abcdefghijklmnopqrstuvwxyz", "")...)

func (w *writer) printf(format string, args ...any) { fmt.Fprintf(&w.body, format, args...) }

// file returns the text of the file.
func (w *writer) file() ([]byte, error) {
	var b strings.Builder
	b.WriteString(header(w.pkg.Source) + "\n")
	if w.tags != "" {
		fmt.Fprintf(&b, "//go:build %s\n\n", w.tags)
	}
	fmt.Fprintf(&b, "package %s\n\n", w.pkg.Name)
	var standard, others []string
	for p := range w.imports {
		if strings.Contains(p, ".") {
			others = append(others, p)
		} else {
			standard = append(standard, p)
		}
	}
	b.WriteString("import (\n")
	for _, list := range [][]string{standard, others} {
		slices.Sort(list)
		for _, p := range list {
			if name := w.names[p]; name != path.Base(p) {
				fmt.Fprintf(&b, "\t%s %q\n", name, p)
			} else {
				fmt.Fprintf(&b, "\t%q\n", p)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString(")\n")
	b.WriteString(w.body.String())
	return format.Source([]byte(b.String()))
}

// name returns the name of a symbol within the file.
func (w *writer) name(pkg, name string) string {
	if pkg == "" || pkg == w.pkg.Path {
		return name
	}
	if !w.imports[pkg] {
		w.imports[pkg] = true
		w.names[pkg] = w.taken.take(importName(pkg), nil)
	}
	return w.names[pkg] + "." + name
}

var versionRE = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// importName returns the name by which a file imports a package: corev1 for k8s.io/api/core/v1.
func importName(pkg string) string {
	base := path.Base(pkg)
	if versionRE.MatchString(base) {
		base = path.Base(path.Dir(pkg)) + base
	}
	name := strings.Map(func(r rune) rune {
		if r == '_' || r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			return r
		}
		return -1
	}, base)
	if name == "" || unicode.IsDigit(rune(name[0])) || token.IsKeyword(name) {
		return "pkg" + name
	}
	return name
}

// typeVar and valuesVar return the variables with what a view needs to know of a message and of an
// enumeration.
func (w *writer) typeVar(pkg, name string) string   { return w.made(pkg, "TypeOf"+name) }
func (w *writer) valuesVar(pkg, name string) string { return w.made(pkg, "ValuesOf"+name) }

// made returns the name of what a package makes of a declaration.
func (w *writer) made(pkg, name string) string {
	if pkg == "" || pkg == w.pkg.Path {
		return w.pkg.made(name)
	}
	return w.name(pkg, name)
}

func (w *writer) symbol(s Symbol) string { return w.name(s.Package, s.Name) }

func (w *writer) view(name string) string { return w.name(viewPackage, name) }

func (w *writer) message(m *Message) {
	w.printf("\n%s", comment(m.Name, "is a view of "+article(m.Name)+".", m.Doc))
	w.printf("type %s %s\n\n", m.Name, w.view("View"))
	w.typeOf(m)
	typ := w.typeVar("", m.Name)
	if m.Root && !m.JSON {
		function := w.pkg.made(m.Name + "FromProto")
		w.printf("\n%s", wrap(function+" returns a view of the protobuf message in raw, which must not be written to any more."))
		w.printf("func %[2]s(raw []byte) %[1]s { return %[1]s(%[3]s(raw, &%[4]s)) }\n", m.Name, function, w.view("FromProto"), typ)
	}
	if m.Root {
		function := w.pkg.made(m.Name + "FromJSON")
		w.printf("\n%s", wrap(function+" returns a view of the JSON object in raw, which must not be written to any more."))
		w.printf("func %[2]s(raw []byte) %[1]s { return %[1]s(%[3]s(raw, &%[4]s)) }\n", m.Name, function, w.view("FromJSON"), typ)
	}
	if m.Kind && !m.JSON {
		function := w.pkg.made(m.Name + "FromRef")
		w.printf("\n%s", wrap(function+" returns a view of what the host knows by ref, in the memory of old, a view of an earlier version. It is for the packages of the SDK."))
		w.printf("func %[2]s(old %[1]s, ref %[3]s) %[1]s {\n\treturn %[1]s(%[4]s(%[5]s(old), ref, &%[6]s))\n}\n",
			m.Name, function, w.name(abiPackage, "Ref"), w.view("FromRef"), w.view("View"), typ)
	}
	receiver := strings.ToLower(m.Name[:1])
	for i, f := range m.Fields {
		w.accessor(m, receiver, f, index(m, i))
	}
}

// sparse reports whether the numbers of the fields are too far apart to be
// indexes.
func sparse(m *Message) bool {
	last := uint32(0)
	for _, f := range m.Fields {
		last = max(last, f.Number)
	}
	return last > uint32(2*len(m.Fields)+40)
}

// index returns the number by which the accessors read the i-th field.
func index(m *Message, i int) uint32 {
	if !sparse(m) {
		return m.Fields[i].Number
	}
	n := uint32(1)
	for _, f := range m.Fields {
		if f.Number < m.Fields[i].Number {
			n++
		}
	}
	return n
}

func (w *writer) typeOf(m *Message) {
	byIndex := map[uint32]*Field{}
	var indexes []uint32
	for i, f := range m.Fields {
		n := index(m, i)
		byIndex[n] = f
		indexes = append(indexes, n)
	}
	slices.Sort(indexes)
	w.printf("// %[1]s is for generated code.\nvar %[1]s = %[2]s{\n\tNames: []string{", w.typeVar("", m.Name), w.view("Type"))
	if len(indexes) == 0 {
		w.printf("\"\"")
	}
	var numbers, inlined []string
	for i, n := range indexes {
		f := byIndex[n]
		if i > 0 {
			w.printf(", ")
		}
		name := f.JSONName
		if f.Inlined {
			name = ""
			inlined = append(inlined, fmt.Sprint(n))
		}
		w.printf("%d: %q", n, name)
		numbers = append(numbers, fmt.Sprintf("%d: %d", n, f.Number))
	}
	w.printf("},\n")
	if sparse(m) {
		w.printf("\tNumbers: []uint32{%s},\n", strings.Join(numbers, ", "))
	}
	if len(inlined) > 0 {
		w.printf("\tInlined: []uint32{%s},\n", strings.Join(inlined, ", "))
	}
	w.printf("}\n")
}

// goTypes are the types that accessors return.
var goTypes = map[Kind]string{
	String: "string", Bytes: "[]byte", Bool: "bool", Int32: "int32", Int64: "int64", Uint32: "uint32", Uint64: "uint64",
	Sint32: "int32", Sint64: "int64", Fixed32: "uint32", Fixed64: "uint64", Sfixed32: "int32", Sfixed64: "int64",
	Float: "float32", Double: "float64",
}

// numberKinds are the encodings of numbers other than Varint.
var numberKinds = map[Kind]string{
	Sint32: "Zigzag", Sint64: "Zigzag", Fixed32: "Fixed32", Sfixed32: "Fixed32", Float: "Fixed32",
	Fixed64: "Fixed64", Sfixed64: "Fixed64", Double: "Fixed64",
}

func (w *writer) goType(t Type) string {
	switch t.Kind {
	case MessageKind, EnumKind, ObjectKind:
		return w.name(t.Package, t.Name)
	case ValueKind:
		return w.symbol(t.GoType)
	}
	return goTypes[t.Kind]
}

func (w *writer) numberKind(k Kind) string {
	if kind, ok := numberKinds[k]; ok {
		return w.view(kind)
	}
	return w.view("Varint")
}

func (w *writer) accessor(m *Message, receiver string, f *Field, n uint32) {
	view := w.view("View") + "(" + receiver + ")"
	var result, expression string
	switch {
	case f.Map:
		result, expression = w.mapAccessor(view, f.Type, n)
	case f.Repeated:
		result = "[]" + w.goType(f.Type)
		expression = w.listAccessor(view, f.Type, n)
	default:
		result = w.goType(f.Type)
		expression = w.oneAccessor(view, f.Type, n)
	}
	w.printf("\n%sfunc (%s %s) %s() %s { return %s }\n", comment(f.Name, "returns the field "+f.JSONName+".", f.Doc), receiver, m.Name, f.Name, result, expression)
	if f.absent() {
		w.printf("\n%s", wrap("Has"+f.Name+" reports whether there is a field "+f.JSONName+"."))
		w.printf("func (%s %s) Has%s() bool { return %s.Has(%d) }\n", receiver, m.Name, f.Name, view, n)
	}
}

func (w *writer) oneAccessor(view string, t Type, n uint32) string {
	switch t.Kind {
	case String:
		return fmt.Sprintf("%s.Text(%d)", view, n)
	case Bytes:
		return fmt.Sprintf("%s.Bytes(%d)", view, n)
	case Bool:
		return fmt.Sprintf("%s.Bool(%d)", view, n)
	case Int64:
		return fmt.Sprintf("%s.Int64(%d)", view, n)
	case Sint64:
		return fmt.Sprintf("%s.Sint64(%d)", view, n)
	case Sint32:
		return fmt.Sprintf("int32(%s.Sint64(%d))", view, n)
	case Float:
		return fmt.Sprintf("%s.Float32(%d)", view, n)
	case Double:
		return fmt.Sprintf("%s.Float64(%d)", view, n)
	case ObjectKind:
		return fmt.Sprintf("%s(%s.Object(%d, &%s, %s))", w.goType(t), view, n, w.typeVar(t.Package, t.Name), w.view(t.Object))
	case MessageKind:
		return fmt.Sprintf("%s(%s.Message(%d, &%s))", w.goType(t), view, n, w.typeVar(t.Package, t.Name))
	case EnumKind:
		return fmt.Sprintf("%s(%s.Enum(%d, %s))", w.goType(t), view, n, w.valuesVar(t.Package, t.Name))
	case ValueKind:
		return fmt.Sprintf("%s(%s.Value(%d))", w.symbol(t.Read), view, n)
	}
	return fmt.Sprintf("%s(%s.Int64(%d))", w.goType(t), view, n)
}

func (w *writer) listAccessor(view string, t Type, n uint32) string {
	switch t.Kind {
	case String:
		return fmt.Sprintf("%s.Strings(%d)", view, n)
	case Bytes:
		return fmt.Sprintf("%s(%s, %d, %s)", w.view("Values"), view, n, w.view("Data"))
	case Bool:
		return fmt.Sprintf("%s(%s, %d)", w.view("Bools"), view, n)
	case Float, Double:
		return fmt.Sprintf("%s[%s](%s, %d, %s)", w.view("Floats"), w.goType(t), view, n, w.numberKind(t.Kind))
	case ObjectKind:
		return fmt.Sprintf("%s[%s](%s, %d, &%s, %s)", w.view("Objects"), w.goType(t), view, n, w.typeVar(t.Package, t.Name), w.view(t.Object))
	case MessageKind:
		return fmt.Sprintf("%s[%s](%s, %d, &%s)", w.view("List"), w.goType(t), view, n, w.typeVar(t.Package, t.Name))
	case EnumKind:
		return fmt.Sprintf("%s[%s](%s, %d, %s)", w.view("Enums"), w.goType(t), view, n, w.valuesVar(t.Package, t.Name))
	case ValueKind:
		return fmt.Sprintf("%s(%s, %d, %s)", w.view("Values"), view, n, w.symbol(t.Read))
	}
	return fmt.Sprintf("%s[%s](%s, %d, %s)", w.view("Ints"), w.goType(t), view, n, w.numberKind(t.Kind))
}

func (w *writer) mapAccessor(view string, t Type, n uint32) (result, expression string) {
	result = w.view("Map") + "[" + w.goType(t) + "]"
	of := func(read string) (string, string) {
		return result, fmt.Sprintf("%s(%s, %d, %s)", w.view("MapOf"), view, n, read)
	}
	switch t.Kind {
	case String:
		return w.view("StringMap"), fmt.Sprintf("%s.StringMap(%d)", view, n)
	case Bytes:
		return of(w.view("Data"))
	case Bool:
		return of(w.view("Bool"))
	case Float, Double:
		return of(fmt.Sprintf("%s[%s](%s)", w.view("Float"), w.goType(t), w.numberKind(t.Kind)))
	case MessageKind:
		return w.view("MessageMap") + "[" + w.goType(t) + "]",
			fmt.Sprintf("%s[%s](%s, %d, &%s)", w.view("MessageMapOf"), w.goType(t), view, n, w.typeVar(t.Package, t.Name))
	case EnumKind:
		return of(fmt.Sprintf("%s[%s](%s)", w.view("Enum"), w.goType(t), w.valuesVar(t.Package, t.Name)))
	case ValueKind:
		return of(w.symbol(t.Read))
	}
	return of(fmt.Sprintf("%s[%s](%s)", w.view("Int"), w.goType(t), w.numberKind(t.Kind)))
}

func (w *writer) enum(e *Enum) {
	w.printf("\n%stype %s int32\n\n", comment(e.Name, "is an enumeration.", e.Doc), e.Name)
	w.printf("// The values of %s.\nconst (\n", e.Name)
	for _, v := range e.Values {
		if d := sentence(v.Doc); d != "" {
			w.printf("%s", comment(v.Name, "is "+v.JSONName+".", v.Doc))
		}
		w.printf("%s %s = %d\n", v.Name, e.Name, v.Number)
	}
	if w.printf(")\n"); len(w.pkg.Services) != 0 {
		return // They are read from protobuf only.
	}
	w.printf("\n// %[1]s is for generated code.\nvar %[1]s = []%[2]s{\n", w.valuesVar("", e.Name), w.view("EnumValue"))
	for _, v := range e.Values {
		w.printf("{Name: %q, Number: %d},\n", v.JSONName, v.Number)
	}
	w.printf("}\n")
}

func (w *writer) constants(g ConstantGroup) {
	if g.Name != "" {
		w.printf("\n%sconst (\n", wrap("The values of "+g.Name+"."))
	} else {
		w.printf("\n// Strings with a meaning.\nconst (\n")
	}
	for _, c := range g.Constants {
		if d := sentence(c.Doc); d != "" {
			w.printf("%s", wrap(d))
		}
		w.printf("%s = %s\n", c.Name, strconv.Quote(c.Value))
	}
	w.printf(")\n")
}

// comment returns a comment that begins with name and goes on with the first sentence of the
// source's comment, or with otherwise.
func comment(name, otherwise, source string) string {
	s, old := strings.CutSuffix(sentence(source), deprecated)
	behind := ""
	if old {
		behind = "//\n" + wrap(deprecated)
	}
	first, rest, _ := strings.Cut(strings.TrimSpace(s), " ")
	if strings.EqualFold(strings.Trim(first, "`'\":,"), name) && rest != "" {
		return wrap(name+" "+rest) + behind
	}
	return wrap(name+" "+otherwise+" "+s) + behind
}

// deprecated is the paragraph behind the documentation of what the source marks as deprecated.
const deprecated = "Deprecated: the source marks it so."

// sentence returns the first sentence of a comment, and that it is deprecated.
func sentence(text string) string {
	if rest, old := strings.CutSuffix(text, deprecated); old {
		return strings.TrimSpace(sentence(rest) + " " + deprecated)
	}
	var words []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "TODO") {
			break
		}
		if line == "" {
			if len(words) > 0 {
				break
			}
			continue
		}
		words = append(words, strings.Fields(line)...)
	}
	for i, word := range words {
		// Not "e.g." and "i.e.".
		if strings.HasSuffix(word, ".") && strings.Count(word, ".") == 1 && (i+1 == len(words) || startsSentence(words[i+1])) {
			words = words[:i+1]
			break
		}
	}
	s := strings.TrimRight(strings.Join(words, " "), ":;,")
	if s != "" && !strings.ContainsAny(s[len(s)-1:], ".!?)") {
		s += "."
	}
	return s
}

func startsSentence(word string) bool {
	r, _ := utf8.DecodeRuneInString(word)
	return !unicode.IsLower(r)
}

func article(name string) string {
	if strings.ContainsAny(name[:1], "AEIOU") {
		return "an " + name
	}
	return "a " + name
}
