package wasmbin

import (
	"bytes"
	"fmt"
)

var (
	preamble = []byte{0x00, 'a', 's', 'm', 0x01, 0x00, 0x00, 0x00}
	// componentPreamble is that of a component: its layer is 1, not 0.
	componentPreamble = []byte{0x00, 'a', 's', 'm', 0x0d, 0x00, 0x01, 0x00}
)

// Decode decodes a binary down to the bodies of functions, which stay bytes: [Rewrite] steps
// through them. It refuses a malformed binary with a [DecodeError], but does not validate: types,
// indexes and constant expressions are left to wazero. The module shares its bytes with bin.
//
// It never allocates more than a small multiple of len(bin), whatever the counts in it claim, and
// enforces the limits of limits.go.
func Decode(bin []byte) (*Module, error) {
	m, err := decode(bin, func(SectionID) bool { return true })
	if err != nil {
		return nil, err
	}
	if len(m.Functions) != len(m.Codes) {
		return nil, &DecodeError{SectionCode, len(bin), fmt.Errorf("%d functions have %d bodies", len(m.Functions), len(m.Codes))}
	}
	return m, m.checkLocals(len(bin))
}

// withoutCustoms returns a well-formed binary without its custom sections: a mistake in one
// does not make a module invalid.
func withoutCustoms(bin []byte) []byte {
	out := append(make([]byte, 0, len(bin)), preamble...)
	for r := (reader{buf: bin, pos: len(preamble)}); r.left() > 0; {
		at := r.pos
		id := SectionID(r.byte("a section id"))
		r.sized("the section")
		if id != SectionCustom {
			out = append(out, bin[at:r.pos]...)
		}
	}
	return out
}

// decode decodes the sections that wanted selects, and skips the others.
func decode(bin []byte, wanted func(SectionID) bool) (*Module, error) {
	if !bytes.HasPrefix(bin, preamble) {
		head := bin[:min(len(bin), len(preamble))]
		if bytes.HasPrefix(bin, componentPreamble) {
			return nil, &DecodeError{Err: components.refuse()}
		}
		return nil, &DecodeError{Err: fmt.Errorf("it is no WebAssembly module: want the preamble %q, have %q", preamble, head)}
	}
	m := &Module{}
	r := &reader{buf: bin, pos: len(preamble)}
	s := &reader{}
	var last SectionID
	for r.left() > 0 && r.err == nil {
		r.section = SectionCustom
		at := r.pos
		id := SectionID(r.byte("a section id"))
		if int(id) >= len(sectionNames) {
			r.fail(at, "unknown section %d", id)
			break
		}
		r.section = id
		*s = r.sized("the section")
		switch {
		case r.err != nil:
			return nil, r.err
		case id == SectionCustom:
			name := s.name("the name")
			if len(m.Customs) == maxCustoms {
				s.fail(0, "%w: more than %d custom sections", ErrTooComplex, maxCustoms)
			}
			m.Customs = append(m.Customs, Custom{Name: name, Data: s.buf[s.pos:], After: last})
			s.pos = len(s.buf)
		case sectionRank[id] <= sectionRank[last]:
			r.fail(at, "want a section that may follow %s", last)
			return nil, r.err
		default:
			last = id
			if wanted(id) {
				m.decodeSection(s)
			} else {
				s.pos = len(s.buf)
			}
		}
		if s.left() > 0 {
			s.fail(s.pos, "%d bytes are left over", s.left())
		}
		if s.err != nil {
			return nil, s.err
		}
		r.types = max(r.types, s.types)
	}
	if n := len(m.flatTypes()); int64(n) < r.types {
		r.fail(len(bin), "%w: type %d, there are %d", ErrIndex, r.types-1, n)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// vector decodes a number of entries, at most most, of at least min bytes each.
func vector[T any](r *reader, what string, min, most int, entry func() T) []T {
	n := r.count(what, min, most)
	if n == 0 {
		return nil
	}
	v := make([]T, 0, n)
	for ; n > 0 && r.err == nil; n-- {
		v = append(v, entry())
	}
	return v
}

func (m *Module) decodeSection(r *reader) {
	switch r.section {
	case SectionType:
		m.Types = vector(r, "types", 2, maxTypes, r.recGroup)
	case SectionImport:
		m.Imports = vector(r, "imports", 4, maxImports, r.importEntry)
	case SectionFunction:
		m.Functions = vector(r, "functions", 1, MaxFunctions, func() uint32 { return r.u32("a type index") })
	case SectionTable:
		m.Tables = vector(r, "tables", 3, maxTables, r.table)
	case SectionMemory:
		m.Memories = vector(r, "memories", 2, maxMemories, r.limits)
		if len(m.Memories) > 1 {
			r.fail(0, "%w", multiMemory.refuse())
		}
	case SectionTag:
		m.Tags = vector(r, "tags", 2, maxTags, r.tag)
	case SectionGlobal:
		m.Globals = vector(r, "globals", 4, maxGlobals, func() Global { return Global{r.globalType(), r.expr()} })
	case SectionExport:
		m.Exports = vector(r, "exports", 3, maxExports, func() Export {
			return Export{r.name("the name of an export"), r.externKind(), r.u32("an index")}
		})
	case SectionStart:
		start := r.u32("a function index")
		m.Start = &start
	case SectionElement:
		m.Elements = vector(r, "element segments", 3, maxElementSegments, r.element)
	case SectionDataCount:
		count := r.u32("the number of data segments")
		m.DataCount = &count
	case SectionCode:
		m.Codes = vector(r, "bodies", 3, MaxFunctions, r.code)
	case SectionData:
		m.Datas = vector(r, "data segments", 2, maxDataSegments, r.data)
	}
}

func (r *reader) recGroup() RecGroup {
	if r.left() > 0 && r.buf[r.pos] == 0x4e {
		r.pos++
		return RecGroup{Types: vector(r, "types of a group", 3, maxTypes, r.funcType), Explicit: true}
	}
	return RecGroup{Types: []FuncType{r.funcType()}}
}

func (r *reader) funcType() FuncType {
	at := r.pos
	if form := r.byte("a function type"); form != 0x60 {
		r.refuseType(at, form)
		r.fail(at, "want a function type (0x60), have %#x", form)
	}
	valType := func() ValType { return r.valType("a value type") }
	t := FuncType{
		Params:  vector(r, "parameters", 1, maxValues, valType),
		Results: vector(r, "results", 1, maxValues, valType),
	}
	r.total(&r.groups, 1, maxTypes, "types")
	r.total(&r.values, len(t.Params)+len(t.Results), maxTotalValues, "parameters and results of all types")
	return t
}

func (r *reader) valType(what string) ValType {
	at := r.pos
	t := ValType(r.byte(what))
	if t == refNull || t == refNon {
		return t | ValType(r.s33("a heap type"))<<8
	}
	if _, ok := valTypeNames[t]; !ok {
		r.refuseType(at, byte(t))
		r.fail(at, "want %s, have %#x", what, byte(t))
	}
	return t
}

// refuseType fails if a form or a type belongs to a feature that wazero lacks.
func (r *reader) refuseType(at int, form byte) {
	if f, ok := typeFeature(form); ok && r.err == nil {
		r.fail(at, "%w", f.refuse())
	}
}

func (r *reader) externKind() ExternKind {
	at := r.pos
	k := ExternKind(r.byte("the kind of an import or export"))
	if int(k) >= len(externNames) {
		r.fail(at, "want the kind of an import or export from 0 to 4, have %d", k)
	}
	return k
}

func (r *reader) importEntry() Import {
	i := Import{
		Module: r.name("the module of an import"), Name: r.name("the name of an import"), Kind: r.externKind(),
	}
	switch i.Kind {
	case ExternFunc:
		i.Type = r.u32("a type index")
	case ExternTable:
		i.Table = r.table()
	case ExternMemory:
		i.Memory = r.limits()
	case ExternGlobal:
		i.Global = r.globalType()
	case ExternTag:
		i.Type = r.tag()
	}
	return i
}

func (r *reader) table() Table {
	var t Table
	init := r.left() > 1 && r.buf[r.pos] == 0x40
	if init {
		if r.pos++; r.byte("a zero") != 0 {
			r.fail(r.pos-1, "want a zero after 0x40, have %#x", r.buf[r.pos-1])
		}
	}
	t.Elem, t.Limits = r.valType("the type of a table"), r.limits()
	if init {
		t.Init = r.expr()
	}
	return t
}

func (r *reader) limits() Limits {
	at := r.pos
	flags := r.byte("the flags of limits")
	if flags > 3 {
		r.fail(at, "%w", limitsFeature(flags).refuse())
	}
	l := Limits{Min: r.u32("a minimum"), HasMax: flags&1 != 0, Shared: flags&2 != 0}
	if l.HasMax {
		l.Max = r.u32("a maximum")
	}
	return l
}

func (r *reader) globalType() GlobalType {
	t := GlobalType{Type: r.valType("the type of a global")}
	at := r.pos
	mutable := r.byte("the mutability of a global")
	if mutable > 1 {
		r.fail(at, "want the mutability of a global as 0 or 1, have %#x", mutable)
	}
	t.Mutable = mutable == 1
	return t
}

func (r *reader) tag() uint32 {
	if at := r.pos; r.byte("the attribute of a tag") != 0 {
		r.fail(at, "want the attribute of a tag as 0, have %#x", r.buf[at])
	}
	return r.u32("a type index")
}

// expr steps through a constant expression, which has no blocks, to its end.
func (r *reader) expr() Expr {
	s := scanner{reader: *r}
	for s.next() && s.op != OpEnd {
		switch s.op {
		case OpBlock, OpLoop, OpIf, OpTryTable:
			s.fail(s.at, "want a constant expression, have a block")
		}
	}
	if s.op != OpEnd {
		s.fail(s.pos, "%w: want the end of a constant expression", errEnd)
	}
	e := Expr(r.buf[r.pos:s.pos:s.pos])
	*r = s.reader
	return e
}

func (r *reader) element() Element {
	at := r.pos
	e := Element{Flags: r.u32("the flags of an element segment")}
	if e.Flags > 7 {
		r.fail(at, "want the flags of an element segment from 0 to 7, have %d", e.Flags)
	}
	if e.active() {
		if e.Flags&2 != 0 {
			e.Table = r.u32("a table index")
		}
		e.Offset = r.expr()
	}
	switch {
	case e.Flags&3 == 0: // funcref, not written
	case e.Flags&4 != 0:
		e.Type = r.valType("the type of an element segment")
	default:
		if at := r.pos; r.byte("an element kind") != 0 {
			r.fail(at, "want the element kind 0, have %#x", r.buf[at])
		}
	}
	if e.Flags&4 != 0 {
		e.Exprs = vector(r, "expressions", 2, maxElements, r.expr)
	} else {
		e.Funcs = vector(r, "function indexes", 1, maxElements, func() uint32 { return r.u32("a function index") })
	}
	r.total(&r.values, len(e.Exprs)+len(e.Funcs), maxElements, "elements of all segments")
	return e
}

// active reports whether the segment is copied into a table at instantiation.
func (e *Element) active() bool { return e.Flags&1 == 0 }

func (r *reader) code() Code {
	at := r.pos
	b := r.sized("a body")
	if len(b.buf) > MaxBodyBytes {
		r.fail(at, "%w: a body of %d bytes, possible are %d", ErrTooComplex, len(b.buf), MaxBodyBytes)
	}
	c := Code{LocalGroups: uint32(b.count("groups of locals", 2, MaxLocals))}
	start := b.pos
	for n := c.LocalGroups; n > 0 && b.err == nil; n-- {
		c.NumLocals += uint64(b.u32("the number of locals"))
		b.valType("the type of locals")
	}
	c.Locals, c.Body, c.Offset = b.buf[start:b.pos:b.pos], b.buf[b.pos:], b.base+b.pos
	if b.err == nil && (len(c.Body) == 0 || c.Body[len(c.Body)-1] != OpEnd) {
		b.fail(len(b.buf), "want a body that closes with end")
	}
	r.types = max(r.types, b.types)
	if r.err == nil {
		r.err = b.err
	}
	return c
}

func (r *reader) data() Data {
	at := r.pos
	d := Data{Flags: r.u32("the flags of a data segment")}
	switch d.Flags {
	case 0, 1:
	case 2:
		if at := r.pos; r.u32("a memory index") != 0 {
			r.fail(at, "%w", multiMemory.refuse())
		}
	default:
		r.fail(at, "want the flags of a data segment from 0 to 2, have %d", d.Flags)
	}
	if d.Flags != 1 {
		d.Offset = r.expr()
	}
	d.Init = r.bytes(r.u32("the size of a data segment"), "a data segment")
	return d
}

// checkLocals enforces MaxLocals and maxTotalLocals on a binary of that size.
func (m *Module) checkLocals(size int) error {
	total, limit := uint64(0), uint64(maxTotalLocals+size)
	for i := range m.Codes {
		c := &m.Codes[i]
		if total += c.NumLocals; c.NumLocals > MaxLocals || total > limit {
			return &DecodeError{SectionCode, c.Offset, fmt.Errorf(
				"%w: %d in body %d, %d up to there; possible are %d in one, %d in all",
				ErrTooManyLocals, c.NumLocals, i, total, MaxLocals, limit)}
		}
	}
	return nil
}
