package bindgen

import (
	"fmt"
	"strings"
)

// services writes the traits and clients of services, the structs that guests write, and the
// macro that exports the methods of a plugin.
func (w *rustWriter) services() {
	if len(w.pkg.Services) == 0 {
		return
	}
	w.printf("\nuse ::kubewasm::alloc::{boxed::Box, string::String, vec::Vec};\nuse ::kubewasm::service::{self as s, Encode as _};\nuse ::kubewasm::wire as w;\n")
	for _, m := range w.pkg.Messages {
		if m.Written {
			w.builder(m)
		}
	}
	var extensionPoints []*Service
	for _, s := range w.pkg.Services {
		if s.Host {
			w.hostClient(s)
		} else {
			w.extensionPoint(s)
			extensionPoints = append(extensionPoints, s)
		}
	}
	w.exports(extensionPoints)
}

// builderType returns the type of a struct that guests write, with its lifetime.
func (w *rustWriter) builderType(message string) string {
	name := w.pkg.builderName(message)
	if w.holdsObjects(message) {
		return name + "<'a>"
	}
	return name
}

// holdsObjects reports whether a message has objects of a request.
func (w *rustWriter) holdsObjects(message string) bool {
	seen := map[string]bool{}
	reach(w.byName(), message, seen)
	for name := range seen {
		for _, f := range w.byName()[name].Fields {
			if f.Type.Kind == ObjectKind {
				return true
			}
		}
	}
	return false
}

func (w *rustWriter) byName() map[string]*Message {
	messages := map[string]*Message{}
	for _, m := range w.pkg.Messages {
		messages[m.Name] = m
	}
	return messages
}

func (w *rustWriter) extensionPoint(s *Service) {
	w.printf("\n%spub trait %s {\n", rustComment("", cmpOr(s.Doc, s.Name+" is the extension point "+s.FullName+".")), s.Name)
	for _, m := range s.Methods {
		w.printf("%s    fn %s<'a>(&self, req: %s<'a>) -> Result<%s, s::Error>;\n", rustComment("    ", cmpOr(m.Doc, "Answers a request, or returns an error, which may have a code.")),
			m.Name, w.rustPath("", m.Request), w.builderType(m.Response))
	}
	w.printf("}\n")
}

func (w *rustWriter) hostClient(s *Service) {
	w.printf("\n%s#[derive(Clone, Copy, Debug)]\npub struct %s;\n\nimpl %[2]s {\n", rustComment("", cmpOr(s.Doc, s.Name+" has the methods of the service "+s.FullName+" of the host.")), s.Name)
	for _, m := range s.Methods {
		w.printf("%s    pub fn %s<'a>(call: impl Into<::kubewasm::Call<'a>>, req: &%s) -> Result<%s<'a>, s::Error> {\n", rustComment("    ", cmpOr(m.Doc, "Asks the host. The error is that of the host, with its code.")),
			m.Name, strings.Replace(w.builderType(m.Request), "<'a>", "<'_>", 1), w.rustPath("", m.Response))
		w.printf("        #[cfg(target_arch = \"wasm32\")]\n        #[link(wasm_import_module = %s)]\n        extern \"C\" {\n            #[link_name = %s]\n            fn host(ptr: *const u8, len: u32) -> u64;\n        }\n", rustString(s.FullName), rustString(m.Wire))
		w.printf("        #[cfg(not(target_arch = \"wasm32\"))]\n        unsafe extern \"C\" fn host(_: *const u8, _: u32) -> u64 { 0 }\n")
		w.printf("        unsafe { s::ask(call.into(), host, req) }.map(v::Message::from_view)\n    }\n")
	}
	w.printf("}\n")
}

// builder writes the struct of a message that guests write, with its encoding.
func (w *rustWriter) builder(m *Message) {
	name, declared := w.pkg.builderName(m.Name), w.builderType(m.Name)
	w.printf("\n%s#[derive(Clone, Debug, Default)]\npub struct %s {\n", rustComment("", cmpOr(m.Doc, name+" is a message that a plugin writes.")), declared)
	for _, f := range m.Fields {
		w.printf("%s    pub %s: %s,\n", rustComment("    ", cmpOr(f.Doc, "The field "+f.JSONName+".")), f.Name, w.fieldType(m, f))
	}
	generic := ""
	if declared != name {
		generic = "<'a>"
	}
	w.printf("}\n\nimpl%s s::Encode for %s {\n    fn encode(&self, b: &mut Vec<u8>) {\n", generic, declared)
	for _, f := range m.Fields {
		w.appendField(m, f)
	}
	if len(m.Fields) == 0 {
		w.printf("        let _ = b;\n")
	}
	w.printf("    }\n}\n")
}

// written returns the type of a value in a struct.
func (w *rustWriter) written(t Type) string {
	switch t.Kind {
	case String:
		return "String"
	case Bytes:
		return "Vec<u8>"
	case MessageKind:
		return w.builderType(t.Name)
	case ValueKind:
		switch _, out := w.types(t); out {
		case "&'a [u8]":
			return "Vec<u8>"
		case "::kubewasm::value::IntOrString<'a>":
			return "::kubewasm::value::IntOrString<'static>"
		default:
			return strings.TrimSuffix(strings.TrimPrefix(out, "Option<"), ">")
		}
	}
	_, out := w.types(t)
	return out
}

// optional reports whether a struct has an Option for the field.
func (f *Field) optional() bool {
	return !f.Map && !f.Repeated && (f.Presence || f.Type.Kind == MessageKind || f.Type.Kind == ValueKind || f.Type.Kind == ObjectKind)
}

func (w *rustWriter) fieldType(m *Message, f *Field) string {
	t := w.written(f.Type)
	switch {
	case f.Map:
		return "Vec<(String, " + t + ")>"
	case f.Repeated:
		return "Vec<" + t + ">"
	case w.boxed(m, f):
		return "Option<Box<" + t + ">>"
	case f.optional():
		return "Option<" + t + ">"
	}
	return t
}

// boxed reports whether a field has a message that has this one.
func (w *rustWriter) boxed(m *Message, f *Field) bool {
	if f.Type.Kind != MessageKind || f.Type.Package != "" || f.Map || f.Repeated {
		return false
	}
	seen := map[string]bool{}
	reach(w.byName(), f.Type.Name, seen)
	return seen[m.Name]
}

func (w *rustWriter) appendField(m *Message, f *Field) {
	field := "self." + f.Name
	line := func(format string, args ...any) { w.printf("        "+format+"\n", args...) }
	switch {
	case f.Map:
		line("for (key, x) in &%s {", field)
		line("    w::append_message(b, %d, |b| {\n                w::append_bytes(b, 1, key.as_bytes());\n                %s;\n            });", f.Number, w.appendValue(f.Type, 2, "x"))
		line("}")
	case f.Repeated && f.numeric() && f.Type.Kind != ObjectKind && f.Type.Kind != EnumKind && f.Type.Kind != Bool && onWire(f.Type.Kind) == onVarint:
		line("if !%s.is_empty() {", field)
		line("    w::append_message(b, %d, |b| for x in &%s { w::append_varint(b, %s) });", f.Number, field, rustVarint(f.Type, "*x"))
		line("}")
	case f.Repeated:
		line("for x in &%s {", field)
		line("    %s;", w.appendValue(f.Type, f.Number, "x"))
		line("}")
	case f.optional():
		line("if let Some(x) = &%s {", field)
		line("    %s;", w.appendValue(f.Type, f.Number, "x"))
		line("}")
	default:
		set := field + " != Default::default()"
		switch f.Type.Kind {
		case String, Bytes:
			set = "!" + field + ".is_empty()"
		case Float, Double: // A zero with a sign is not the default.
			set = field + ".to_bits() != 0"
		}
		line("if %s {", set)
		line("    let x = &%s;", field)
		line("    %s;", w.appendValue(f.Type, f.Number, "x"))
		line("}")
	}
}

// rustVarint returns the bits of a number whose expression is given.
func rustVarint(t Type, x string) string {
	switch t.Kind {
	case Sint32, Sint64:
		return "w::zigzag((" + x + ") as i64)"
	case EnumKind:
		return "(" + x + ").0 as i64 as u64"
	case Bool:
		return x + " as u64"
	case Uint32, Uint64:
		return x + " as u64"
	}
	return x + " as i64 as u64"
}

// appendValue returns the expression that writes the value that x refers to.
func (w *rustWriter) appendValue(t Type, number uint32, x string) string {
	switch t.Kind {
	case String:
		return fmt.Sprintf("w::append_bytes(b, %d, %s.as_bytes())", number, x)
	case Bytes:
		return fmt.Sprintf("w::append_bytes(b, %d, %s)", number, x)
	case Fixed32, Sfixed32:
		return fmt.Sprintf("w::append_fixed32(b, %d, *%s as u32)", number, x)
	case Fixed64, Sfixed64:
		return fmt.Sprintf("w::append_fixed64(b, %d, *%s as u64)", number, x)
	case Float:
		return fmt.Sprintf("w::append_fixed32(b, %d, %s.to_bits())", number, x)
	case Double:
		return fmt.Sprintf("w::append_fixed64(b, %d, %s.to_bits())", number, x)
	case MessageKind:
		return fmt.Sprintf("w::append_message(b, %d, |b| %s.encode(b))", number, x)
	case ObjectKind:
		return fmt.Sprintf("s::append_object(b, %d, *%s)", number, x)
	case ValueKind:
		if w.written(t) == "Vec<u8>" {
			return fmt.Sprintf("w::append_message(b, %d, |b| w::append_bytes(b, 1, %s))", number, x)
		}
		if t.Read.Name == "ReadSpan" {
			return fmt.Sprintf("%s.append_span(b, %d)", x, number)
		}
		return fmt.Sprintf("%s.append(b, %d)", x, number)
	}
	return fmt.Sprintf("w::append_number(b, %d, %s)", number, rustVarint(t, "*"+x))
}

// exports writes the macro that exports the methods and the schema.
func (w *rustWriter) exports(services []*Service) {
	w.printf("\n/// The names of the extension points, with a NUL after each.\npub const NAMES: &str = \"")
	for _, s := range services {
		w.printf("%s\\0", s.FullName)
	}
	w.printf("\";\n\n/// Exports the methods of a plugin. It is for `kubewasm::plugin!`.\nmacro_rules! exports {\n    ($plugin:ty, $($path:ident)::+) => {\n        const _: () = {\n")
	functions := scope{}
	for _, s := range services {
		for _, m := range s.Methods {
			function := functions.take(snake(s.Name)+"_"+snake(m.Name), nil)
			w.printf("            #[cfg(target_arch = \"wasm32\")]\n            #[export_name = %s]\n            pub extern \"C\" fn %s() -> i32 {\n", rustString(s.FullName+"/"+m.Wire), function)
			w.printf("                let (plugin, req) = unsafe { ::kubewasm::service::begin::<$plugin>() };\n                let req: $($path)::+::%s = ::kubewasm::view::Message::from_view(req);\n", w.rustPath("", m.Request))
			w.printf("                ::kubewasm::service::finish(<$plugin as $($path)::+::%s>::%s(plugin, req))\n            }\n", s.Name, m.Name)
		}
	}
	w.printf("            #[cfg(target_arch = \"wasm32\")]\n            #[used]\n            #[link_section = \"kubewasm_schema\"]\n            static SCHEMA: [u8; %d] = *b\"", len(w.pkg.Schema))
	for i, c := range w.pkg.Schema {
		if i%64 == 0 {
			w.printf("\\\n")
		}
		// White space after the end of a line is skipped, so it is escaped.
		if c > ' ' && c < 0x7f && c != '"' && c != '\\' {
			w.printf("%c", c)
		} else {
			w.printf("\\x%02x", c)
		}
	}
	w.printf("\";\n        };\n    };\n}\n")
}
