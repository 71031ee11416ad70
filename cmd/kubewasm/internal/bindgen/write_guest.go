package bindgen

import (
	"fmt"
	"strings"
)

// guestPackage is the package that the guest sides of services use.
const guestPackage = "github.com/kubewasm/kubewasm/guest/service"

// WriteGuest returns the files of the guest side of services, beside those of [Write]: the
// interfaces and functions of services, the views and structs that guests read and write, and
// the schema.
func WriteGuest(p *Package) ([]File, error) {
	if len(p.Services) == 0 {
		return nil, nil
	}
	p, err := goNames.named(p)
	if err != nil {
		return nil, err
	}
	main, types, wasm, native := newWriter(p), newWriter(p), newWriter(p), newWriter(p)
	native.tags = "!wasip1"
	for _, s := range p.Services {
		if s.Host {
			main.hostClient(s)
			for _, m := range s.Methods {
				wasm.printf("\n//go:wasmimport %s %s\n", s.FullName, m.Wire)
				wasm.printf("func %s_host(ptr %s, n uint32) uint64\n", methodVar(s, m), wasm.name("unsafe", "Pointer"))
				native.printf("\nfunc %s_host(ptr %s, n uint32) uint64 {\n\treturn %s(%q, %q, ptr, n)\n}\n",
					methodVar(s, m), native.name("unsafe", "Pointer"), native.name(guestPackage, "AskHost"), s.FullName, m.Wire)
			}
			continue
		}
		main.extensionPoint(s)
		for _, m := range s.Methods {
			wasm.printf("\n//go:wasmexport %s/%s\n", s.FullName, m.Wire)
			wasm.printf("func %s_export() int32 { return %s(&%s, %s) }\n", methodVar(s, m), wasm.name(guestPackage, "Serve"), methodVar(s, m), pluginVar(s))
		}
	}
	for _, m := range p.Messages {
		if m.Written {
			main.builder(m)
		}
		if m.Read || !m.Written {
			types.reader(m)
		}
	}
	schema := newWriter(p)
	schema.printf("\n// serviceSchema is the services of this package. Kubewasm build adds it to a module.\n")
	schema.constant("serviceSchema", p.Schema)
	var files []File
	for _, f := range []struct {
		name string
		w    *writer
	}{{"service.gen.go", main}, {"types.gen.go", types}, {"service_wasip1.gen.go", wasm}, {"service_native.gen.go", native}, {"schema.gen.go", schema}} {
		if f.w.body.Len() == 0 {
			continue
		}
		text, err := f.w.file()
		if err != nil {
			return nil, fmt.Errorf("format %s: %w", f.name, err)
		}
		files = append(files, File{f.name, text})
	}
	return files, nil
}

// constant writes a constant string of any bytes.
func (w *writer) constant(name string, value []byte) {
	const width = 24
	w.printf("const %s = ", name)
	for i := 0; i < len(value); i += width {
		if i > 0 {
			w.printf(" +\n\t")
		}
		w.printf("%q", string(value[i:min(len(value), i+width)]))
	}
	w.printf("\n")
}

// Names that are not exported have a _ in them, which those of declarations have at their ends
// alone: no two are the same, and none that of an import.
func pluginVar(s *Service) string            { return lower(s.Name) + "_plugin" }
func methodVar(s *Service, m *Method) string { return lower(s.Name) + "_" + m.Name }

// builderName returns the name of the struct that guests write for a message.
func (p *Package) builderName(name string) string {
	for _, m := range p.Messages {
		if m.Name == name {
			return m.Builder
		}
	}
	return name
}

// extensionPoint writes the interface of an extension point and what calls its plugin.
func (w *writer) extensionPoint(s *Service) {
	w.printf("\n%s", documentation(s.Name, "is implemented by plugins of the extension point "+s.FullName+".", s.Doc))
	w.printf("type %s interface {\n", s.Name)
	for i, m := range s.Methods {
		if i > 0 {
			w.printf("\n")
		}
		w.printf("%s", documentation(m.Name, "sets resp to the response to a request. On an error resp does not count.", m.Doc))
		w.printf("%s(req %s, resp *%s) error\n", m.Name, m.Request, w.pkg.builderName(m.Response))
	}
	w.printf("}\n\nvar %s %s\n", pluginVar(s), s.Name)
	register := w.pkg.made("Register" + s.Name)
	w.printf("\n%s", wrap(register+" makes p the plugin of this module for "+s.Name+". It is called once, in init. If p points to a struct, the host's configuration is decoded into it before the first request; if it has a method Configure() error, that is called then."))
	parameter := "P"
	if s.Name == parameter {
		parameter = "Plugin_"
	}
	w.printf("func %[1]s[%[2]s %[3]s](p %[2]s) {\n\t%[4]s(p, %[5]q", register, parameter, s.Name, w.name(guestPackage, "Register"), s.FullName)
	for _, m := range s.Methods {
		w.printf(", &%s", methodVar(s, m))
	}
	w.printf(")\n\t%s = p\n}\n", pluginVar(s))
	for _, m := range s.Methods {
		request, response, builder := methodVar(s, m)+"_request", methodVar(s, m)+"_response", w.pkg.builderName(m.Response)
		w.printf("\n// The messages of %s. The lists of a response are the plugin's, and not used again.\nvar (\n\t%s %s\n\t%s %s\n)\n",
			m.Name, request, fieldsType(m.Request), response, builder)
		w.printf("\nvar %s = %s[%s]{\n\tName: %q,\n", methodVar(s, m), w.name(guestPackage, "Method"), s.Name, s.FullName+"/"+m.Wire)
		w.printf("\tCall: func(p %s, request, b []byte) ([]byte, error) {\n", s.Name)
		w.printf("\t\t%s.in = %s(request)\n\t\t%s = %s{}\n", request, w.name(guestPackage, "FromHost"), response, builder)
		w.printf("\t\terr := p.%s(%s{&%s}, &%s)\n", m.Name, m.Request, request, response)
		w.printf("\t\tb = %s.append(b)\n\t\t%s = %s{}\n\t\t%s.reset()\n\t\treturn b, err\n\t},\n}\n", response, response, builder, request)
	}
}

// hostClient writes the functions of a host service.
func (w *writer) hostClient(s *Service) {
	w.printf("\n%s", documentation(s.Name, "has the methods of the service "+s.FullName+" of the host.", s.Doc))
	w.printf("type %s struct{}\n", s.Name)
	for _, m := range s.Methods {
		w.printf("\n%s", documentation(m.Name, "calls the host. The error is that of the host, with its code.", m.Doc))
		w.printf("func (%s) %s(req *%s) (%s, error) {\n", s.Name, m.Name, w.pkg.builderName(m.Request), m.Response)
		w.printf("\tresp, err := %s(%s_host, req.append(nil))\n\tif err != nil {\n\t\treturn %s{}, err\n\t}\n\treturn %s{&%s{in: %s(resp)}}, nil\n}\n",
			w.name(guestPackage, "Ask"), methodVar(s, m), m.Response, m.Response, fieldsType(m.Response), w.name(guestPackage, "FromHost"))
	}
}

// builder writes the struct of a message that guests write, with its encoding.
func (w *writer) builder(m *Message) {
	name := w.pkg.builderName(m.Name)
	w.printf("\n%s", documentation(name, "is a message that a plugin writes.", m.Doc))
	w.printf("type %s struct {\n", name)
	for _, f := range m.Fields {
		if d := sentence(f.Doc); d != "" {
			w.printf("%s", wrap(d))
		}
		w.printf("%s %s\n", f.Name, w.builderType(f))
	}
	w.printf("}\n\nfunc (m *%s) append(b []byte) []byte {\n", name)
	if w.nests(m) {
		w.printf("var at int\n")
	}
	for _, f := range m.Fields {
		w.appendField(f)
	}
	w.printf("return b\n}\n")
}

// nests reports whether the encoding of a message has messages in it.
func (w *writer) nests(m *Message) bool {
	for _, f := range m.Fields {
		if f.Map || f.Type.Kind == MessageKind {
			return true
		}
	}
	return false
}

func (w *writer) builderType(f *Field) string {
	t := w.goType(f.Type)
	if f.Type.Kind == MessageKind {
		t = w.pkg.builderName(f.Type.Name)
	}
	switch {
	case f.Map:
		return "map[string]" + t
	case f.Repeated:
		return "[]" + t
	case f.pointer() && t != "[]byte":
		return "*" + t
	}
	return t
}

// pointer reports whether a struct has a pointer for the field, since it may be absent.
func (f *Field) pointer() bool {
	return !f.Map && !f.Repeated && (f.Type.Kind == MessageKind || f.Type.Kind == ValueKind || f.Presence && f.Type.Kind != Bytes && f.Type.Kind != ObjectKind)
}

// appendField writes the encoding of a field.
func (w *writer) appendField(f *Field) {
	field := "m." + f.Name
	switch {
	case f.Map:
		w.printf("for k, v := range %s {\n", field)
		w.printf("b, at = %s(b, %d)\n", w.name(guestPackage, "BeginMessage"), f.Number)
		w.printf("b = %s(b, 1, k)\n", w.name(guestPackage, "AppendBytes"))
		w.appendValue(f.Type, 2, "v", true)
		w.printf("b = %s(b, at)\n}\n", w.name(guestPackage, "EndMessage"))
	case f.Repeated && f.Type.Kind == MessageKind:
		w.printf("for i := range %s {\n", field)
		w.appendValue(f.Type, f.Number, field+"[i]", false)
		w.printf("}\n")
	case f.Repeated && f.numeric() && f.Type.Kind != ObjectKind:
		w.printf("b = %s(b, %d, %s)\n", w.name(guestPackage, packer(f.Type.Kind)), f.Number, field)
	case f.Repeated:
		w.printf("for _, v := range %s {\n", field)
		w.appendValue(f.Type, f.Number, "v", false)
		w.printf("}\n")
	case f.Type.Kind == ObjectKind:
		w.appendValue(f.Type, f.Number, field, false)
	case f.Type.Kind == MessageKind:
		w.printf("if %s != nil {\n", field)
		w.appendValue(f.Type, f.Number, field, false)
		w.printf("}\n")
	case f.pointer():
		value := "*" + field
		if w.goType(f.Type) == "[]byte" {
			value = field
		}
		w.printf("if %s != nil {\n", field)
		w.appendValue(f.Type, f.Number, value, false)
		w.printf("}\n")
	default:
		empty := field + " != 0"
		switch f.Type.Kind {
		case String, Bytes:
			empty = "len(" + field + ") != 0"
			if f.Presence {
				empty = field + " != nil" // Bytes: a text is a pointer.
			}
		case Bool:
			empty = field
		case Float: // A zero with a sign is not the default.
			empty = w.name("math", "Float32bits") + "(" + field + ") != 0"
		case Double:
			empty = w.name("math", "Float64bits") + "(" + field + ") != 0"
		}
		w.printf("if %s {\n", empty)
		w.appendValue(f.Type, f.Number, field, false)
		w.printf("}\n")
	}
}

// packer returns the function that appends a list of numbers.
func packer(k Kind) string {
	switch {
	case k == Sint32 || k == Sint64:
		return "AppendPackedZigzag"
	case k == Bool || onWire(k) != onVarint:
		return "AppendPackedFixed"
	}
	return "AppendPacked"
}

// appendValue writes the encoding of one value. within is set in an entry of a map, whose
// message is not ended yet.
func (w *writer) appendValue(t Type, number uint32, value string, within bool) {
	add := func(function, conversion string) {
		if conversion != "" {
			value = conversion + "(" + value + ")"
		}
		w.printf("b = %s(b, %d, %s)\n", w.name(guestPackage, function), number, value)
	}
	switch t.Kind {
	case String, Bytes:
		add("AppendBytes", "")
	case Bool:
		if !within && !strings.HasPrefix(value, "*") { // A field that is written if it is true.
			value = "1"
		} else {
			w.printf("var n uint64\nif %s {\nn = 1\n}\n", value)
			value = "n"
		}
		add("AppendVarint", "")
	case Sint32, Sint64:
		value = "int64(" + value + ")"
		value += "<<1 ^ " + value + ">>63"
		add("AppendVarint", "uint64")
	case Fixed32, Sfixed32:
		add("AppendFixed32", "uint32")
	case Fixed64, Sfixed64:
		add("AppendFixed64", "uint64")
	case Float:
		add("AppendFixed32", w.name("math", "Float32bits"))
	case Double:
		add("AppendFixed64", w.name("math", "Float64bits"))
	case ObjectKind:
		add("AppendObject", w.view("View"))
	case ValueKind:
		w.printf("b = %s(b, %d, %s)\n", w.symbol(t.Append), number, value)
	case MessageKind:
		at := "at"
		if within {
			w.printf("{\nvar inner int\n")
			at = "inner"
		}
		w.printf("b, %s = %s(b, %d)\n", at, w.name(guestPackage, "BeginMessage"), number)
		w.printf("b = %s.append(b)\nb = %s(b, %s)\n", value, w.name(guestPackage, "EndMessage"), at)
		if within {
			w.printf("}\n")
		}
	default:
		add("AppendVarint", "uint64")
	}
}

// documentation returns a comment that begins with name: the source's whole comment if that
// does, too, else otherwise and then the source's comment as a paragraph of its own.
func documentation(name, otherwise, source string) string {
	text := strings.TrimSpace(source)
	first, rest, _ := strings.Cut(text, " ")
	if text != "" && strings.EqualFold(strings.Trim(first, "`'\":,"), name) && rest != "" {
		return paragraphs(name + " " + rest)
	}
	if text == "" {
		return wrap(name + " " + otherwise)
	}
	return paragraphs(name + " " + otherwise + "\n\n" + text)
}

// paragraphs returns text as the lines of a comment, with its empty lines.
func paragraphs(text string) string {
	var b strings.Builder
	var paragraph []string
	flush := func() {
		if len(paragraph) == 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteString("//\n")
		}
		b.WriteString(wrap(strings.Join(paragraph, " ")))
		paragraph = nil
	}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			flush()
			continue
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return b.String()
}
