package wasmbin

import "slices"

// Encode returns the binary of the module, with every integer that it writes in its shortest form.
// The parts that Decode keeps as bytes (bodies, constant expressions, custom sections) are written
// as they are. So a binary in canonical form, as toolchains other than linkers with padded
// relocations emit it, comes out of Decode and Encode byte for byte.
func (m *Module) Encode() []byte {
	size := 1 << 10
	for i := range m.Codes {
		size += len(m.Codes[i].Body) + len(m.Codes[i].Locals) + 16
	}
	for i := range m.Datas {
		size += len(m.Datas[i].Init) + 16
	}
	for i := range m.Customs {
		size += len(m.Customs[i].Data) + 64
	}
	out := append(make([]byte, 0, size), preamble...)
	out = m.appendCustoms(out, SectionCustom)
	for _, id := range sectionOrder {
		start := len(out)
		out = appendSized(append(out, byte(id)), func(b []byte) []byte { return m.appendSection(b, id) })
		if len(out) == start+2 { // id and size 0: a section without content
			out = out[:start]
		}
		out = m.appendCustoms(out, id)
	}
	return out
}

// maxSizeLen is the maximum number of bytes of the size of a section.
const maxSizeLen = 5

// appendSized appends the output of body, preceded by its size.
func appendSized(b []byte, body func([]byte) []byte) []byte {
	start := len(b)
	b = body(append(b, make([]byte, maxSizeLen)...))
	size := appendUvarint(b[start:start], uint64(len(b)-start-maxSizeLen))
	return slices.Delete(b, start+len(size), start+maxSizeLen)
}

func (m *Module) appendCustoms(b []byte, after SectionID) []byte {
	for _, c := range m.Customs {
		if c.After == after {
			b = append(b, byte(SectionCustom))
			b = appendSized(b, func(b []byte) []byte { return append(appendName(b, c.Name), c.Data...) })
		}
	}
	return b
}

func appendVector[T any](b []byte, v []T, entry func([]byte, *T) []byte) []byte {
	b = appendUvarint(b, uint64(len(v)))
	for i := range v {
		b = entry(b, &v[i])
	}
	return b
}

func appendIndex(b []byte, i *uint32) []byte { return appendUvarint(b, uint64(*i)) }

// appendSection appends the content of a section, nothing if the section is to
// be left out.
func (m *Module) appendSection(b []byte, id SectionID) []byte {
	switch id {
	case SectionType:
		return appendEntries(b, m.Types, appendRecGroup)
	case SectionImport:
		return appendEntries(b, m.Imports, appendImport)
	case SectionFunction:
		return appendEntries(b, m.Functions, appendIndex)
	case SectionTable:
		return appendEntries(b, m.Tables, appendTable)
	case SectionMemory:
		return appendEntries(b, m.Memories, appendLimits)
	case SectionTag:
		return appendEntries(b, m.Tags, appendTag)
	case SectionGlobal:
		return appendEntries(b, m.Globals, appendGlobal)
	case SectionExport:
		return appendEntries(b, m.Exports, appendExport)
	case SectionStart:
		return appendOptional(b, m.Start)
	case SectionElement:
		return appendEntries(b, m.Elements, appendElement)
	case SectionDataCount:
		return appendOptional(b, m.DataCount)
	case SectionCode:
		return appendEntries(b, m.Codes, appendCode)
	case SectionData:
		return appendEntries(b, m.Datas, appendData)
	}
	return b
}

// appendEntries appends the entries of a section, if there are any.
func appendEntries[T any](b []byte, v []T, entry func([]byte, *T) []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return appendVector(b, v, entry)
}

func appendOptional(b []byte, i *uint32) []byte {
	if i == nil {
		return b
	}
	return appendIndex(b, i)
}

func appendRecGroup(b []byte, g *RecGroup) []byte {
	if g.Explicit {
		b = appendUvarint(append(b, 0x4e), uint64(len(g.Types)))
	}
	for _, t := range g.Types {
		b = append(b, 0x60)
		b = appendVector(b, t.Params, appendValType)
		b = appendVector(b, t.Results, appendValType)
	}
	return b
}

func appendValType(b []byte, t *ValType) []byte {
	b = append(b, byte(*t))
	if k := t.kind(); k == refNull || k == refNon {
		b = appendVarint(b, t.heap())
	}
	return b
}

func appendImport(b []byte, i *Import) []byte {
	b = append(appendName(appendName(b, i.Module), i.Name), byte(i.Kind))
	switch i.Kind {
	case ExternFunc:
		return appendIndex(b, &i.Type)
	case ExternTable:
		return appendTable(b, &i.Table)
	case ExternMemory:
		return appendLimits(b, &i.Memory)
	case ExternGlobal:
		return appendGlobalType(b, i.Global)
	default:
		return appendTag(b, &i.Type)
	}
}

func appendTable(b []byte, t *Table) []byte {
	if t.Init != nil {
		b = append(b, 0x40, 0x00)
	}
	b = appendLimits(appendValType(b, &t.Elem), &t.Limits)
	return append(b, t.Init...)
}

func appendLimits(b []byte, l *Limits) []byte {
	var flags byte
	if l.HasMax {
		flags |= 1
	}
	if l.Shared {
		flags |= 2
	}
	b = appendUvarint(append(b, flags), uint64(l.Min))
	if l.HasMax {
		b = appendUvarint(b, uint64(l.Max))
	}
	return b
}

func appendGlobalType(b []byte, t GlobalType) []byte {
	b = appendValType(b, &t.Type)
	if t.Mutable {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendGlobal(b []byte, g *Global) []byte {
	return append(appendGlobalType(b, g.GlobalType), g.Init...)
}

func appendExport(b []byte, e *Export) []byte {
	return appendIndex(append(appendName(b, e.Name), byte(e.Kind)), &e.Index)
}

func appendTag(b []byte, typ *uint32) []byte { return appendIndex(append(b, 0), typ) }

func appendElement(b []byte, e *Element) []byte {
	b = appendUvarint(b, uint64(e.Flags))
	if e.active() {
		if e.Flags&2 != 0 {
			b = appendUvarint(b, uint64(e.Table))
		}
		b = append(b, e.Offset...)
	}
	switch {
	case e.Flags&3 == 0:
	case e.Flags&4 != 0:
		b = appendValType(b, &e.Type)
	default:
		b = append(b, 0)
	}
	if e.Flags&4 != 0 {
		return appendVector(b, e.Exprs, func(b []byte, x *Expr) []byte { return append(b, *x...) })
	}
	return appendVector(b, e.Funcs, appendIndex)
}

func appendCode(b []byte, c *Code) []byte {
	groups := appendUvarint(nil, uint64(c.LocalGroups))
	b = appendUvarint(b, uint64(len(groups)+len(c.Locals)+len(c.Body)))
	b = append(append(b, groups...), c.Locals...)
	return append(b, c.Body...)
}

func appendData(b []byte, d *Data) []byte {
	b = appendUvarint(b, uint64(d.Flags))
	if d.Flags == 2 {
		b = append(b, 0)
	}
	b = append(b, d.Offset...)
	return append(appendUvarint(b, uint64(len(d.Init))), d.Init...)
}
