package bindgen

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// writeRust returns the files of a module of Rust: mod.rs and a file for each family of
// messages. If the package has services, services.rs has them and what guests write.
func writeRust(p *Package) ([]File, error) {
	p, err := rustTable.named(p)
	if err != nil {
		return nil, err
	}
	r := &rustPackage{p}
	var files []File
	var modules []string
	add := func(name string, w *rustWriter) {
		if w.body.Len() != 0 {
			modules = append(modules, name)
			files = append(files, File{name + ".rs", w.file("")})
		}
	}
	for _, f := range families(p.Messages) {
		w, name, part := r.writer(), snake(f.name), 1
		for i, m := range f.messages {
			if m.Read || !m.Written {
				w.message(m)
			}
			if w.body.Len() < maxFile && i+1 < len(f.messages) {
				continue
			}
			add(name, w)
			part++
			w, name = r.writer(), fmt.Sprintf("%s%d", snake(f.name), part)
		}
	}
	values := r.writer()
	for _, e := range p.Enums {
		values.enum(e)
	}
	for _, g := range p.Constants {
		values.constants(g)
	}
	add("values", values)
	service := r.writer()
	service.services()
	add("services", service)
	main := r.writer()
	main.printf("//! Views of the messages of %s.\n\n", plain(p.Source))
	for _, name := range modules {
		if name == "services" {
			main.printf("#[macro_use]\n")
		}
		main.printf("mod %s;\n", name)
	}
	main.printf("\n")
	for _, name := range modules {
		main.printf("pub use self::%s::*;\n", name)
	}
	if len(p.Services) != 0 {
		main.printf("#[allow(unused_imports)]\npub(crate) use exports;\n")
	}
	return append(files, File{"mod.rs", main.plain()}), nil
}

// rustPackage is a package with the names of Rust.
type rustPackage struct{ *Package }

func (r *rustPackage) writer() *rustWriter { return &rustWriter{pkg: r} }

// rustWriter writes one file.
type rustWriter struct {
	pkg  *rustPackage
	body strings.Builder
}

func (w *rustWriter) printf(format string, args ...any) { fmt.Fprintf(&w.body, format, args...) }

// plain returns the text of the file without the lines that types need.
func (w *rustWriter) plain() []byte {
	return []byte(header(w.pkg.Source) + "\n" + w.body.String())
}

// file returns the text of the file.
func (w *rustWriter) file(docs string) []byte {
	return []byte(header(w.pkg.Source) + "\n" + docs + "#![allow(unused_imports, clippy::all)]\n#![cfg_attr(rustfmt, rustfmt_skip)]\n\nuse super::*;\nuse ::kubewasm::view as v;\n" + w.body.String())
}

// rustKeywords cannot be names.
var rustKeywords = strings.Fields("abstract as async await become box break const continue do dyn else enum extern false final fn for gen if impl in let loop macro match mod move mut override priv pub ref return static struct trait true try type typeof unsafe unsized use virtual where while yield")

// rustIdent returns a name in snake case, also if it is a keyword.
func rustIdent(name string) string {
	name = snake(name)
	switch {
	case slices.Contains(rustKeywords, name):
		return "r#" + name
	case name == "self" || name == "super" || name == "crate":
		return name + "_"
	}
	return name
}

// snake returns fooBar, FooBar and podIPs as foo_bar, foo_bar and pod_ips.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	at := func(i int) rune {
		if i < 0 || i >= len(runes) {
			return 0
		}
		return runes[i]
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = '_'
		case r >= utf8.RuneSelf:
			fmt.Fprintf(&b, "u%04x", r)
			continue
		case unicode.IsUpper(r) && i > 0:
			next := at(i + 1)
			// The plural of an acronym is a part of it: IPs, CIDRs.
			plural := next == 's' && unicode.IsUpper(at(i-1)) && !unicode.IsLower(at(i+2))
			if unicode.IsLower(at(i-1)) || unicode.IsDigit(at(i-1)) || unicode.IsUpper(at(i-1)) && unicode.IsLower(next) && !plural {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	out := b.String()
	for strings.Contains(out, "__") {
		out = strings.ReplaceAll(out, "__", "_")
	}
	out = strings.Trim(out, "_")
	if out == "" || unicode.IsDigit(rune(out[0])) {
		out = "x" + out
	}
	return out
}

// screamingSnake returns a name as that of a constant.
func screamingSnake(name string) string { return strings.ToUpper(snake(name)) }

// rustComment returns a comment on what the source documents, empty without documentation.
func rustComment(indent, source string) string {
	text := sentence(source)
	if text == "" {
		return ""
	}
	return rustDoc(indent, text)
}

// rustValues are the types of values by those of Go: the type in fields, and what an accessor
// returns.
var rustValues = map[Symbol][2]string{
	{sdk + "resource", "Read"}:      {"::kubewasm::value::Quantity", "::kubewasm::value::Quantity"},
	{sdk + "intstr", "Read"}:        {"::kubewasm::value::IntOrString<'a>", "::kubewasm::value::IntOrString<'a>"},
	{sdk + "meta", "ReadTime"}:      {"::kubewasm::value::Time", "Option<::kubewasm::value::Time>"},
	{sdk + "meta", "ReadMicroTime"}: {"::kubewasm::value::Time", "Option<::kubewasm::value::Time>"},
	{sdk + "meta", "ReadTimestamp"}: {"::kubewasm::value::Time", "Option<::kubewasm::value::Time>"},
	{sdk + "meta", "ReadDuration"}:  {"::kubewasm::value::Duration", "::kubewasm::value::Duration"},
	{sdk + "meta", "ReadSpan"}:      {"::kubewasm::value::Span", "::kubewasm::value::Duration"},
	{sdk + "meta", "ReadGroupVersion"}: {
		"::kubewasm::value::GroupVersion<'a>", "::kubewasm::value::GroupVersion<'a>",
	},
	{sdk + "meta", "ReadRaw"}:     {"v::Raw<'a>", "&'a [u8]"},
	{sdk + "meta", "ReadStrings"}: {"::kubewasm::value::Strings<'a>", "v::List<'a, &'a str>"},
}

// rustKinds are the types of the other fields, likewise.
var rustKinds = map[Kind][2]string{
	String: {"&'a str", "&'a str"}, Bytes: {"&'a [u8]", "&'a [u8]"}, Bool: {"bool", "bool"},
	Int32: {"i32", "i32"}, Int64: {"i64", "i64"}, Uint32: {"u32", "u32"}, Uint64: {"u64", "u64"},
	Sint32: {"v::Zigzag<i32>", "i32"}, Sint64: {"v::Zigzag<i64>", "i64"},
	Fixed32: {"v::Fixed<u32>", "u32"}, Fixed64: {"v::Fixed<u64>", "u64"},
	Sfixed32: {"v::Fixed<i32>", "i32"}, Sfixed64: {"v::Fixed<i64>", "i64"},
	Float: {"f32", "f32"}, Double: {"f64", "f64"},
}

// rustPath returns the path of a type.
func (w *rustWriter) rustPath(pkg, name string) string {
	switch {
	case pkg == "":
		return name
	case strings.HasPrefix(pkg, sdk):
		return "::kubewasm::api::" + path.Base(pkg) + "::" + name
	}
	return pkg + "::" + name
}

// types returns the type of a field and what an accessor returns.
func (w *rustWriter) types(t Type) (field, out string) {
	switch t.Kind {
	case MessageKind:
		name := w.rustPath(t.Package, t.Name) + "<'a>"
		return name, name
	case EnumKind:
		name := w.rustPath(t.Package, t.Name)
		return name, name
	case ObjectKind:
		name := w.rustPath(t.Package, t.Name) + "<'a>"
		return "v::By" + rustForm(t) + "<" + name + ">", name
	case ValueKind:
		both := rustValues[t.Read]
		return both[0], both[1]
	}
	both := rustKinds[t.Kind]
	return both[0], both[1]
}

// rustForm returns how an object is read, see ObjectForm of the crate.
func rustForm(t Type) string {
	if t.Object == "JSON" {
		return "Json"
	}
	return t.Object
}

func (w *rustWriter) message(m *Message) {
	name := w.rustPath("", m.Name)
	w.printf("\n::kubewasm::message! {\n%s    %s, %s\n}\n", rustComment("    ", cmpOr(m.Doc, m.Name+" is a message of "+w.pkg.Source+".")), name, rustString(w.pkg.Source+"#"+m.Name))
	if len(m.Fields) == 0 {
		return
	}
	w.printf("\nimpl<'a> %s<'a> {\n", name)
	for _, f := range m.Fields {
		w.printf("%s", rustComment("    ", f.Doc))
		out, expression := w.accessor(f)
		w.printf("    #[inline] pub fn %s(self) -> %s { self.0.%s }\n", f.Name, out, expression)
	}
	w.printf("}\n")
}

func cmpOr(text, otherwise string) string {
	if sentence(text) == "" {
		return otherwise
	}
	return text
}

// accessor returns the type of an accessor and how it reads.
func (w *rustWriter) accessor(f *Field) (out, expression string) {
	element, out := w.types(f.Type)
	at := fmt.Sprintf("(%d, %s)", f.Number, rustString(f.JSONName))
	switch {
	case f.Map:
		return "v::Map<'a, " + element + ">", "map" + at
	case f.Repeated:
		return "v::List<'a, " + element + ">", "list" + at
	case f.Inlined:
		return out, fmt.Sprintf("inlined(%d)", f.Number)
	case f.Type.Kind == ObjectKind:
		return "Option<" + out + ">", fmt.Sprintf("object_field(%d, %s, v::ObjectForm::%s)", f.Number, rustString(f.JSONName), rustForm(f.Type))
	case strings.HasPrefix(out, "Option<"):
		return out, "get::<" + element + ">" + at
	case f.Presence:
		return "Option<" + out + ">", "opt::<" + element + ">" + at
	case f.Type.Kind == MessageKind:
		return out, "message" + at
	case f.Type.Kind == String:
		return out, "text" + at
	}
	return out, "get::<" + element + ">" + at
}

func (w *rustWriter) enum(e *Enum) {
	w.printf("\n::kubewasm::enumeration! {\n%s    %s {\n", rustComment("    ", cmpOr(e.Doc, e.Name+" is an enumeration.")), e.Name)
	for _, v := range e.Values {
		w.printf("%s        %s = %d, %s;\n", rustComment("        ", cmpOr(v.Doc, "The value "+v.JSONName+".")), v.Name, v.Number, rustString(v.JSONName))
	}
	w.printf("    }\n}\n")
}

func (w *rustWriter) constants(g ConstantGroup) {
	w.printf("\n")
	for _, c := range g.Constants {
		w.printf("%spub const %s: &str = %s;\n", rustComment("", cmpOr(c.Doc, "The string "+strconv.Quote(c.Value)+".")), c.Name, rustString(c.Value))
	}
}
