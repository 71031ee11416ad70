package bindgen

import (
	"fmt"
	"strings"
)

// reader writes what guests read a message of a service by: a struct with its fields, the
// function that fills it, and a type with an accessor for each field.
func (w *writer) reader(m *Message) {
	fields, none := fieldsType(m.Name), lower(m.Name)+"NoFields"
	w.printf("\n%s", comment(m.Name, "is a view of "+article(m.Name)+".", m.Doc))
	w.printf("type %s struct{ m *%s }\n\n", m.Name, fields)
	w.printf("// %s are the fields of %s.\ntype %s struct {\n", fields, article(m.Name), fields)
	lazy := false
	for _, f := range m.Fields {
		w.printf("%s %s\n", f.Name, w.fieldType(f))
		if f.flagged() {
			w.printf("Has%s bool\n", f.Name)
		}
		lazy = lazy || f.lazy()
	}
	if lazy {
		w.printf("in []byte // The message, up to its end.\n")
	}
	w.printf("}\n\nvar %s %s\n\n", none, fields)
	w.printf("func (x %s) fields() *%s {\n\tif x.m == nil {\n\t\treturn &%s\n\t}\n\treturn x.m\n}\n", m.Name, fields, none)
	w.printf("\n%s", wrap(m.Name+"FromProto returns a view of the protobuf message in raw, which must not be written to any more."))
	w.printf("func %[1]sFromProto(raw []byte) %[1]s {\n\titems := make([]%[2]s, 1)\n\t%[3]s(raw, 0, 0, items)\n\treturn %[1]s{&items[0]}\n}\n", m.Name, fields, readerOf(m.Name))
	for _, f := range m.Fields {
		w.fieldAccessor(m, f)
	}
	if w.resets(m) {
		w.printf("\n// reset makes m empty and keeps the memory of its lists.\nfunc (m *%s) reset() {\n\t*m = %s{", fields, fields)
		for _, f := range m.Fields {
			if f.kept() {
				w.printf("%s: m.%s.Reset(),", f.Name, f.Name)
			}
		}
		w.printf("}\n}\n")
	}
	w.readFunction(m)
}

func fieldsType(message string) string { return lower(message) + "Fields" }

// readerOf returns the name of the function that reads messages.
func readerOf(message string) string { return lower(message) + "Read" }

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

// lazy reports whether the field is read when it is asked for.
func (f *Field) lazy() bool {
	return f.Map || f.Repeated || f.Type.Kind == MessageKind || f.Type.Kind == ValueKind
}

// kept reports whether the memory of what was read of the field is used for the next request.
func (f *Field) kept() bool { return f.Map || f.Type.own() }

// flagged reports whether the field needs a flag that tells whether it is there.
func (f *Field) flagged() bool { return f.Presence && !f.lazy() && f.Type.Kind != ObjectKind }

// fieldType returns the type of a field in the struct.
func (w *writer) fieldType(f *Field) string {
	service := func(name string) string { return w.name(guestPackage, name) }
	t := f.Type
	switch {
	case f.Map:
		return service("Entries") + "[" + w.goType(t) + "]"
	case t.own():
		return fmt.Sprintf("%s[%s, %s]", service("Messages"), fieldsType(t.Name), t.Name)
	case f.Repeated:
		return service("List") + "[" + w.goType(t) + "]"
	case t.Kind == MessageKind, t.Kind == ValueKind:
		return service("Found")
	case t.Kind == ObjectKind:
		return w.name(abiPackage, "Ref")
	case t.Kind == String, t.Kind == Bytes:
		return service("Text")
	}
	return w.goType(t)
}

func (w *writer) fieldAccessor(m *Message, f *Field) {
	t, field := f.Type, "x.fields()."+f.Name
	result := w.goType(t)
	doc := comment(f.Name, "returns the field "+f.JSONName+".", f.Doc)
	switch {
	case t.own() && !f.Map:
		view := "View"
		if f.Repeated {
			result, view = "[]"+result, "Views"
		}
		w.printf("\n%sfunc (x %s) %s() %s {\n\tm := x.fields()\n", doc, m.Name, f.Name, result)
		w.printf("\tif items := m.%s.Begin(); items != nil {\n", f.Name)
		w.printf("\t\t%s(m.in, m.%s.First(), %s, items)\n\t}\n\treturn m.%s.%s()\n}\n", readerOf(t.Name), f.Name, wholeKey(f.Number), f.Name, view)
	case f.lazy():
		var expression string
		if expression = w.lazyExpression(f); f.Map {
			result = w.name(guestPackage, "Map") + "[" + result + "]"
		} else if f.Repeated {
			result = "[]" + result
		}
		w.printf("\n%sfunc (x %s) %s() %s {\n\tm := x.fields()\n\treturn %s\n}\n", doc, m.Name, f.Name, result, expression)
	default:
		switch t.Kind {
		case String:
			field += ".String()"
		case Bytes:
			field += ".Bytes()"
		case ObjectKind:
			field = fmt.Sprintf("%s(%s(%s, &%s, %s))", result, w.view("ByRef"), field, w.name(t.Package, "TypeOf"+t.Name), w.view(t.Object))
		}
		w.printf("\n%sfunc (x %s) %s() %s { return %s }\n", doc, m.Name, f.Name, result, field)
	}
	if !f.Presence || f.Repeated || f.Map {
		return
	}
	has := "x.fields()." + f.Name + ".Has()"
	switch {
	case f.flagged():
		has = "x.fields().Has" + f.Name
	case t.Kind == ObjectKind:
		has = "x.fields()." + f.Name + " != 0"
	}
	w.printf("\n// Has%s reports whether there is a field %s.\nfunc (x %s) Has%s() bool { return %s }\n", f.Name, f.JSONName, m.Name, f.Name, has)
}

// lazyExpression returns what reads a field of m that is no message of the package.
func (w *writer) lazyExpression(f *Field) string {
	t := f.Type
	switch {
	case f.Map:
		return fmt.Sprintf("m.%s.Map(m.in, %d, %s)", f.Name, f.Number, w.valueReader(t))
	case f.Repeated && t.Kind == ObjectKind:
		return fmt.Sprintf("m.%s.Numbers(m.in, %d, %s, %s[%s](&%s, %s))", f.Name, f.Number, w.view("Fixed64"), w.name(guestPackage, "Object"), w.goType(t), w.name(t.Package, "TypeOf"+t.Name), w.view(t.Object))
	case f.Repeated && f.numeric():
		convert := w.name(guestPackage, "Int") + "[" + w.goType(t) + "]"
		switch t.Kind {
		case Bool:
			convert = w.name(guestPackage, "Bool")
		case Float:
			convert = w.name(guestPackage, "Float32")
		case Double:
			convert = w.name(guestPackage, "Float64")
		}
		return fmt.Sprintf("m.%s.Numbers(m.in, %d, %s, %s)", f.Name, f.Number, w.numberKind(t.Kind), convert)
	case f.Repeated:
		return fmt.Sprintf("m.%s.Values(m.in, %d, %s)", f.Name, f.Number, w.valueReader(t))
	case t.Kind == ValueKind:
		return fmt.Sprintf("%s(m.%s.Value(m.in))", w.symbol(t.Read), f.Name)
	}
	return fmt.Sprintf("%s(m.%s.View(m.in, &%s))", w.goType(t), f.Name, w.name(t.Package, "TypeOf"+t.Name))
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
			return fmt.Sprintf("func(v %s) %s { return %sFromProto(v.Raw) }", value, t.Name, t.Name)
		}
		return fmt.Sprintf("func(v %s) %s { return %s(%s(v.Raw, &%s)) }", value, w.goType(t), w.goType(t), w.view("FromProto"), w.name(t.Package, "TypeOf"+t.Name))
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

// key returns the bytes of the key of a field.
func key(number, wire uint32) (b []byte) {
	n := uint64(number)<<3 | uint64(wire)
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// wholeKey returns the bytes of the key of a message as one number, the first one lowest.
func wholeKey(number uint32) string {
	var n uint64
	for i, b := range key(number, onBytes) {
		n |= uint64(b) << (8 * i)
	}
	if n < 0x80 {
		return fmt.Sprintf("%d<<3|%d", number, onBytes)
	}
	return fmt.Sprintf("%#x", n)
}

// readFunction writes the function that reads messages: one whose bytes are b[i:], or with a
// key those in the field with that key.
func (w *writer) readFunction(m *Message) {
	w.printf("\n// %s reads the messages of the field with the key in b[i:], or the one in b[i:] if key is 0.\n", readerOf(m.Name))
	w.printf("func %s(b []byte, i uint, key uint64, items []%s) {\n", readerOf(m.Name), fieldsType(m.Name))
	if len(m.Fields) == 0 {
		w.printf("}\n")
		return
	}
	w.printf(`if key == 0 {
	items[0].read(b[i:])
	return
}
for at := range items {
	var end uint
	if i+1 < uint(len(b)) && uint64(b[i]) == key && b[i+1] < 0x80 {
		end = i + 2 + uint(b[i+1])
		i += 2
	} else {
		i, end = %s(b, i, key)
	}
	if end < i || end > uint(len(b)) {
		return
	}
	items[at].read(b[i:end])
	i = end
}
}

// read reads one message.
func (m *%s) read(b []byte) {
	i := uint(0)
	for { // Once, if all fields are known and in order.
		start := i
`, w.name(guestPackage, "Next"), fieldsType(m.Name))
	for _, f := range m.Fields {
		w.readField(f)
	}
	w.printf(`if i >= uint(len(b)) {
			break
		}
		if i == start {
			i = %s(b, i) // A field that is not known.
		}
	}
}
`, w.name(guestPackage, "Skip"))
}

// keyed returns the condition that b[i] is the key of a field, with a byte of the value and
// more bytes after it, and the length of the key.
func keyed(number, wire uint32, more int) (condition string, length int) {
	k := key(number, wire)
	var parts []string
	for i, c := range k {
		at := "i"
		if i > 0 {
			at = fmt.Sprintf("i+%d", i)
		}
		text := fmt.Sprintf("%#x", c)
		if len(k) == 1 {
			text = fmt.Sprintf("%d<<3|%d", number, wire)
		}
		parts = append(parts, fmt.Sprintf("b[%s] == %s", at, text))
	}
	return fmt.Sprintf("i+%d < uint(len(b)) && %s", len(k)+more, strings.Join(parts, " && ")), len(k)
}

// readField writes the part of the function for a field.
func (w *writer) readField(f *Field) {
	t := f.Type
	rest := w.name(guestPackage, "Rest")
	length := func(n int) {
		w.printf("n := uint64(b[i+%d])\nif i += %d; n >= 0x80 {\n\tn, i = %s(b, i, n)\n}\n", n, n+1, rest)
	}
	switch {
	case f.Map || f.Repeated:
		condition, _ := keyed(f.Number, onBytes, 0)
		if f.Repeated && f.numeric() { // Packed, or one each.
			one, _ := keyed(f.Number, onWire(t.Kind), 0)
			condition += " || " + one
		}
		w.printf("if %s {\n\tm.in = b\n\ti = m.%s.Add(b, i, %s)\n}\n", condition, f.Name, wholeKey(f.Number))
	case f.lazy():
		condition, n := keyed(f.Number, onBytes, 0)
		w.printf("if %s {\n\tm.in = b\n\tfrom := i\n", condition)
		length(n)
		w.printf("if n > uint64(uint(len(b))-i) {\n\tbreak\n}\ni += uint(n)\nm.%s.Set(from, i)\n}\n", f.Name)
	case t.Kind == String || t.Kind == Bytes:
		condition, n := keyed(f.Number, onBytes, 0)
		w.printf("if %s {\n", condition)
		length(n)
		w.printf("if n > uint64(uint(len(b))-i) {\n\tbreak\n}\nm.%s = %s(b[i : i+uint(n)])\ni += uint(n)\n", f.Name, w.name(guestPackage, "TextOf"))
		w.flag(f)
		w.printf("}\n")
	default:
		wire := onWire(t.Kind)
		more := map[uint32]int{onFixed64: 7, onFixed32: 3}[wire]
		condition, n := keyed(f.Number, wire, more)
		w.printf("if %s {\n", condition)
		if wire == onVarint {
			length(n)
			w.printf("m.%s = %s\n", f.Name, w.fromVarint(t))
		} else {
			w.printf("m.%s = %s\ni += %d\n", f.Name, w.fromFixed(t, fmt.Sprintf("b[i+%d:]", n)), n+more+1)
		}
		w.flag(f)
		w.printf("}\n")
	}
}

func (w *writer) flag(f *Field) {
	if f.flagged() {
		w.printf("m.Has%s = true\n", f.Name)
	}
}

// onWire returns the wire type of a number.
func onWire(k Kind) uint32 {
	switch k {
	case Fixed32, Sfixed32, Float:
		return onFixed32
	case Fixed64, Sfixed64, Double, ObjectKind:
		return onFixed64
	}
	return onVarint
}

// fromVarint returns the conversion of the varint n.
func (w *writer) fromVarint(t Type) string {
	switch t.Kind {
	case Bool:
		return "n != 0"
	case Sint32:
		return "int32(" + w.name(guestPackage, "Zigzag") + "(n))"
	case Sint64:
		return w.name(guestPackage, "Zigzag") + "(n)"
	case Uint64:
		return "n"
	}
	return w.goType(t) + "(n)"
}

// fromFixed returns the conversion of a number of a fixed length.
func (w *writer) fromFixed(t Type, at string) string {
	switch t.Kind {
	case Double:
		return w.name(guestPackage, "Double") + "(" + at + ")"
	case Float:
		return w.name(guestPackage, "Float") + "(" + at + ")"
	case Fixed64:
		return w.name(guestPackage, "Fixed64") + "(" + at + ")"
	case Fixed32:
		return w.name(guestPackage, "Fixed32") + "(" + at + ")"
	case Sfixed32:
		return "int32(" + w.name(guestPackage, "Fixed32") + "(" + at + "))"
	case ObjectKind:
		return w.name(abiPackage, "Ref") + "(" + w.name(guestPackage, "Fixed64") + "(" + at + "))"
	}
	return "int64(" + w.name(guestPackage, "Fixed64") + "(" + at + "))"
}
