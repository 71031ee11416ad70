package bindgen

import (
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// asPackage is the npm package that generated views use.
const asPackage = "kubewasm"

// asWriter writes one file of AssemblyScript.
type asWriter struct {
	pkg  *Package
	body strings.Builder
	// imports are the names that the file imports, by the module.
	imports map[string]map[string]bool
	// files are the modules of the messages of the package, by their names.
	files map[string]string
	file  string
}

// writeAS returns the files of a package for --lang as: a class for each message, those of an
// object of Kubernetes in one file, and index.ts, which exports them all.
func writeAS(p *Package) ([]File, error) {
	p, err := asNames.named(p)
	if err != nil {
		return nil, err
	}
	modules := map[string]string{}
	var writers []*asWriter
	next := func(file string) *asWriter {
		w := &asWriter{pkg: p, imports: map[string]map[string]bool{}, files: modules, file: file}
		writers = append(writers, w)
		return w
	}
	for _, f := range families(p.Messages) {
		w, size := next(f.name), 0
		for _, m := range f.messages {
			if size > maxFile/2 {
				w, size = next(fmt.Sprintf("%s%d", f.name, len(writers))), 0
			}
			modules[m.Name] = w.file
			for _, field := range m.Fields {
				size += 150 + len(sentence(field.Doc))
			}
		}
	}
	for _, e := range p.Enums {
		modules[e.Name] = "values"
	}
	for _, m := range p.Messages {
		for _, w := range writers {
			if w.file == modules[m.Name] {
				w.message(m)
			}
		}
	}
	if len(p.Enums) > 0 || len(p.Constants) > 0 {
		w := next("values")
		for _, e := range p.Enums {
			w.enum(e)
		}
		for _, g := range p.Constants {
			w.constants(g)
		}
	}
	if len(p.Services) > 0 {
		w := next("service")
		for _, s := range p.Services {
			if s.Host {
				w.hostService(s)
			} else {
				w.extensionPoint(s)
			}
		}
	}
	var files []File
	var index strings.Builder
	for _, w := range writers {
		files = append(files, File{w.file + ".ts", w.text()})
		fmt.Fprintf(&index, "export * from %s;\n", asString("./"+w.file))
	}
	return append(files, File{"index.ts", []byte(header(p.Source) + "\n" + index.String())}), nil
}

func (w *asWriter) printf(format string, args ...any) { fmt.Fprintf(&w.body, format, args...) }

// text returns the file.
func (w *asWriter) text() []byte {
	var b strings.Builder
	b.WriteString(header(w.pkg.Source) + "\n")
	var modules []string
	for m := range w.imports {
		modules = append(modules, m)
	}
	slices.Sort(modules)
	for _, m := range modules {
		if w.imports[m]["*"] {
			fmt.Fprintf(&b, "import * as %s from %s;\n", path.Base(m), asString(m))
			continue
		}
		var names []string
		for n := range w.imports[m] {
			names = append(names, n)
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "import { %s } from %s;\n", strings.Join(names, ", "), asString(m))
	}
	b.WriteString(w.body.String())
	return []byte(b.String())
}

func (w *asWriter) from(module, name string) string {
	if w.imports[module] == nil {
		w.imports[module] = map[string]bool{}
	}
	if name == "*" {
		w.imports[module][name] = true
		return path.Base(module)
	}
	if w.pkg.top[name] && !strings.HasPrefix(module, "./") {
		alias := strings.TrimSuffix(cName(path.Base(module)), "_") + "_" + name
		w.imports[module][name+" as "+alias] = true
		return alias
	}
	w.imports[module][name] = true
	return name
}

// local returns the name of a symbol of the package, which may lie in another file.
func (w *asWriter) local(name, declared string) string {
	if file := w.files[declared]; file != "" && file != w.file {
		return w.from("./"+file, name)
	}
	return name
}

func (w *asWriter) view(function string) string {
	return w.from(asPackage+"/view", "*") + "." + function
}

// doc writes the first sentence of a comment.
func (w *asWriter) doc(indent, text string) {
	if s := sentence(text); s != "" {
		w.printf("%s%s\n", indent, asBlock(s))
	}
}

// asValues are the classes of values, by the Go functions that read them.
var asValues = map[string]string{
	"resource.Read": "Quantity", "intstr.Read": "IntOrString", "meta.ReadTime": "Time", "meta.ReadMicroTime": "MicroTime",
	"meta.ReadDuration": "Duration", "meta.ReadGroupVersion": "GroupVersion", "meta.ReadRaw": "Raw", "meta.ReadStrings": "Strings",
	"meta.ReadTimestamp": "Timestamp", "meta.ReadSpan": "Span",
}

// class returns the class of a message, a value or an object.
func (w *asWriter) class(t Type) string {
	switch {
	case t.Kind == ValueKind:
		return w.from(asPackage+"/values", asValue(t))
	case t.Package == "" || t.Package == w.pkg.Path:
		return w.local(t.Name, t.Name)
	case strings.HasPrefix(t.Package, sdk):
		return w.from(asPackage+"/api/"+strings.TrimPrefix(t.Package, sdk), t.Name)
	}
	return w.from(t.Package, t.Name)
}

func asValue(t Type) string {
	if name, ok := asValues[path.Base(t.Read.Package)+"."+t.Read.Name]; ok {
		return name
	}
	return "Raw"
}

// asNumbers are the types of numbers.
var asNumbers = map[Kind]string{
	Bool: "bool", Int32: "i32", Int64: "i64", Uint32: "u32", Uint64: "u64", Sint32: "i32", Sint64: "i64", Fixed32: "u32",
	Fixed64: "u64", Sfixed32: "i32", Sfixed64: "i64", Float: "f32", Double: "f64", EnumKind: "i32",
}

// asKinds are the encodings of numbers other than VARINT.
var asKinds = map[string]string{"Zigzag": "ZIGZAG", "Fixed32": "FIXED32", "Fixed64": "FIXED64"}

func (w *asWriter) numberKind(k Kind) string {
	if kind, ok := asKinds[numberKinds[k]]; ok {
		return w.view(kind)
	}
	return w.view("VARINT")
}

// objectKind returns how an object of a service is read.
func (w *asWriter) objectKind(t Type) string {
	switch t.Object {
	case "Whole":
		return w.view("WHOLE")
	case "JSON":
		return w.view("JSON")
	}
	return w.view("PARTS")
}

// property returns the name of a field as that of a property: with a _ after a keyword.
func property(f *Field) string {
	name := f.JSONName
	if name == "" || f.Inlined {
		name = lower(f.Name)
	}
	var b strings.Builder
	up := false
	for i, r := range name {
		switch {
		case r >= utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			fmt.Fprintf(&b, "U%04X", r)
			up = false
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) && i > 0:
			if up {
				r = unicode.ToUpper(r)
			}
			b.WriteRune(r)
			up = false
		case r == '$' || i == 0:
			b.WriteByte('_')
		default:
			up = true
		}
	}
	if name = b.String(); slices.Contains(asKeywords, name) {
		return name + "_"
	}
	return name
}

// asKeywords are the words that are no names of properties.
var asKeywords = strings.Fields("async await implements interface let package private protected public static yield break case catch class const constructor continue default delete do else enum export extends false finally " +
	"for function if import in instanceof new null return super switch this throw true try typeof var void while with")

func (w *asWriter) message(m *Message) {
	if len(w.pkg.Services) > 0 && m.Written {
		w.builder(m)
		if !m.Read {
			return
		}
	}
	w.printf("\n")
	w.doc("", m.Doc)
	w.printf("export class %s extends %s {\n", m.Name, w.view("Message"))
	if m.Root && !m.JSON {
		w.printf("  static fromProto(raw: ArrayBuffer): %[1]s { return %[2]s<%[1]s>(raw); }\n", m.Name, w.view("fromProto"))
	}
	if m.Root {
		w.printf("  static fromJSON(raw: ArrayBuffer): %[1]s { return %[2]s<%[1]s>(raw); }\n", m.Name, w.view("fromJSON"))
	}
	for _, f := range m.Fields {
		w.accessor(f)
	}
	w.printf("}\n")
}

func (w *asWriter) accessor(f *Field) {
	result, expression := w.read(f)
	w.doc("  ", f.Doc)
	w.printf("  get %s(): %s { return %s; }\n", f.Name, result, expression)
	if f.absent() {
		w.printf("  get has%s(): bool { return %s(this, %d, %s); }\n", capital(f.Name), w.view("has"), f.Number, asString(f.JSONName))
	}
}

// read returns the type of a field and the expression that reads it.
func (w *asWriter) read(f *Field) (result, expression string) {
	t := f.Type
	name := asString(f.JSONName)
	at := fmt.Sprintf("(this, %d, %s)", f.Number, name)
	with := func(more ...string) string {
		return fmt.Sprintf("(this, %d, %s, %s)", f.Number, name, strings.Join(more, ", "))
	}
	isMessage := t.Kind == MessageKind || t.Kind == ValueKind
	switch {
	case f.Map && isMessage:
		c := w.class(t)
		return w.view("MessageMap") + "<" + c + ">", w.view("map") + "<" + c + ">" + at
	case f.Map && t.Kind == String:
		return w.view("StringMap"), w.view("strings") + at
	case f.Map && t.Kind == Bytes:
		return w.view("BytesMap"), w.view("bytesMap") + at
	case f.Map:
		n := asNumbers[t.Kind]
		return w.view("NumberMap") + "<" + n + ">", w.view("numberMap") + "<" + n + ">" + with(w.numberKind(t.Kind))
	case f.Repeated && isMessage:
		c := w.class(t)
		return c + "[]", w.view("messages") + "<" + c + ">" + at
	case f.Repeated && t.Kind == String:
		return "string[]", w.view("texts") + at
	case f.Repeated && t.Kind == Bytes:
		return "Uint8Array[]", w.view("bytesList") + at
	case f.Repeated && t.Kind == EnumKind:
		c := w.class(t)
		return c + "[]", w.view("enums") + "<" + c + ">" + with(w.enumTables(t)...)
	case f.Repeated && t.Kind == ObjectKind:
		c := w.class(t)
		return c + "[]", w.view("objects") + "<" + c + ">" + with(w.objectKind(t))
	case f.Repeated:
		n := asNumbers[t.Kind]
		return n + "[]", w.view("numbers") + "<" + n + ">" + with(w.numberKind(t.Kind))
	case f.Inlined:
		c := w.class(t)
		return c, fmt.Sprintf("%s<%s>(this, %d)", w.view("inlined"), c, f.Number)
	case isMessage:
		c := w.class(t)
		return c, w.view("message") + "<" + c + ">" + at
	}
	switch t.Kind {
	case String:
		return "string", w.view("text_") + at
	case Bytes:
		return "Uint8Array", w.view("bytes") + at
	case Bool:
		return "bool", w.view("bool_") + at
	case EnumKind:
		c := w.class(t)
		return c, "<" + c + ">" + w.view("enum_") + with(w.enumTables(t)...)
	case ObjectKind:
		c := w.class(t)
		return c, fmt.Sprintf("%s<%s>(<u64>%s(this, %d, %s), %s)", w.view("byRef"), c, w.view("fixed"), f.Number, name, w.objectKind(t))
	case Sint32, Sint64:
		return asNumbers[t.Kind], cast(t.Kind, w.view("sint")+at)
	case Fixed32, Fixed64, Sfixed32, Sfixed64:
		return asNumbers[t.Kind], cast(t.Kind, w.view("fixed")+at)
	case Float, Double:
		return asNumbers[t.Kind], cast(t.Kind, w.view("float")+at)
	}
	return asNumbers[t.Kind], cast(t.Kind, w.view("int")+at)
}

// cast converts what a function of view returns, an i64 or f64.
func cast(k Kind, expression string) string {
	switch t := asNumbers[k]; t {
	case "i64", "f64":
		return expression
	default:
		return "<" + t + ">" + expression
	}
}

// enumTables returns the tables of the names and the numbers of an enumeration.
func (w *asWriter) enumTables(t Type) []string {
	return []string{w.local(t.Name+"_names", t.Name), w.local(t.Name+"_numbers", t.Name)}
}

func (w *asWriter) enum(e *Enum) {
	w.printf("\n")
	w.doc("", e.Doc)
	w.printf("export enum %s {\n", e.Name)
	var names, numbers []string
	for _, v := range e.Values {
		w.doc("  ", v.Doc)
		w.printf("  %s = %d,\n", v.Name, v.Number)
		names = append(names, asString(v.JSONName))
		numbers = append(numbers, fmt.Sprint(v.Number))
	}
	w.printf("}\n\n")
	w.printf("export const %s_names: StaticArray<string> = [%s];\n", e.Name, strings.Join(names, ", "))
	w.printf("export const %s_numbers: StaticArray<i32> = [%s];\n", e.Name, strings.Join(numbers, ", "))
}

// member returns the name of a constant without that of its type.
func member(name, of string) string {
	if rest := strings.TrimPrefix(strings.TrimPrefix(name, of), "_"); rest != "" && !unicode.IsDigit(rune(rest[0])) {
		return rest
	}
	return name
}

func (w *asWriter) constants(g ConstantGroup) {
	w.printf("\n")
	indent := ""
	if g.Name != "" {
		w.printf("export namespace %s {\n", g.Name)
		indent = "  "
	}
	for _, c := range g.Constants {
		w.doc(indent, c.Doc)
		w.printf("%sexport const %s: string = %s;\n", indent, c.Name, asString(c.Value))
	}
	if g.Name != "" {
		w.printf("}\n")
	}
}

// extensionPoint writes the class that plugins of a service extend, and what calls them.
func (w *asWriter) extensionPoint(s *Service) {
	w.printf("\n")
	w.doc("", s.Doc)
	w.printf("@extensionPoint(%s, %q", asString(s.FullName), base64.StdEncoding.EncodeToString(w.pkg.Schema))
	for _, m := range s.Methods {
		w.printf(", %s, %s", asString(m.Name), asString(m.Wire))
	}
	w.printf(")\n")
	w.printf("export abstract class %s {\n", s.Name)
	for _, m := range s.Methods {
		w.doc("  ", m.Doc)
		w.printf("  abstract %s(req: %s, resp: %s): Error | null;\n", m.Name, w.local(m.Request, m.Request), w.written(m.Response))
	}
	w.printf("}\n")
	for _, m := range s.Methods {
		w.printf("\nexport function %s(p: %s): i32 {\n", "serve_"+s.Name+"_"+m.Name, s.Name)
		w.printf("  const resp = new %s();\n", w.written(m.Response))
		w.printf("  const err = p.%s(%s<%s>(%s()), resp);\n", m.Name, w.view("fromProto"), w.local(m.Request, m.Request), w.from(asPackage+"/service", "request"))
		w.printf("  if (err === null) resp.write_(%s());\n", w.from(asPackage+"/service", "response"))
		w.printf("  return %s(err);\n}\n", w.from(asPackage+"/service", "finish"))
	}
}

// written returns the class of a message that guests write.
func (w *asWriter) written(name string) string { return w.local(w.pkg.builderName(name), name) }

// hostService writes the functions of a service of the host.
func (w *asWriter) hostService(s *Service) {
	for _, m := range s.Methods {
		w.printf("\n// @ts-ignore: decorator\n@external(%s, %s)\n", asString(s.FullName), asString(m.Wire))
		w.printf("declare function %s(ptr: usize, len: u32): u64;\n", "import_"+s.Name+"_"+m.Name)
	}
	w.printf("\n")
	w.doc("", s.Doc)
	w.printf("export class %s {\n", s.Name)
	for i, m := range s.Methods {
		if i > 0 {
			w.printf("\n")
		}
		w.doc("  ", m.Doc)
		answer := w.from(asPackage+"/service", "Answer")
		w.printf("  static %s(req: %s): %s<%s> {\n", m.Name, w.written(m.Request), answer, w.local(m.Response, m.Response))
		w.printf("    const w = %s();\n    req.write_(w);\n", w.from(asPackage+"/service", "question"))
		w.printf("    return %s<%s>(%s(w.address, w.length));\n  }\n", w.from(asPackage+"/service", "answered"), w.local(m.Response, m.Response), "import_"+s.Name+"_"+m.Name)
	}
	w.printf("}\n")
}

// builder writes the class of a message that guests write.
func (w *asWriter) builder(m *Message) {
	w.printf("\n")
	w.doc("", m.Doc)
	w.printf("export class %s {\n", w.pkg.builderName(m.Name))
	for _, f := range m.Fields {
		w.doc("  ", f.Doc)
		t, zero := w.builderType(f)
		w.printf("  %s: %s = %s;\n", f.Name, t, zero)
		if f.asFlagged() {
			w.printf("  /** %s is written, even if it is the default. */\n", f.Name)
			w.printf("  has%s: bool = false;\n", capital(f.Name))
		}
	}
	w.printf("\n  write_(w: %s): void {\n", w.from(asPackage+"/internal/writer", "Writer"))
	for _, f := range m.Fields {
		w.write(f)
	}
	w.printf("  }\n}\n")
}

// asFlagged reports whether a field that is written has a flag, since it may be absent.
func (f *Field) asFlagged() bool {
	switch f.Type.Kind {
	case MessageKind, ValueKind, ObjectKind:
		return false
	}
	return f.Presence && !f.Repeated && !f.Map
}

// builderType returns the type of a field that is written, and its default.
func (w *asWriter) builderType(f *Field) (name, zero string) {
	t := f.Type
	switch t.Kind {
	case String:
		name, zero = "string", `""`
	case Bytes:
		name, zero = "Uint8Array", "new Uint8Array(0)"
	case Bool:
		name, zero = "bool", "false"
	case EnumKind:
		name = w.class(t)
		zero = "<" + name + ">0"
	case MessageKind:
		name, zero = w.written(t.Name), "null"
	case ValueKind, ObjectKind:
		name, zero = w.class(t), "null"
	default:
		name, zero = asNumbers[t.Kind], "0"
	}
	switch {
	case f.Map:
		return "Map<string, " + name + ">", "new Map<string, " + name + ">()"
	case f.Repeated:
		return name + "[]", "[]"
	case zero == "null":
		return name + " | null", zero
	}
	return name, zero
}

// write writes the encoding of a field.
func (w *asWriter) write(f *Field) {
	field := "this." + f.Name
	t := f.Type
	switch {
	case f.Map:
		w.printf("    for (let i = 0, keys = %[1]s.keys(); i < keys.length; i++) {\n      const at = w.begin(%[2]d);\n      w.string(1, keys[i]);\n", field, f.Number)
		w.printf("      %s\n      w.end(at);\n    }\n", w.one(t, 2, field+".get(keys[i])"))
	case f.Repeated && f.numeric() && t.Kind != ObjectKind:
		w.printf("    if (%s.length != 0) {\n      const at = w.begin(%d);\n", field, f.Number)
		w.printf("      for (let i = 0; i < %[1]s.length; i++) %[2]s\n      w.end(at);\n    }\n", field, packed(t.Kind, field+"[i]"))
	case f.Repeated:
		w.printf("    for (let i = 0; i < %s.length; i++) {\n      %s\n    }\n", field, w.one(t, f.Number, field+"[i]"))
	case t.Kind == MessageKind || t.Kind == ValueKind || t.Kind == ObjectKind:
		w.printf("    if (%s !== null) {\n      %s\n    }\n", field, w.one(t, f.Number, field+"!"))
	default:
		empty := field + " != 0"
		switch t.Kind {
		case String, Bytes:
			empty = field + ".length != 0"
		case Bool:
			empty = field
		case Float:
			empty = "reinterpret<u32>(" + field + ") != 0"
		case Double:
			empty = "reinterpret<u64>(" + field + ") != 0"
		}
		if f.asFlagged() {
			empty += " || this.has" + capital(f.Name)
		}
		w.printf("    if (%s) %s\n", empty, w.one(t, f.Number, field))
	}
}

// one returns the statements that write one value.
func (w *asWriter) one(t Type, number uint32, value string) string {
	switch t.Kind {
	case String:
		return fmt.Sprintf("w.string(%d, %s);", number, value)
	case Bytes:
		return fmt.Sprintf("w.bytes(%d, %s);", number, value)
	case Sint32, Sint64:
		return fmt.Sprintf("w.zigzag(%d, %s);", number, value)
	case Fixed32, Sfixed32:
		return fmt.Sprintf("w.fixed32(%d, %s);", number, value)
	case Fixed64, Sfixed64:
		return fmt.Sprintf("w.fixed64(%d, %s);", number, value)
	case Float:
		return fmt.Sprintf("w.fixed32(%d, reinterpret<u32>(%s));", number, value)
	case Double:
		return fmt.Sprintf("w.fixed64(%d, reinterpret<u64>(%s));", number, value)
	case ObjectKind:
		return fmt.Sprintf("w.fixed64(%d, %s(%s));", number, w.view("refOf"), value)
	case MessageKind, ValueKind:
		return fmt.Sprintf("{ const at = w.begin(%d); %s.write_(w); w.end(at); }", number, value)
	case EnumKind, Int32:
		return fmt.Sprintf("w.varint(%d, <u64><i64>%s);", number, value)
	}
	return fmt.Sprintf("w.varint(%d, %s);", number, value)
}

// packed returns the statement that writes a number of a list without its key.
func packed(k Kind, value string) string {
	switch k {
	case Sint32, Sint64:
		return "w.raw(<u64>((<i64>" + value + ") << 1 ^ (<i64>" + value + ") >> 63));"
	case Fixed32, Sfixed32:
		return "w.raw32(" + value + ");"
	case Fixed64, Sfixed64:
		return "w.raw64(" + value + ");"
	case Float:
		return "w.raw32(reinterpret<u32>(" + value + "));"
	case Double:
		return "w.raw64(reinterpret<u64>(" + value + "));"
	case EnumKind, Int32:
		return "w.raw(<u64><i64>" + value + ");"
	}
	return "w.raw(" + value + ");"
}
