package wasmbin

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// MaxPages is the greatest size of a memory, 4 GiB.
const MaxPages = 1 << 16

// Options configure [Rewrite]. The zero value only exports the mutable globals.
type Options struct {
	// Meter adds the fuel counter and the calls of yield.
	Meter bool
	// Fuel is the initial value of the counter. A start function runs on it, before the host can
	// set the counter. With 0 the host is called as soon as fuel has been spent.
	Fuel int64
	// StackBytes is the maximum stack of nested functions, as [StackGlobal] counts it; 0 leaves
	// that to wazero. It needs Meter.
	StackBytes int32
	// MaxMemoryPages caps the maximum of the memory, in pages of 64 KiB; 0
	// leaves it. A guest that declares no maximum gets one.
	MaxMemoryPages uint32
	// MaxTableElements caps the number of elements that the tables of a guest, imported ones aside,
	// can hold together; 0 leaves them. An element takes eight bytes of the host's memory, which no
	// limit of the guest's memory covers.
	MaxTableElements uint32
	// CheckElements refuses guests with an active element segment that lies beyond its table, as
	// far as the binary shows: the offset is a constant and the table the guest's own. By the
	// specification their instantiation traps; wazero leaves the segment out.
	CheckElements bool
	// LimitComplexity refuses guests that are made to be slow to compile.
	LimitComplexity bool
	// CompileTime is the time that the compiler may take, by an estimate, for the guest and for one
	// function of it, beyond the time for any code of that size. 0 is 0.8 s and 2 us for each byte
	// of the bodies, and 5 s for a function. It needs LimitComplexity.
	CompileTime time.Duration
	// DefineMemory replaces an imported memory of a guest by a defined one, with the limits of the
	// import, and exports it as "memory" unless the guest has an export of that name.
	DefineMemory bool
	// ExpandRemainders computes remainders from quotients, which wazero needs on arm64. It needs
	// Meter.
	ExpandRemainders bool
	// ExpandTailCalls replaces each indirect tail call by a call and a return, which wazero needs
	// on arm64. It needs Meter.
	ExpandTailCalls bool
	// RefuseUnsafe refuses guests with exceptions, as a function of wazero 1.12 that catches one
	// loses its writes to its locals, and with threads, as a wait spends no fuel. It needs
	// LimitComplexity or StackBytes.
	RefuseUnsafe bool
	// Validate, unless it is nil, is called with the guest's own binary, without its custom
	// sections, and returns an error if it is not valid. It is called when the binary was found to
	// be well-formed and within the limits above, and before anything is changed: an invalid guest
	// must not become valid, and the changes rely on a valid one.
	Validate func(bin []byte) error

	// Pass, unless it is nil, changes the code before it is measured and metered, so that
	// fuel counts the instructions that it leaves.
	Pass Pass

	// Profile has the guest report its use of fuel to an instance of [Profiler]. The charges stay
	// the same. It needs Meter.
	Profile bool
	// Coroutines, unless it is nil, describes functions that are left and resumed, so that
	// their call paths are those of the source.
	Coroutines *Coroutines
}

// A Pass changes the body of a function. c describes its declaration: the new body has the same
// type, the same locals and the same calls, and behaves the same. The pass must not change c.Body,
// and may get bodies that are not valid, before the module is refused for it.
type Pass func(t FuncType, c *Code) (body []byte)

// Info describes the rewritten guest to the host. Indexes are those of the guest's own binary.
type Info struct {
	// Imports and Exports are the guest's own, in their order, without additions of the rewriting.
	Imports, Exports []Extern
	// Memory is the guest's memory, with the maximum capped; nil if it has
	// none.
	Memory *Memory
	// Tables are the tables that the guest defines, capped.
	Tables []Limits
	// Functions is the number of functions that the guest defines, CodeSize the
	// size of their bodies in bytes.
	Functions, CodeSize int
	// Starts is set if the guest has a start section, which runs whenever it is
	// instantiated.
	Starts bool
	// Globals are the exports under which the host finds the guest's mutable
	// globals, to snapshot and restore them. The fuel counter is not among
	// them.
	Globals []GlobalExport
	// OpaqueGlobals are the mutable globals that cannot be restored, because
	// their values are references or wider than the 64 bits that wazero lets
	// the host set. They are not exported.
	OpaqueGlobals []uint32
	// MutatesTables is set if the guest has instructions which change tables,
	// DropsSegments if it has instructions which drop data or element
	// segments. A snapshot of memory and globals does not capture either.
	MutatesTables, DropsSegments bool
	// Customs are the names of the custom sections that were kept, Dropped of those that were left
	// out: a malformed name section, and sections about offsets or function indexes of the old
	// binary, above all DWARF.
	Customs, Dropped []string
}

// Extern is an import or an export. Kind selects the other field that describes it.
type Extern struct {
	Module string // of an import
	Name   string
	Kind   ExternKind
	Index  uint32
	Func   FuncType // of a func or a tag
	Global GlobalType
	Elem   ValType // of a table
	Limits Limits  // of a table or a memory, after capping
}

// String returns the extern as in `func "k8s.io/api"."object" (i64, i32, i32)
// -> i32`.
func (e Extern) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v ", e.Kind)
	if e.Module != "" {
		fmt.Fprintf(&b, "%q.", e.Module)
	}
	fmt.Fprintf(&b, "%q", e.Name)
	switch e.Kind {
	case ExternFunc, ExternTag:
		fmt.Fprintf(&b, " %v", e.Func)
	case ExternGlobal:
		fmt.Fprintf(&b, " %v", e.Global.Type)
	}
	return b.String()
}

// Memory describes the memory of a guest. If it is shared, the guest can wait on
// it (memory.atomic.wait) for as long as it likes without spending fuel.
type Memory struct {
	Limits
	// Imported is set if the guest gets its memory from another module. Then the maximum is only
	// the one that it requests, and the module that defines the memory sets the real one.
	Imported bool
}

// GlobalExport is a mutable global that the rewriting exported.
type GlobalExport struct {
	Name  string
	Index uint32
	Type  ValType
}

// Rewrite returns the binary with metering, capped memory and exported globals, according to opts,
// and the description of it for the host. The function is deterministic, and keeps neither bin nor
// parts of it.
//
// Errors are a [DecodeError] for a malformed binary, that of [Options.Validate], and [ErrReserved],
// [ErrMemoryLimit], [ErrTableLimit], [ErrElements], [ErrTooManyLocals], [ErrTooComplex], [ErrIndex]
// or [ErrUnsupported] for a refused one, and [ErrInternal].
func Rewrite(bin []byte, opts Options) (out []byte, info *Info, err error) {
	defer contain(&err)
	m, err := Decode(bin)
	if err != nil {
		return nil, nil, err
	}
	rw := &rewriter{Module: m, bin: bin, opts: opts, info: &Info{Functions: len(m.Codes), Starts: m.Start != nil}, yield: m.imported(ExternFunc)}
	for _, step := range []func() error{
		rw.reserved, rw.unused, rw.defineMemory, rw.capMemory, rw.checkElements, rw.capTables, rw.describe,
		rw.planProfile, rw.pass, rw.survey, rw.validate, rw.code, rw.indexes, rw.exportGlobals, rw.customs, rw.addMeter,
	} {
		if err := step(); err != nil {
			return nil, nil, fmt.Errorf("rewrite wasm: %w", err)
		}
	}
	return m.Encode(), rw.info, nil
}

// Describe returns the imports and exports of a module, as in [Info], and its custom sections,
// which share their bytes with bin. It does not read code, elements and data, so it takes
// microseconds. Errors are as for [Rewrite].
func Describe(bin []byte) (imports, exports []Extern, customs []Custom, err error) {
	defer contain(&err)
	m, err := decode(bin, func(id SectionID) bool {
		return id != SectionElement && id != SectionDataCount && id != SectionCode && id != SectionData
	})
	if err != nil {
		return nil, nil, nil, err
	}
	rw := &rewriter{Module: m, info: &Info{}}
	if err := rw.describe(); err != nil {
		return nil, nil, nil, fmt.Errorf("describe wasm: %w", err)
	}
	return rw.info.Imports, rw.info.Exports, m.Customs, nil
}

// rewriter holds the shared state of the steps of Rewrite. They run in the order in which Rewrite
// lists them.
type rewriter struct {
	*Module
	bin       []byte
	opts      Options
	info      *Info
	types     []FuncType
	functions []uint32                   // the type of each function, imports included
	spaces    [len(externNames)][]Extern // the index spaces, imports included
	yield     uint32                     // the index that the yield function gets
	added     []FuncType                 // types after that of the yield function
	plan      *stackPlan                 // nil if the stack is not limited
	indexOf   map[string]int             // results of typeIndex, by the type's text
	pieces    []pieceFunction            // functions after the guest's
	refers    bool                       // the guest calls references
	profile   *profileImports            // nil without a profile
}

// resultsType returns the block type, encoded, of a block that takes nothing and leaves results. It
// adds a type if necessary.
func (rw *rewriter) resultsType(results []ValType) []byte {
	switch len(results) {
	case 0:
		return []byte{BlockTypeEmpty}
	case 1:
		return appendValType(nil, &results[0])
	}
	return appendVarint(nil, int64(rw.typeIndex(FuncType{Results: results})))
}

// typeIndex returns the index of a type, which is added if the guest has none that
// is equal.
func (rw *rewriter) typeIndex(t FuncType) int {
	key := t.String()
	if i, ok := rw.indexOf[key]; ok {
		return i
	}
	same := func(u FuncType) bool { return slices.Equal(u.Params, t.Params) && slices.Equal(u.Results, t.Results) }
	i := slices.IndexFunc(rw.types, same)
	if i < 0 {
		i = rw.addType(t)
	}
	if rw.indexOf == nil {
		rw.indexOf = map[string]int{}
	}
	rw.indexOf[key] = i
	return i
}

// addType adds a type and returns its index.
func (rw *rewriter) addType(t FuncType) int {
	rw.added = append(rw.added, t)
	return len(rw.types) + len(rw.added)
}

// reserved refuses names that would collide with our own, or let the guest reach them.
func (rw *rewriter) reserved() error {
	for _, i := range rw.Imports {
		if strings.HasPrefix(i.Module, ReservedPrefix) || strings.HasPrefix(i.Name, ReservedPrefix) {
			return fmt.Errorf("import %.100q.%.100q: %w", i.Module, i.Name, ErrReserved)
		}
	}
	for _, e := range rw.Exports {
		if strings.HasPrefix(e.Name, ReservedPrefix) {
			return fmt.Errorf("export %.100q: %w", e.Name, ErrReserved)
		}
	}
	return nil
}

// defineMemory turns the import of a memory into a definition. It stays memory 0, so nothing else
// changes.
func (rw *rewriter) defineMemory() error {
	const name = "memory"
	at := slices.IndexFunc(rw.Imports, func(i Import) bool { return i.Kind == ExternMemory })
	if at < 0 || !rw.opts.DefineMemory {
		return nil
	}
	rw.Memories = append([]Limits{rw.Imports[at].Memory}, rw.Memories...)
	if len(rw.Memories) > 1 {
		return multiMemory.refuse()
	}
	rw.Imports = slices.Delete(rw.Imports, at, at+1)
	if !slices.ContainsFunc(rw.Exports, func(e Export) bool { return e.Name == name }) {
		rw.Exports = append(rw.Exports, Export{name, ExternMemory, 0})
	}
	return nil
}

// capMemory caps the maximum of the memory.
func (rw *rewriter) capMemory() error {
	limit := func(l *Limits, imported bool) error {
		if most := min(rw.opts.MaxMemoryPages, MaxPages); most > 0 {
			if l.Min > most {
				return fmt.Errorf("%w: the memory begins with %d pages, the limit is %d", ErrMemoryLimit, l.Min, most)
			}
			if !l.HasMax || l.Max > most {
				// A shared memory without a maximum is invalid, and stays so.
				l.Max, l.HasMax = most, l.HasMax || !l.Shared
			}
		}
		rw.info.Memory = &Memory{*l, imported}
		return nil
	}
	for i := range rw.Imports {
		if rw.Imports[i].Kind == ExternMemory {
			if err := limit(&rw.Imports[i].Memory, true); err != nil {
				return err
			}
		}
	}
	for i := range rw.Memories {
		if err := limit(&rw.Memories[i], false); err != nil {
			return err
		}
	}
	return nil
}

// capTables gives the elements that remain above all minimums to the tables in
// their order.
func (rw *rewriter) capTables() error {
	if most := uint64(rw.opts.MaxTableElements); most > 0 {
		var total uint64
		for _, t := range rw.Tables {
			total += uint64(t.Limits.Min)
		}
		if total > most {
			return fmt.Errorf("%w: the tables begin with %d elements, the limit is %d", ErrTableLimit, total, most)
		}
		for i := range rw.Tables {
			l := &rw.Tables[i].Limits
			if room := uint64(l.Min) + most - total; !l.HasMax || uint64(l.Max) > room {
				l.Max, l.HasMax = uint32(room), true
			}
			total += uint64(l.Max) - min(uint64(l.Min), uint64(l.Max))
		}
	}
	for _, t := range rw.Tables {
		rw.info.Tables = append(rw.info.Tables, t.Limits)
	}
	return nil
}

// checkElements refuses active segments beyond their tables.
func (rw *rewriter) checkElements() error {
	if !rw.opts.CheckElements {
		return nil
	}
	imported := rw.imported(ExternTable)
	for i := range rw.Elements {
		e := &rw.Elements[i]
		table := uint64(e.Table) - uint64(imported) // Beyond all tables if it is imported.
		if !e.active() || table >= uint64(len(rw.Tables)) || len(e.Offset) < 2 || e.Offset[0] != OpI32Const {
			continue
		}
		offset, n := varint(e.Offset[1:], 5)
		if n == 0 || len(e.Offset) != 1+n+1 {
			continue // More than a constant.
		}
		end := uint64(uint32(offset)) + uint64(len(e.Funcs)+len(e.Exprs))
		if size := rw.Tables[table].Limits.Min; end > uint64(size) {
			return fmt.Errorf("%w: segment %d ends at %d, table %d has %d elements", ErrElements, i, end, e.Table, size)
		}
	}
	return nil
}

// describe fills in the index spaces, and the imports and exports of info.
func (rw *rewriter) describe() (err error) {
	rw.types = rw.flatTypes()
	add := func(e Extern) Extern {
		e.Index = uint32(len(rw.spaces[e.Kind]))
		rw.spaces[e.Kind] = append(rw.spaces[e.Kind], e)
		return e
	}
	signature := func(kind ExternKind, typ uint32) (t FuncType) {
		if uint64(typ) < uint64(len(rw.types)) {
			t = rw.types[typ]
		} else if err == nil {
			err = fmt.Errorf("%w: %v %d has type %d, there are %d",
				ErrIndex, kind, len(rw.spaces[kind]), typ, len(rw.types))
		}
		return t
	}
	for _, i := range rw.Imports {
		e := Extern{Module: i.Module, Name: i.Name, Kind: i.Kind}
		switch i.Kind {
		case ExternFunc:
			e.Func = signature(i.Kind, i.Type)
			rw.functions = append(rw.functions, i.Type)
		case ExternTable:
			e.Elem, e.Limits = i.Table.Elem, i.Table.Limits
		case ExternMemory:
			e.Limits = i.Memory
		case ExternGlobal:
			e.Global = i.Global
		case ExternTag:
			e.Func = signature(i.Kind, i.Type)
		}
		rw.info.Imports = append(rw.info.Imports, add(e))
	}
	rw.functions = append(rw.functions, rw.Functions...)
	rw.spaces[ExternFunc] = slices.Grow(rw.spaces[ExternFunc], len(rw.Functions))
	rw.spaces[ExternGlobal] = slices.Grow(rw.spaces[ExternGlobal], len(rw.Globals))
	for _, typ := range rw.Functions {
		add(Extern{Kind: ExternFunc, Func: signature(ExternFunc, typ)})
	}
	for _, t := range rw.Tables {
		add(Extern{Kind: ExternTable, Elem: t.Elem, Limits: t.Limits})
	}
	for _, l := range rw.Memories {
		add(Extern{Kind: ExternMemory, Limits: l})
	}
	for _, g := range rw.Globals {
		add(Extern{Kind: ExternGlobal, Global: g.GlobalType})
	}
	for _, typ := range rw.Tags {
		add(Extern{Kind: ExternTag, Func: signature(ExternTag, typ)})
	}
	for _, x := range rw.Exports {
		space := rw.spaces[x.Kind]
		if uint64(x.Index) >= uint64(len(space)) {
			return fmt.Errorf("%w: export %.100q is %v %d, there are %d", ErrIndex, x.Name, x.Kind, x.Index, len(space))
		}
		e := space[x.Index]
		e.Module, e.Name = "", x.Name
		rw.info.Exports = append(rw.info.Exports, e)
	}
	return err
}

// globals is the number of globals, imports included.
func (rw *rewriter) globals() uint32 { return uint32(len(rw.spaces[ExternGlobal])) }

// bodies returns a bodyRewriter for the bodies.
func (rw *rewriter) bodies() *bodyRewriter {
	b := &bodyRewriter{
		types: rw.types, functions: rw.functions, globals: rw.globals(), memoryMax: MaxPages,
		yield: rw.yield, fuel: rw.globals(), stack: rw.globals() + 1, meter: rw.opts.Meter, info: rw.info,
		table: uint32(len(rw.spaces[ExternTable])), blockType: rw.resultsType, pieces: rw.pieceFunction, shift: rw.shift(), profile: rw.profile,
	}
	if mem := rw.info.Memory; mem != nil && mem.HasMax {
		b.memoryMax = min(mem.Max, MaxPages)
	}
	for _, t := range rw.spaces[ExternTable] {
		b.tableMax = append(b.tableMax, t.Limits.most())
	}
	return b
}

// pass has the bodies changed by [Options.Pass].
func (rw *rewriter) pass() error {
	if rw.opts.Pass == nil {
		return nil
	}
	for i := range rw.Codes {
		c := &rw.Codes[i]
		c.Body = rw.opts.Pass(rw.types[rw.Functions[i]], c)
		if len(c.Body) == 0 || c.Body[len(c.Body)-1] != OpEnd {
			return fmt.Errorf("%w: the pass left function %d without an end", ErrInternal, i+int(rw.yield))
		}
	}
	return nil
}

// survey reads all bodies: it refuses too complex ones, and plans the charges for the stack.
func (rw *rewriter) survey() error {
	limitsStack := rw.opts.Meter && rw.opts.StackBytes > 0
	if !limitsStack && !rw.opts.LimitComplexity {
		return nil
	}
	plan, complexities, err := rw.measure()
	if err != nil {
		return err
	}
	if limitsStack {
		rw.plan = plan
	}
	if rw.opts.LimitComplexity {
		return rw.checkComplexity(plan, complexities)
	}
	return nil
}

// validate has the guest's own binary validated.
func (rw *rewriter) validate() error {
	if rw.opts.Validate == nil {
		return nil
	}
	return rw.opts.Validate(withoutCustoms(rw.bin))
}

// code rewrites the bodies.
func (rw *rewriter) code() error {
	b := rw.bodies()
	b.divide, b.plainTail = rw.opts.ExpandRemainders, rw.opts.ExpandTailCalls
	if b.plan = rw.plan; b.plan != nil {
		b.marks = make([]uint32, len(rw.Codes))
	}
	for i := range rw.Codes {
		rw.info.CodeSize += len(rw.Codes[i].Body)
		if err := b.rewrite(i, &rw.Codes[i], rw.Functions[i]); err != nil {
			return err
		}
		rw.refers = rw.refers || b.refers
	}
	if rw.opts.Meter && !b.segments && rw.DataCount != nil && int64(*rw.DataCount) == int64(len(rw.Datas)) {
		// The count is for instructions that name segments. Without it the host can merge the
		// segments, of which Go's linker makes thousands, and wasm-opt adds the count.
		rw.DataCount = nil
	}
	return nil
}

// most is the maximum, or the greatest value of 32 bits.
func (l Limits) most() uint32 {
	if l.HasMax {
		return l.Max
	}
	return math.MaxUint32
}

// shift is the number of added imports. They come after the guest's own.
func (rw *rewriter) shift() uint32 {
	switch {
	case rw.profile != nil:
		return 1 + profileImportCount
	case rw.opts.Meter:
		return 1
	}
	return 0
}

// remap returns the new index of a function.
func (rw *rewriter) remap(function uint32) uint32 {
	if function >= rw.yield {
		return function + rw.shift()
	}
	return function
}

// indexes renumbers the functions outside of bodies.
func (rw *rewriter) indexes() error {
	var err error
	function := func(i *uint32, what string) {
		if err == nil && uint64(*i) >= uint64(len(rw.functions)) {
			err = fmt.Errorf("%w: %s is function %d, there are %d", ErrIndex, what, *i, len(rw.functions))
		}
		*i = rw.remap(*i)
	}
	expr := func(e *Expr, what string) {
		if err == nil {
			*e, err = rw.remapExpr(*e, what)
		}
	}
	for i := range rw.Tables {
		expr(&rw.Tables[i].Init, "the initial value of a table")
	}
	for i := range rw.Globals {
		expr(&rw.Globals[i].Init, "the initial value of a global")
	}
	for i := range rw.Exports {
		if rw.Exports[i].Kind == ExternFunc {
			function(&rw.Exports[i].Index, "an export")
		}
	}
	if rw.Start != nil {
		function(rw.Start, "the start function")
	}
	for i := range rw.Elements {
		e := &rw.Elements[i]
		expr(&e.Offset, "the offset of an element segment")
		for j := range e.Funcs {
			function(&e.Funcs[j], "an element")
		}
		for j := range e.Exprs {
			expr(&e.Exprs[j], "an element")
		}
	}
	for i := range rw.Datas {
		expr(&rw.Datas[i].Offset, "the offset of a data segment")
	}
	return err
}

// remapExpr renumbers the functions of a constant expression.
func (rw *rewriter) remapExpr(e Expr, what string) (Expr, error) {
	var out Expr
	at := 0
	s := scanner{reader: reader{buf: e}}
	for s.next() {
		switch s.op {
		case OpGlobalGet:
			if s.imm >= rw.globals() {
				return nil, fmt.Errorf("%w: %s is global %d, there are %d", ErrIndex, what, s.imm, rw.globals())
			}
		case OpRefFunc:
			if uint64(s.imm) >= uint64(len(rw.functions)) {
				return nil, fmt.Errorf("%w: %s is function %d, there are %d", ErrIndex, what, s.imm, len(rw.functions))
			}
			out = appendUvarint(append(out, e[at:s.immAt]...), uint64(rw.remap(s.imm)))
			at = s.pos
		}
	}
	if at == 0 {
		return e, nil
	}
	return append(out, e[at:]...), nil
}

// exportGlobals exports the mutable globals that the guest defines.
func (rw *rewriter) exportGlobals() error {
	first := rw.imported(ExternGlobal)
	for i, g := range rw.Globals {
		index := first + uint32(i)
		switch {
		case !g.Mutable:
		case g.Type.IsRef() || g.Type == V128:
			rw.info.OpaqueGlobals = append(rw.info.OpaqueGlobals, index)
		default:
			x := GlobalExport{globalName(index), index, g.Type}
			rw.info.Globals = append(rw.info.Globals, x)
			rw.Exports = append(rw.Exports, Export{x.Name, ExternGlobal, index})
		}
	}
	return nil
}

// stale reports whether a custom section describes offsets of code or indexes
// of functions in the old binary: DWARF, source maps, relocations, hints for
// instructions.
func stale(name string) bool {
	switch name {
	case "sourceMappingURL", "external_debug_info", "linking":
		return true
	}
	return strings.HasPrefix(name, ".debug_") ||
		strings.HasPrefix(name, "reloc.") ||
		strings.HasPrefix(name, "metadata.code.")
}

// Debug reports whether the section describes the code to a debugger.
func (c *Custom) Debug() bool { return c.Name == nameSection || stale(c.Name) }

// customs remaps the name section and drops the sections that metering makes stale.
func (rw *rewriter) customs() error {
	kept := rw.Customs[:0]
	for _, c := range rw.Customs {
		if rw.opts.Meter && stale(c.Name) {
			rw.info.Dropped = append(rw.info.Dropped, c.Name)
			continue
		}
		if c.Name == nameSection {
			// The specification: a mistake in a custom section does not invalidate
			// the module. Without names, traces have numbers.
			data, err := remapNames(c.Data, rw.remap)
			if err != nil {
				rw.info.Dropped = append(rw.info.Dropped, c.Name)
				continue
			}
			c.Data = data
		}
		rw.info.Customs = append(rw.info.Customs, c.Name)
		kept = append(kept, c)
	}
	rw.Customs = kept
	return nil
}

// addMeter adds the import of yield, the globals of fuel and stack, the table of calls by
// reference and the functions that do bulk operations in pieces. All indexes have been
// checked and renumbered before.
func (rw *rewriter) addMeter() error {
	if !rw.opts.Meter {
		return nil
	}
	rw.addProfile()
	rw.addPieces()
	yield := Import{Module: YieldModule, Name: YieldName, Kind: ExternFunc, Type: uint32(len(rw.types))}
	rw.Types = append(rw.Types, RecGroup{Types: []FuncType{{}}})
	for _, t := range rw.added {
		rw.Types = append(rw.Types, RecGroup{Types: []FuncType{t}})
	}
	rw.Imports = append(rw.Imports, yield)
	if rw.refers {
		rw.Tables = append(rw.Tables, Table{Elem: FuncRef, Limits: Limits{Min: 1, Max: 1, HasMax: true}})
	}
	if rw.profile != nil {
		rw.Imports = append(rw.Imports, rw.profile.imports...)
	}

	init := append(appendVarint(Expr{OpI64Const}, rw.opts.Fuel), OpEnd)
	rw.Globals = append(rw.Globals, Global{GlobalType{I64, true}, init})
	rw.Exports = append(rw.Exports, Export{FuelGlobal, ExternGlobal, rw.globals()})
	if rw.opts.StackBytes > 0 {
		init := append(appendVarint(Expr{OpI32Const}, int64(rw.opts.StackBytes)), OpEnd)
		rw.Globals = append(rw.Globals, Global{GlobalType{I32, true}, init})
		rw.Exports = append(rw.Exports, Export{StackGlobal, ExternGlobal, rw.globals() + 1})
	}
	return nil
}
