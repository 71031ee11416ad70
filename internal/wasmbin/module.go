package wasmbin

import (
	"fmt"
	"strings"
)

// SectionID identifies a section of a wasm module.
type SectionID byte

// The sections, by the ids of the binary format. Their order in a module is
// [sectionOrder], not the order of the ids.
const (
	SectionCustom SectionID = iota
	SectionType
	SectionImport
	SectionFunction
	SectionTable
	SectionMemory
	SectionGlobal
	SectionExport
	SectionStart
	SectionElement
	SectionCode
	SectionData
	SectionDataCount
	SectionTag
)

// sectionOrder is the order in which sections stand in a binary.
var sectionOrder = [...]SectionID{
	SectionType, SectionImport, SectionFunction, SectionTable, SectionMemory, SectionTag, SectionGlobal,
	SectionExport, SectionStart, SectionElement, SectionDataCount, SectionCode, SectionData,
}

// sectionRank is the position of a section in sectionOrder, from 1; 0 is a
// custom section or the start of the module.
var sectionRank = func() (rank [14]int) {
	for i, id := range sectionOrder {
		rank[id] = i + 1
	}
	return
}()

var sectionNames = [...]string{
	"custom", "type", "import", "function", "table", "memory", "global",
	"export", "start", "element", "code", "data", "data count", "tag",
}

// String returns the name that the WebAssembly specification uses.
func (id SectionID) String() string {
	if int(id) < len(sectionNames) {
		return sectionNames[id]
	}
	return fmt.Sprintf("unknown(%d)", byte(id))
}

// ExternKind is the kind of an import or an export.
type ExternKind byte

// The kinds of imports and exports.
const (
	ExternFunc ExternKind = iota
	ExternTable
	ExternMemory
	ExternGlobal
	ExternTag
)

var externNames = [...]string{"func", "table", "memory", "global", "tag"}

// String returns the keyword of the text format.
func (k ExternKind) String() string {
	if int(k) < len(externNames) {
		return externNames[k]
	}
	return fmt.Sprintf("unknown(%d)", byte(k))
}

// ValType is a value type: the leading byte of its encoding in the low eight
// bits and, for the two-part reference types (ref ht) and (ref null ht), the
// signed heap type above them. For all other types it equals wazero's
// api.ValueType.
type ValType int64

// The value types of one byte, and the two prefixes of a typed reference.
const (
	I32       ValType = 0x7f
	I64       ValType = 0x7e
	F32       ValType = 0x7d
	F64       ValType = 0x7c
	V128      ValType = 0x7b
	FuncRef   ValType = 0x70
	ExternRef ValType = 0x6f
	ExnRef    ValType = 0x69

	refNull ValType = 0x63
	refNon  ValType = 0x64
)

var valTypeNames = map[ValType]string{
	I32: "i32", I64: "i64", F32: "f32", F64: "f64", V128: "v128",
	FuncRef: "funcref", ExternRef: "externref", ExnRef: "exnref",
}

// heapTypeNames are the abstract heap types, which are negative; the others are
// type indexes.
var heapTypeNames = map[int64]string{-16: "func", -17: "extern", -23: "exn"}

// kind returns the leading byte.
func (t ValType) kind() ValType { return t & 0xff }

// heap returns the heap type of a two-part reference type.
func (t ValType) heap() int64 { return int64(t >> 8) }

// IsRef reports whether values of the type are references, which mean nothing
// outside of their instance.
func (t ValType) IsRef() bool {
	switch t.kind() {
	case FuncRef, ExternRef, ExnRef, refNull, refNon:
		return true
	}
	return false
}

// String returns the type as the text format writes it.
func (t ValType) String() string {
	if name, ok := valTypeNames[t]; ok {
		return name
	}
	heap, ok := heapTypeNames[t.heap()]
	if !ok {
		heap = fmt.Sprint(t.heap())
	}
	if t.kind() == refNull {
		return "(ref null " + heap + ")"
	}
	return "(ref " + heap + ")"
}

// FuncType is the signature of a function or, without results, of a tag.
type FuncType struct {
	Params, Results []ValType
}

// String returns the signature as in "(i32, i64) -> i32".
func (t FuncType) String() string {
	list := func(types []ValType) string {
		names := make([]string, len(types))
		for i, t := range types {
			names[i] = t.String()
		}
		return strings.Join(names, ", ")
	}
	params, results := "("+list(t.Params)+")", list(t.Results)
	if len(t.Results) != 1 {
		results = "(" + results + ")"
	}
	return params + " -> " + results
}

// RecGroup is one entry of the type section: a single type, or a recursion
// group of several whose signatures may name each other. Types are indexed one
// by one, through all groups.
type RecGroup struct {
	Types []FuncType
	// Explicit is set if the group is encoded as one, which a single type need
	// not be.
	Explicit bool
}

// Limits are the bounds of a table (in elements) or of a memory (in pages of 64
// KiB).
type Limits struct {
	Min, Max uint32
	HasMax   bool
	// Shared is set for a memory that threads share.
	Shared bool
}

// Import is one entry of the import section; Kind selects the other field that holds its type.
type Import struct {
	Module, Name string
	Kind         ExternKind
	Type         uint32 // of a func or a tag: an index into the types
	Table        Table
	Memory       Limits
	Global       GlobalType
}

// Table is a table, defined or imported.
type Table struct {
	Elem   ValType
	Limits Limits
	// Init is the initial value of all elements, or nil. Imports have none.
	Init Expr
}

// GlobalType is the type of a global.
type GlobalType struct {
	Type    ValType
	Mutable bool
}

// Global is a global that the module defines.
type Global struct {
	GlobalType
	Init Expr
}

// Export is one entry of the export section. Index is in the index space of
// Kind.
type Export struct {
	Name  string
	Kind  ExternKind
	Index uint32
}

// Expr is a constant expression in binary form, with its closing end.
type Expr []byte

// Element is an element segment. Its encoding depends on three bits of Flags: 1
// passive or declarative, 2 explicit table index (or declarative), 4
// expressions instead of function indexes.
type Element struct {
	Flags  uint32
	Table  uint32
	Offset Expr
	Type   ValType  // when Flags has bit 4 and one of the others
	Funcs  []uint32 // without bit 4
	Exprs  []Expr   // with bit 4
}

// Data is a data segment. Flags is 0 for an active one, 1 for a passive one, 2
// for an active one that names memory 0.
type Data struct {
	Flags  uint32
	Offset Expr
	Init   []byte
}

// Code is the body of a function.
type Code struct {
	// LocalGroups and Locals are the declarations of locals, still encoded; NumLocals is the number
	// of locals that they declare.
	LocalGroups uint32
	Locals      []byte
	NumLocals   uint64
	// Body holds the instructions, with the closing end.
	Body []byte
	// Offset is the beginning of Body in the decoded binary, for error messages.
	Offset int
}

// Custom is a custom section. After is the section before it, [SectionCustom] if it comes before
// all.
type Custom struct {
	Name  string
	Data  []byte
	After SectionID
}

// Module is a decoded wasm module. Byte slices point into the decoded binary,
// which must not change as long as the module is in use. Index spaces begin
// with the imports.
type Module struct {
	Types     []RecGroup
	Imports   []Import
	Functions []uint32 // the type of each defined function
	Tables    []Table
	Memories  []Limits
	Tags      []uint32 // the type of each defined tag
	Globals   []Global
	Exports   []Export
	Start     *uint32
	Elements  []Element
	DataCount *uint32
	Codes     []Code
	Datas     []Data
	Customs   []Custom
}

// imported returns the number of imports of the kind, which is the index of the first definition of
// that kind.
func (m *Module) imported(kind ExternKind) (n uint32) {
	for i := range m.Imports {
		if m.Imports[i].Kind == kind {
			n++
		}
	}
	return n
}

// flatTypes returns the types in the order of their indexes.
func (m *Module) flatTypes() []FuncType {
	types := make([]FuncType, 0, len(m.Types))
	for _, g := range m.Types {
		types = append(types, g.Types...)
	}
	return types
}
