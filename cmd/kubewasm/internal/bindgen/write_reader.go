package bindgen

import "fmt"

// reader writes what guests read a message of a service by: a struct with its bytes and what
// was read of its lists and maps, and a type with an accessor for each field.
func (w *writer) reader(m *Message) {
	fields, none := fieldsType(m.Name), lower(m.Name)+"_none"
	w.printf("\n%s", comment(m.Name, "is a view of "+article(m.Name)+".", m.Doc))
	w.printf("type %s struct{ m *%s }\n\n", m.Name, fields)
	w.printf("// %s are the fields of %s.\ntype %s struct {\n\tin %s\n", fields, article(m.Name), fields, w.name(guestPackage, "Encoded"))
	if m.wide() {
		w.slots(m)
	}
	lists := false
	for _, f := range m.Fields {
		if t := w.listType(f); t != "" {
			lists = true
			w.printf("%s %s\n", f.Name, t)
		}
	}
	w.printf("}\n\n")
	w.printf("func (x %s) in() *%s { return (*%[2]s)(%s(x.m)) }\n", m.Name, w.name(guestPackage, "Encoded"), w.name("unsafe", "Pointer"))
	if m.wide() {
		w.fill(m)
	}
	if lists {
		if !m.wide() {
			w.printf("\nvar %s %s\n", none, fields)
		}
		w.printf("\n")
		w.printf("func (x %s) fields() *%s {\n\tif x.m == nil {\n\t\treturn &%s\n\t}\n\treturn x.m\n}\n", m.Name, fields, none)
	}
	function := w.pkg.made(m.Name + "FromProto")
	w.printf("\n%s", wrap(function+" returns a view of the protobuf message in raw, which must not be written to any more."))
	w.printf("func %[2]s(raw []byte) %[1]s { return %[1]s{&%[3]s{in: %[4]s(raw)}} }\n", m.Name, function, fields, w.name(guestPackage, "EncodedOf"))
	for _, f := range m.Fields {
		w.fieldAccessor(m, f)
	}
	if w.resets(m) {
		w.printf("\n// reset makes m empty and keeps the memory of its lists.\nfunc (m *%s) reset() {\n\t*m = %s{", fields, fields)
		for _, f := range m.Fields {
			if f.Map || f.Type.own() {
				w.printf("%s: m.%s.Reset(),", f.Name, f.Name)
			}
		}
		w.printf("}\n}\n")
	}
}

func fieldsType(message string) string { return lower(message) + "_fields" }

// resets reports whether the message is one of a request: only those are used again.
func (w *writer) resets(m *Message) bool {
	for _, s := range w.pkg.Services {
		for _, method := range s.Methods {
			if !s.Host && method.Request == m.Name {
				return true
			}
		}
	}
	return false
}

// own reports whether a type is a message of the package.
func (t Type) own() bool { return t.Kind == MessageKind && t.Package == "" }

// listType returns the type of what is kept of a field that was read, empty if nothing is.
func (w *writer) listType(f *Field) string {
	t := f.Type
	switch {
	case f.Map:
		return w.name(guestPackage, "Entries") + "[" + w.goType(t) + "]"
	case t.own():
		return fmt.Sprintf("%s[%s, %s]", w.name(guestPackage, "Messages"), fieldsType(t.Name), t.Name)
	case f.Repeated:
		return w.name(guestPackage, "List") + "[" + w.goType(t) + "]"
	}
	return ""
}

func (w *writer) fieldAccessor(m *Message, f *Field) {
	result, body := w.goType(f.Type), ""
	switch {
	case f.Map:
		result = w.name(guestPackage, "Map") + "[" + result + "]"
	case f.Repeated:
		result = "[]" + result
	}
	if f.Map {
		w.mapOf(m, f)
	}
	if m.wide() && f.slot() == slotMap {
		body = fmt.Sprintf("{\n\tm := x.m.wide()\n\treturn %s\n}\n", w.listExpression(m, f))
	} else if m.wide() && f.slot() == slotText {
		body = fmt.Sprintf("{\n\tm := x.m.wide()\n\treturn m.in.TextIn(m.%s)\n}\n", f.Name)
	} else if w.listType(f) != "" {
		body = fmt.Sprintf("{\n\tm := x.fields()\n\treturn %s\n}\n", w.listExpression(m, f))
	} else {
		body = fmt.Sprintf("{ return %s }\n", w.expression(m, f))
	}
	w.printf("\n%sfunc (x %s) %s() %s %s", comment(f.Name, "returns the field "+f.JSONName+".", f.Doc), m.Name, f.Name, result, body)
	if !f.absent() {
		return
	}
	has := fmt.Sprintf("x.in().Has(%s)", f.key())
	if f.Type.Kind == ObjectKind {
		has = w.number(m, f) + " != 0"
	}
	w.printf("\n%sfunc (x %s) Has%s() bool { return %s }\n", wrap("Has"+f.Name+" reports whether there is a field "+f.JSONName+"."), m.Name, f.Name, has)
}

// mapVar returns the name of the variable that describes a field that is a map.
func mapVar(m *Message, f *Field) string { return lower(m.Name) + "_" + f.Name + "_map" }

// mapOf writes what describes a field that is a map.
func (w *writer) mapOf(m *Message, f *Field) {
	w.printf("\nvar %s = ", mapVar(m, f))
	if f.numeric() {
		w.printf("%s[%s](%d, %s, %s)\n", w.name(guestPackage, "NumbersOf"), w.goType(f.Type), f.Number, w.numberKind(f.Type.Kind), w.converter(f.Type))
		return
	}
	w.printf("%s[%s](%d, %s)\n", w.name(guestPackage, "ValuesOf"), w.goType(f.Type), f.Number, w.valueReader(f.Type))
}

// listExpression returns what reads a field of m of which something is kept.
func (w *writer) listExpression(m *Message, f *Field) string {
	t := f.Type
	switch {
	case f.Map:
		return fmt.Sprintf("m.%s.Map(&m.in, &%s)", f.Name, mapVar(m, f))
	case t.own():
		views := "View"
		if f.Repeated {
			views = "Views"
		}
		if f.Repeated && w.pkg.message(t.Name).wide() {
			return fmt.Sprintf("m.%s.WideViews(&m.in, %s, (*%s).fill)", f.Name, f.key(), fieldsType(t.Name))
		}
		return fmt.Sprintf("m.%s.%s(&m.in, %s)", f.Name, views, f.key())
	case t.Kind == ObjectKind:
		return fmt.Sprintf("m.%s.Numbers(&m.in, %d, %s, %s[%s](&%s, %s))", f.Name, f.Number, w.view("Fixed64"), w.name(guestPackage, "Object"), w.goType(t), w.typeVar(t.Package, t.Name), w.view(t.Object))
	case f.numeric():
		return fmt.Sprintf("m.%s.Numbers(&m.in, %d, %s, %s)", f.Name, f.Number, w.numberKind(t.Kind), w.converter(t))
	}
	return fmt.Sprintf("m.%s.Values(&m.in, %d, %s)", f.Name, f.Number, w.valueReader(t))
}

// converter returns the function that converts the bits of a number.
func (w *writer) converter(t Type) string {
	switch t.Kind {
	case Bool:
		return "func(bits uint64) bool { return bits != 0 }"
	case Float:
		return "func(bits uint64) float32 { return " + w.name("math", "Float32frombits") + "(uint32(bits)) }"
	case Double:
		return w.name("math", "Float64frombits")
	}
	return w.name(guestPackage, "Int") + "[" + w.goType(t) + "]"
}

// number returns what reads the bits of a field of x that is a number.
func (w *writer) number(m *Message, f *Field) string {
	if m.wide() && f.slot() == slotNumber {
		return "x.m.wide()." + f.Name
	}
	return fmt.Sprintf("x.in().Number(%s)", f.key())
}

// expression returns what reads a field of x of which nothing is kept.
func (w *writer) expression(m *Message, f *Field) string {
	t, in, number := f.Type, "x.in()", w.number(m, f)
	if m.wide() && f.slot() == slotNumber && t.Kind != ObjectKind {
		return number
	}
	switch t.Kind {
	case String:
		return fmt.Sprintf("%s.Text(%s)", in, f.key())
	case Bytes:
		return fmt.Sprintf("%s.Data(%s)", in, f.key())
	case ValueKind:
		return fmt.Sprintf("%s(%s.Value(%s))", w.symbol(t.Read), in, f.key())
	case MessageKind:
		return fmt.Sprintf("%s(%s.View(%s, &%s))", w.goType(t), in, f.key(), w.typeVar(t.Package, t.Name))
	case ObjectKind:
		return fmt.Sprintf("%s(%s(%s(%s), &%s, %s))", w.goType(t), w.view("ByRef"), w.name(abiPackage, "Ref"), number, w.typeVar(t.Package, t.Name), w.view(t.Object))
	case Bool:
		return number + " != 0"
	case Float:
		return fmt.Sprintf("%s(uint32(%s))", w.name("math", "Float32frombits"), number)
	case Double:
		return fmt.Sprintf("%s(%s)", w.name("math", "Float64frombits"), number)
	case Sint32, Sint64:
		return fmt.Sprintf("%s(%s(%s))", w.goType(t), w.name(guestPackage, "Zigzag"), number)
	case Uint64, Fixed64:
		return number
	}
	return fmt.Sprintf("%s(%s)", w.goType(t), number)
}

// key returns the key of a field, as an expression. That of a list of numbers is not used.
func (f *Field) key() string { return fmt.Sprintf("%d<<3|%d", f.Number, onWire(f.Type.Kind)) }

// onWire returns the wire type of a value.
func onWire(k Kind) uint32 {
	switch k {
	case String, Bytes, MessageKind, ValueKind:
		return onBytes
	case Fixed32, Sfixed32, Float:
		return onFixed32
	case Fixed64, Sfixed64, Double, ObjectKind:
		return onFixed64
	}
	return onVarint
}

// numeric reports whether a value is a number on the wire.
func (f *Field) numeric() bool {
	switch f.Type.Kind {
	case String, Bytes, MessageKind, ValueKind:
		return false
	}
	return true
}

// valueReader returns a function that reads an element or the value of a map.
func (w *writer) valueReader(t Type) string {
	switch t.Kind {
	case String:
		return w.view("Text")
	case Bytes:
		return w.view("Data")
	case Bool:
		return w.view("Bool")
	case Float, Double:
		return fmt.Sprintf("%s[%s](%s)", w.view("Float"), w.goType(t), w.numberKind(t.Kind))
	case ValueKind:
		return w.symbol(t.Read)
	case MessageKind:
		value := w.view("Value")
		if t.own() {
			return fmt.Sprintf("func(v %s) %s { return %s(v.Raw) }", value, t.Name, w.pkg.made(t.Name+"FromProto"))
		}
		return fmt.Sprintf("func(v %s) %s { return %s(%s(v.Raw, &%s)) }", value, w.goType(t), w.goType(t), w.view("FromProto"), w.typeVar(t.Package, t.Name))
	}
	return fmt.Sprintf("%s[%s](%s)", w.view("Int"), w.goType(t), w.numberKind(t.Kind))
}

// The wire types.
const (
	onVarint  = 0
	onFixed64 = 1
	onBytes   = 2
	onFixed32 = 5
)
