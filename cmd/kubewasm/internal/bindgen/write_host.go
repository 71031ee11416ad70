package bindgen

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
)

// hostPackage is the package that the host sides of services use, and runtimePackage that of
// the Runtime.
const (
	hostPackage    = "github.com/kubewasm/kubewasm/host/service"
	runtimePackage = "github.com/kubewasm/kubewasm/host"
)

// WriteHost returns the files of the host side of services: a struct for each message, a type
// for each extension point with an interface and a fake for tests, an interface for each service of
// the host, and the schema.
func WriteHost(p *Package) ([]File, error) {
	if len(p.Services) == 0 {
		return nil, fmt.Errorf("%s has no service", p.Source)
	}
	p, err := hostNames.named(p)
	if err != nil {
		return nil, err
	}
	services, fakes, messages, schema := newWriter(p), newWriter(p), newWriter(p), newWriter(p)
	for _, s := range p.Services {
		if s.Host {
			services.hostInterface(s)
			continue
		}
		services.client(s)
		if len(s.Methods) != 0 {
			fakes.fake(s)
		}
	}
	for _, m := range p.Messages {
		if m.Read || m.Written {
			messages.hostStruct(m)
		}
	}
	messages.printf("\nvar schema_messages = %s(serviceSchema)\n", messages.name(hostPackage, "MessagesOf"))
	for _, e := range p.Enums {
		messages.hostEnum(e)
	}
	schema.printf("\n// serviceSchema is the services of this package, a google.protobuf.FileDescriptorSet.\n")
	schema.constant("serviceSchema", p.Schema)
	var files []File
	for _, f := range []struct {
		name string
		w    *writer
	}{{"service.gen.go", services}, {"fake.gen.go", fakes}, {"messages.gen.go", messages}, {"schema.gen.go", schema}} {
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

// client writes the type of an extension point, whose methods call a plugin.
func (w *writer) client(s *Service) {
	ctx, definition, load := w.name("context", "Context"), lower(s.Name)+"_definition", w.pkg.made("Load"+s.Name)
	runtime, config := w.name(runtimePackage, "Runtime"), w.name(hostPackage, "Config")
	taken := maps.Clone(w.taken)
	var params, values []string
	for _, h := range w.pkg.Services {
		if h.Host {
			name := taken.take(local(h.Name), nil)
			params = append(params, ", "+name+" "+h.Name)
			values = append(values, ", "+serviceFunction(h)+"("+name+")...")
		}
	}
	w.printf("\n%s", documentation(s.Name, "is a plugin of the extension point "+s.FullName+". It is safe for use by several goroutines.", s.Doc))
	w.printf("type %s struct{ *%s }\n", s.Name, w.name(hostPackage, "Plugin"))
	text := load + " loads a plugin."
	if len(params) > 0 {
		text += " Plugins cannot call a service of the host that is nil."
	}
	w.printf("\n%s", wrap(text+" The errors are those of "+w.name(hostPackage, "Load")+"."))
	w.printf("func %s(ctx %s, rt *%s, cfg %s%s) (*%s, error) {\n", load, ctx, runtime, config, strings.Join(params, ""), s.Name)
	switch len(values) {
	case 0:
		w.printf("\tp, err := %s(ctx, rt, cfg, &%s)\n", w.name(hostPackage, "Load"), definition)
	case 1:
		w.printf("\tp, err := %s(ctx, rt, cfg, &%s%s)\n", w.name(hostPackage, "Load"), definition, values[0])
	default:
		w.printf("\tvar hosts []%s\n", w.name(hostPackage, "HostService"))
		for _, v := range values {
			w.printf("\thosts = append(hosts%s)\n", v)
		}
		w.printf("\tp, err := %s(ctx, rt, cfg, &%s, hosts...)\n", w.name(hostPackage, "Load"), definition)
	}
	w.printf("\tif err != nil {\n\t\treturn nil, err\n\t}\n\treturn &%s{p}, nil\n}\n", s.Name)
	for i, m := range s.Methods {
		w.printf("\n%s", documentation(m.Name, "calls the plugin.", m.Doc))
		w.printf("func (p *%s) %s(ctx %s, req *%s) (*%s, error) {\n", s.Name, m.Name, ctx, m.Request, m.Response)
		// The compiler puts this into its callers, so that the response can be on their stack.
		pointer := w.name("unsafe", "Pointer")
		w.printf("\tresp, err := %s(ctx, p.Plugin, %d, %s(req), %s(new(%s)))\n\treturn (*%s)(resp), err\n}\n", w.name(hostPackage, "Call"), i, pointer, pointer, m.Response, m.Response)
	}
	w.printf("\nvar %s = %s{\n\tName: %q,\n\tSchema: serviceSchema,\n\tMethods: []%s{\n", definition, w.name(hostPackage, "Definition"), s.FullName, w.name(hostPackage, "Method"))
	for _, m := range s.Methods {
		w.printf("\t\t%s[%s, %s](%q),\n", w.name(hostPackage, "NewMethod"), m.Request, m.Response, m.Wire)
	}
	w.printf("\t},\n}\n")
}

// fake writes the interface of an extension point's methods, and a type for tests that has them.
func (w *writer) fake(s *Service) {
	client, fake := w.pkg.made(s.Name+"Client"), w.pkg.made(s.Name+"Fake")
	w.printf("\n%s", wrap(client+" has the methods of the extension point "+s.FullName+". A component that asks a "+client+" instead of *"+s.Name+" can be tested without a plugin, by "+fake+"."))
	w.printf("type %s interface {\n", client)
	functions := scope{}
	for _, m := range s.Methods {
		w.printf("%s(ctx %s, req *%s) (*%s, error)\n", m.Name, w.name("context", "Context"), m.Request, m.Response)
		functions[m.Name] = true
	}
	w.printf("}\n\nvar (\n\t_ %[1]s = (*%[2]s)(nil)\n\t_ %[1]s = (*%[3]s)(nil)\n)\n", client, s.Name, fake)
	w.printf("\n%s", wrap(fake+" is a "+client+" for tests, which answers by its functions. A method without a function returns "+w.name(hostPackage, "ErrUnimplemented")+"."))
	w.printf("type %s struct {\n", fake)
	var names []string
	for _, m := range s.Methods {
		name := functions.take(m.Name+"Func", nil)
		names = append(names, name)
		w.printf("%s func(ctx %s, req *%s) (*%s, error)\n", name, w.name("context", "Context"), m.Request, m.Response)
	}
	w.printf("}\n")
	for i, m := range s.Methods {
		w.printf("\n%s", wrap(m.Name+" calls "+names[i]+"."))
		w.printf("func (f *%s) %s(ctx %s, req *%s) (*%s, error) {\n", fake, m.Name, w.name("context", "Context"), m.Request, m.Response)
		w.printf("\tif f.%[1]s == nil {\n\t\treturn nil, %[2]s\n\t}\n\treturn f.%[1]s(ctx, req)\n}\n", names[i], w.name(hostPackage, "ErrUnimplemented"))
	}
}

// hostInterface writes the interface of a service that the host implements.
func (w *writer) hostInterface(s *Service) {
	w.printf("\n%s", documentation(s.Name, "is what plugins may call. Its methods are called on the goroutine that calls the plugin, and by several goroutines if several call plugins.", s.Doc))
	w.printf("type %s interface {\n", s.Name)
	for i, m := range s.Methods {
		if i > 0 {
			w.printf("\n")
		}
		otherwise := "answers a plugin. The plugin gets the text of an error, and its code."
		if m.Grant != "" {
			otherwise = fmt.Sprintf("answers a plugin that has the grant %q. The plugin gets the text of an error, and its code.", m.Grant)
		}
		w.printf("%s", documentation(m.Name, otherwise, m.Doc))
		w.printf("%s(ctx %s, req *%s) (*%s, error)\n", m.Name, w.name("context", "Context"), m.Request, m.Response)
	}
	w.printf("}\n\nfunc %s(x %s) []%s {\n\tif x == nil {\n\t\treturn nil\n\t}\n", serviceFunction(s), s.Name, w.name(hostPackage, "HostService"))
	w.printf("\treturn []%s{{Name: %q, Methods: []%s{\n", w.name(hostPackage, "HostService"), s.FullName, w.name(hostPackage, "HostMethod"))
	for _, m := range s.Methods {
		w.printf("\t\t%s(%q, %q, x.%s),\n", w.name(hostPackage, "NewHostMethod"), m.Wire, m.Grant, m.Name)
	}
	w.printf("\t}}}\n}\n")
}

// serviceFunction returns the name of the function that returns a service of the host.
func serviceFunction(s *Service) string { return lower(s.Name) + "_service" }

// hostStruct writes the struct of a message.
func (w *writer) hostStruct(m *Message) {
	w.printf("\n%s", documentation(m.Name, "is a message.", m.Doc))
	w.printf("type %s struct {\n", m.Name)
	for _, f := range m.Fields {
		if f.Doc != "" {
			w.printf("%s", paragraphs(f.Doc))
		}
		w.printf("%s %s %s\n", f.Name, w.hostField(f), goTag(tags(f)))
	}
	receiver := strings.ToLower(m.Name[:1])
	w.printf("}\n\n// UnmarshalJSON reads the message as kubewasm run does: an unknown field is an error.\n")
	w.printf("func (%s *%s) UnmarshalJSON(text []byte) error { return schema_messages.Read(%q, text, %[1]s) }\n", receiver, m.Name, m.FullName)
}

// hostField returns the Go type of a field.
func (w *writer) hostField(f *Field) string {
	var t string
	switch {
	case f.Type.Kind == ObjectKind:
		t = "*" + w.symbol(f.Type.Host)
	case f.Type.Kind == EnumKind && f.Type.Package != "":
		t = "int32"
	case f.Type.Kind == ValueKind, f.Type.Kind == MessageKind && f.Type.Package != "":
		t = w.symbol(f.Type.Host)
	case f.Type.Kind == MessageKind || f.Type.Kind == EnumKind:
		t = f.Type.Name
	default:
		t = goTypes[f.Type.Kind]
	}
	switch {
	case f.Map:
		return "map[string]" + t
	case f.Repeated:
		return "[]" + t
	case f.pointer():
		return "*" + t
	}
	return t
}

// wires are the wire types in tags, see package message of package service; all others are
// varints.
var wires = map[Kind]string{
	String: "bytes", Bytes: "bytes", MessageKind: "bytes", ValueKind: "bytes", ObjectKind: "object",
	Sint32: "zigzag", Sint64: "zigzag", Fixed32: "fixed32", Sfixed32: "fixed32", Float: "fixed32",
	Fixed64: "fixed64", Sfixed64: "fixed64", Double: "fixed64",
}

// tags returns the tags of a field.
func tags(f *Field) string {
	wire := cmp.Or(f.Type.Wire, wires[f.Type.Kind], "varint")
	value := ""
	if f.Map {
		value, wire = fmt.Sprintf(" protobuf_val:%q", wire), "bytes"
	}
	tag, omit := fmt.Sprintf("%s,%d", wire, f.Number), ",omitempty"
	if f.Type.Kind == Bytes && f.Presence && !f.Repeated && !f.Map { // Without bytes it may be there.
		tag, omit = tag+",optional", ",omitzero"
	}
	if f.Oneof != "" {
		tag += ",oneof=" + f.Oneof
	}
	return fmt.Sprintf("json:%q protobuf:%q%s", f.JSONName+omit, tag, value)
}

// hostEnum writes an enumeration, with the names that its values have in JSON.
func (w *writer) hostEnum(e *Enum) {
	w.printf("\n%stype %s int32\n\n", comment(e.Name, "is an enumeration.", e.Doc), e.Name)
	w.printf("// The values of %s.\nconst (\n", e.Name)
	for _, v := range e.Values {
		if d := sentence(v.Doc); d != "" {
			w.printf("%s", comment(v.Name, "is "+v.JSONName+".", v.Doc))
		}
		w.printf("%s %s = %d\n", v.Name, e.Name, v.Number)
	}
	names := lower(e.Name) + "_names"
	w.printf(")\n\nvar %s = %s{\n", names, w.name(hostPackage, "EnumNames"))
	seen := map[int32]bool{}
	for _, v := range e.Values {
		if !seen[v.Number] { // The others are aliases.
			w.printf("\t%d: %q,\n", v.Number, v.JSONName)
		}
		seen[v.Number] = true
	}
	receiver := strings.ToLower(e.Name[:1])
	w.printf("}\n\n// String returns the name of the value.\nfunc (%[1]s %[2]s) String() string { return %[3]s.Name(int32(%[1]s)) }\n", receiver, e.Name, names)
	w.printf("\n// MarshalJSON returns the name of the value, its number if it has none.\nfunc (%[1]s %[2]s) MarshalJSON() ([]byte, error) { return %[3]s.JSON(int32(%[1]s)), nil }\n", receiver, e.Name, names)
	w.printf("\n// UnmarshalJSON reads the name of a value, or its number.\nfunc (%[1]s *%[2]s) UnmarshalJSON(text []byte) error { return %[3]s.Read(text, (*int32)(%[1]s)) }\n", receiver, e.Name, names)
}
