package bindgen

import (
	"fmt"
	"strings"
)

// lastSlot is the largest number of a field that has a slot.
const lastSlot = 63

// wide reports whether guests in Go keep a slot for each field of the message, which they fill in
// one walk. A search for one of a few fields takes less time, and slots need memory.
func (m *Message) wide() bool {
	const many = 12
	n := 0
	for _, f := range m.Fields {
		if f.Number <= lastSlot {
			n++
		}
	}
	return n >= many
}

// message returns the message with a name.
func (p *Package) message(name string) *Message {
	for _, m := range p.Messages {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// slot is the content of a slot.
type slot int

const (
	// slotUnused is that of a field for which guests search.
	slotUnused slot = iota
	slotNumber
	slotText
	slotMap
)

func (f *Field) slot() slot {
	switch {
	case f.Number > lastSlot:
		return slotUnused
	case f.Map:
		return slotMap
	case f.Repeated:
		return slotUnused
	case f.Type.Kind == String:
		return slotText
	case f.numeric():
		return slotNumber
	}
	return slotUnused
}

// byNumber returns the fields up to lastSlot by their numbers, nil where there is none.
func (m *Message) byNumber() []*Field {
	list := []*Field{nil}
	for _, f := range m.Fields {
		if f.Number > lastSlot {
			continue
		}
		for len(list) <= int(f.Number) {
			list = append(list, nil)
		}
		list[f.Number] = f
	}
	return list
}

// slots writes the slots of a message, each of eight bytes, after the Encoded.
func (w *writer) slots(m *Message) {
	w.printf("// read and the next members are the slots of the fields by their numbers.\nread uint64\n")
	for _, f := range m.byNumber()[1:] {
		switch {
		case f == nil || f.slot() == slotUnused:
			w.printf("_ uint64\n")
		case f.slot() == slotMap:
			w.printf("%s uint64\n", mapSlot(f))
		case f.slot() == slotText || f.Type.Kind == ObjectKind:
			w.printf("%s uint64\n", f.Name)
		default:
			w.printf("%s %s\n", f.Name, w.goType(f.Type))
			if rest := 8 - f.Type.Kind.bytes(); rest != 0 {
				w.printf("_ [%d]byte\n", rest)
			}
		}
	}
}

func mapSlot(f *Field) string { return f.Name + "_at" }

// bytes returns the size of a number in memory.
func (k Kind) bytes() int {
	switch k {
	case Bool:
		return 1
	case Int64, Sint64, Sfixed64, Uint64, Fixed64, Double:
		return 8
	}
	return 4
}

// fill writes the functions that fill the slots of a message.
func (w *writer) fill(m *Message) {
	fields, none := fieldsType(m.Name), lower(m.Name)+"_none"
	var kinds strings.Builder
	for _, f := range m.byNumber() {
		fmt.Fprintf(&kinds, "\\x%02x", f.slotKind())
	}
	w.printf("\nvar %s = %s{read: 1}\n", none, fields)
	w.printf("\n// %s_kinds are the kinds of the slots.\nconst %[1]s_kinds = \"%s\"\n", lower(m.Name), kinds.String())
	w.printf("\n// wide returns m with its slots, and is inlined.\nfunc (m *%s) wide() *%[1]s {\n\tif m != nil && m.read != 0 {\n\t\treturn m\n\t}\n\treturn m.fill()\n}\n", fields)
	w.printf("\n//go:noinline\nfunc (m *%s) fill() *%[1]s {\n\tif m == nil {\n\t\treturn &%s\n\t}\n\tm.in.Wide(&m.read, %s_kinds)\n", fields, none, lower(m.Name))
	for _, f := range m.Fields {
		if f.slot() == slotMap {
			w.printf("\tm.%s.Begin(&m.in, m.%s)\n", f.Name, mapSlot(f))
		}
	}
	w.printf("\treturn m\n}\n")
}

// slotKind returns the kind of a slot as package guest/service defines it.
func (f *Field) slotKind() uint32 {
	const truth, zigzag, half = 8, 16, 32
	if f == nil {
		return 0
	}
	if f.slot() != slotNumber {
		return onBytes + 1
	}
	kind := onWire(f.Type.Kind) + 1
	switch {
	case f.Type.Kind == Bool:
		return kind | truth
	case f.Type.Kind == ObjectKind:
		return kind
	case f.Type.Kind == Sint32 || f.Type.Kind == Sint64:
		kind |= zigzag
	}
	if f.Type.Kind.bytes() == 4 {
		kind |= half
	}
	return kind
}
