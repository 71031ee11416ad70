package bindgen

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// writeC returns the files of a package for --lang c: one header, named after the package, whose
// names begin with that of the package. It includes those of the packages that it refers to,
// the views of Kubernetes by kubewasm.h.
func writeC(p *Package) ([]File, error) {
	p, err := cNames.named(p)
	if err != nil {
		return nil, err
	}
	w := &cWriter{pkg: p, name: cName(p.Name), includes: map[string]bool{}}
	for _, m := range p.Messages {
		w.printf("%s", cComment(m.Doc))
		w.printf("KWV_MESSAGE(%s)\n", w.message("", m.Name))
	}
	for _, e := range p.Enums {
		w.enum(e)
	}
	for _, g := range p.Constants {
		w.constants(g)
	}
	for _, m := range p.Messages {
		w.printf("\n// %s\n", w.message("", m.Name))
		for _, f := range m.Fields {
			w.accessor(m, f)
		}
	}
	if len(p.Services) != 0 {
		for _, m := range p.Messages {
			if m.Written {
				w.builder(m)
			}
		}
		for _, s := range p.Services {
			w.service(s)
		}
		w.schema()
	}
	var b strings.Builder
	b.WriteString(header(p.Source) + "#pragma once\n")
	if p.Source == "k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto" || p.Source == "k8s.io/api/core/v1/generated.proto" {
		// kubewasm.h includes these two, after what they are made of.
		b.WriteString("#ifndef KUBEWASM_H\n#error include kubewasm.h\n#endif\n")
	} else {
		b.WriteString("#include <kubewasm.h>\n")
	}
	for _, include := range slices.Sorted(maps.Keys(w.includes)) {
		fmt.Fprintf(&b, "#include %s\n", include)
	}
	b.WriteString("\n")
	b.WriteString(w.body.String())
	return []File{{w.name + ".h", []byte(b.String())}}, nil
}

// cWriter writes a header.
type cWriter struct {
	pkg      *Package
	name     string
	body     strings.Builder
	includes map[string]bool
}

func (w *cWriter) printf(format string, args ...any) { fmt.Fprintf(&w.body, format, args...) }

var cIdentifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// cName returns a name as an identifier of C.
func cName(name string) string {
	if cIdentifier.MatchString(name) {
		return name
	}
	var b strings.Builder
	for i, r := range name {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || r == '_' || i > 0 && unicode.IsDigit(r)) {
			b.WriteRune(r)
		} else {
			b.WriteByte('_')
		}
	}
	return b.String()
}

// message returns the name of a message of a package, of this one if it is empty.
func (w *cWriter) message(pkg, name string) string {
	if pkg == "" || pkg == w.pkg.Path {
		return w.name + "_" + name
	}
	base := path.Base(pkg)
	if strings.HasPrefix(pkg, sdk) {
		w.includes[fmt.Sprintf("<kubewasm/%s/%s.h>", base, base)] = true
	} else {
		w.includes[cString(base+".h")] = true
	}
	return cName(base) + "_" + name
}

// cComment returns the first sentence of a text as a comment.
func cComment(doc string) string {
	doc, old := strings.CutSuffix(doc, deprecated)
	doc = plain(doc)
	if i := strings.Index(doc, ". "); i >= 0 {
		doc = doc[:i+1]
	}
	if old {
		doc = strings.TrimSpace(doc + " " + deprecated)
	}
	if doc == "" {
		return ""
	}
	return cLine(doc)
}

func (w *cWriter) enum(e *Enum) {
	w.printf("\n%senum %s {\n", cComment(e.Doc), w.message("", e.Name))
	for _, v := range e.Values {
		w.printf("  %s_%s = %d,\n", w.name, v.Name, v.Number)
	}
	w.printf("};\n")
}

func (w *cWriter) constants(g ConstantGroup) {
	w.printf("\n")
	for _, c := range g.Constants {
		w.printf("#define %s_%s KW(%s)\n", w.name, c.Name, cString(c.Value))
	}
}

// cNumbers are the macros for kinds that are one value.
var cNumbers = map[Kind]string{
	String: "STRING", Bytes: "BYTES", Bool: "BOOL", Int32: "I32", Int64: "I64", Uint32: "U32", Uint64: "U64", Sint32: "S32", Sint64: "S64",
	Fixed32: "U32", Fixed64: "U64", Sfixed32: "I32", Sfixed64: "I64", Float: "FLOAT", Double: "DOUBLE", EnumKind: "I32",
}

// cValue returns the type of kubewasm.h for a value of a type of package meta and others.
func cValue(t Type) string {
	switch {
	case t.GoType.Name == "Quantity":
		return "kw_quantity"
	case t.GoType.Name == "IntOrString":
		return "kw_intstr"
	case t.GoType.Name == "Time", t.Read.Name == "ReadSpan":
		return "kw_time"
	case t.GoType.Name == "Duration":
		return "kw_duration"
	case t.Read.Name == "ReadStrings":
		return "kw_items"
	}
	return "kw_raw"
}

// accessor writes what reads a field. Kinds of custom resources are JSON, whose fields have names
// of any characters; the macros take one that is an identifier.
func (w *cWriter) accessor(m *Message, f *Field) {
	T := w.message("", m.Name)
	macro, last := w.macro(f)
	named, name := "", ""
	if f.Name != f.JSONName && !f.Inlined {
		named, name = "NAMED_", ", "+cString(f.JSONName)
	}
	w.printf("KWV_%s%s(%s, %s, %d%s%s)\n", named, macro, T, f.Name, f.Number, name, last)
	if f.absent() {
		w.printf("KWV_%sHAS(%s, %s, %d%s)\n", named, T, f.Name, f.Number, name)
	}
}

// macro returns the macro of a field, without its prefix, and its last argument.
func (w *cWriter) macro(f *Field) (macro, last string) {
	switch {
	case f.Map:
		return "MAP", ""
	case f.Repeated:
		return "LIST", ""
	case f.Type.Kind == MessageKind && f.Inlined:
		return "INLINED", ", " + w.message(f.Type.Package, f.Type.Name)
	case f.Type.Kind == MessageKind:
		return "ONE", ", " + w.message(f.Type.Package, f.Type.Name)
	case f.Type.Kind == ValueKind:
		return "VALUE", ", " + cValue(f.Type)
	case f.Type.Kind == ObjectKind:
		if f.Type.Object == "JSON" {
			return "REF", ", kw_json_object, KW_JSON_OBJECT"
		}
		return "REF", ", " + w.message(f.Type.Package, f.Type.Name) + ", " + cRefKind(f.Type)
	}
	return cNumbers[f.Type.Kind], ""
}

// cRefKind returns how an object by ref is read.
func cRefKind(t Type) string {
	switch {
	case t.Object == "JSON":
		return "KW_JSON_OBJECT"
	case t.Object == "Whole":
		return "KW_WHOLE"
	case t.Name == "Pod" && t.Package == sdk+"core":
		return "KW_POD"
	case t.Name == "Node" && t.Package == sdk+"core":
		return "KW_NODE"
	}
	return "KW_BY_PARTS"
}

// cPuts are the functions that write kinds, the types that they take, and the value that kw_put_…
// takes.
var cPuts = map[Kind]struct{ typ, put, value string }{
	String: {"kw_str", "bytes", "v"}, Bytes: {"kw_str", "bytes", "v"}, Bool: {"bool", "number", "v"},
	Int32: {"int32_t", "number", "(uint64_t)(int64_t)v"}, Int64: {"int64_t", "number", "(uint64_t)v"},
	Uint32: {"uint32_t", "number", "v"}, Uint64: {"uint64_t", "number", "v"},
	Sint32: {"int32_t", "number", "kw_zigzag(v)"}, Sint64: {"int64_t", "number", "kw_zigzag(v)"},
	Fixed32: {"uint32_t", "fixed32", "v"}, Fixed64: {"uint64_t", "fixed64", "v"},
	Sfixed32: {"int32_t", "fixed32", "(uint32_t)v"}, Sfixed64: {"int64_t", "fixed64", "(uint64_t)v"},
	Float: {"float", "fixed32", "kw_float_bits(v)"}, Double: {"double", "fixed64", "kw_double_bits(v)"},
	EnumKind: {"int32_t", "number", "(uint64_t)(int64_t)v"}, ObjectKind: {"uint64_t", "fixed64", "v"},
	MessageKind: {"const kw_buf *", "message", "v"}, ValueKind: {"const kw_buf *", "message", "v"},
}

// builder writes the functions that add the fields of a message to a buffer: of a list, an element.
func (w *cWriter) builder(m *Message) {
	T := w.message("", m.Name)
	w.printf("\n// What adds fields to a buffer with a %s. Of a list each call adds an element.\n", m.Name)
	for _, f := range m.Fields {
		put := cPuts[f.Type.Kind]
		name := f.Name
		if !f.Map {
			w.printf("KW_INLINE void %s_put_%s(kw_buf *b, %s v) { kw_put_%s(b, %d, %s); }\n", T, name, put.typ, put.put, f.Number, put.value)
			continue
		}
		w.printf("KW_INLINE void %s_put_%s(kw_buf *b, kw_str key, %s v) {\n", T, name, put.typ)
		w.printf("  kw_buf e = {0};\n  kw_put_bytes(&e, 1, key), kw_put_%s(&e, 2, %s), kw_put_message(b, %d, &e);\n}\n", put.put, put.value, f.Number)
	}
}

// service writes what a guest implements or calls of a service.
func (w *cWriter) service(s *Service) {
	w.printf("\n%s", cComment(s.Doc))
	var serves []string
	for _, m := range s.Methods {
		request := w.message("", m.Request)
		if s.Host {
			function := fmt.Sprintf("%s_%s", w.message("", s.Name), m.Name)
			w.printf("%s", cComment(m.Doc))
			w.printf("KW_IMPORT(%s, %s) uint64_t %s_host(const void *p, uint32_t n);\n", cString(s.FullName), cString(m.Wire), function)
			w.printf("// The response, when it has not failed, is a %s.\n", m.Response)
			w.printf("KW_INLINE kw_answer %s(const kw_buf *request) { return kw_answer_of(%s_host(request->p, request->n)); }\n", function, function)
			continue
		}
		macro := w.message("", s.Name) + "_" + m.Name
		w.printf("%s", cComment(m.Doc))
		w.printf("// The response is a %s.\n", m.Response)
		w.printf("#define %s(request, response) KW_METHOD(%s, %s_call, %s, request, response)\n", strings.ToUpper(macro), cString(s.FullName+"/"+m.Wire), macro, request)
	}
	if !s.Host {
		serves = append(serves, s.FullName+`\0`)
		w.printf("// %s_PLUGIN stands once in a guest that implements the service, and ends the list of names.\n", strings.ToUpper(w.message("", s.Name)))
		w.printf("#define %s_PLUGIN KW_SERVES(\"%s\")\n", strings.ToUpper(w.message("", s.Name)), strings.Join(serves, ""))
	}
}

// schema writes the custom section with the services.
func (w *cWriter) schema() {
	w.printf("\n// The schema of the services.\n__asm__(\".section .custom_section.kubewasm_schema,\\\"\\\",@\\n\"\n")
	const width = 32
	for i := 0; i < len(w.pkg.Schema); i += width {
		w.printf("        \".byte ")
		for j, c := range w.pkg.Schema[i:min(len(w.pkg.Schema), i+width)] {
			if j > 0 {
				w.printf(",")
			}
			w.printf("%d", c)
		}
		w.printf("\\n\"\n")
	}
	w.printf("        \".text\\n\");\n")
}
