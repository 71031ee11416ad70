package wasmbin

import (
	"math/rand/v2"
	"slices"
)

// randomModule makes a valid module of random code, in which the patterns that the rewriter
// looks for are frequent, and so is what only looks like them.
func randomModule(r *rand.Rand) []byte { return randomOf(r, false) }

// randomOf makes such a module. If it is new, functions are called by reference and in tail
// position as well, and constants are worked out.
func randomOf(r *rand.Rand, newer bool) []byte {
	var m module
	m.Memories = []Limits{{Min: 1, Max: 3, HasMax: true}}
	m.Exports = append(m.Exports, Export{"memory", ExternMemory, 0})
	globals := []ValType{I32, I64, I32, I64}
	for _, t := range globals {
		init := asm(i32c(r.Int32N(3)), OpEnd)
		if t == I64 {
			init = asm(i64c(r.Int64N(3)), OpEnd)
		}
		if newer {
			init = randomConstant(r, t)
		}
		m.Globals = append(m.Globals, Global{GlobalType{t, true}, init})
	}
	var callees []FuncType
	functions := 1 + r.IntN(4)
	if newer {
		functions = 3 + r.IntN(4)
	}
	for i := range functions {
		params := types(I64, I32, I64, I32)[:2+r.IntN(3)]
		results := [][]ValType{nil, types(I32), types(I64), types(I32, I64)}[r.IntN(4)]
		locals := types(I32, I64, I32, I64, I32, I64)[:r.IntN(7)]
		ofGo := r.IntN(2) == 0
		if ofGo { // The types of a function of Go.
			params, results, locals = types(I32), types(I32), types(I32, I64, I64, I32, I64)[:1+r.IntN(5)]
		}
		var refs []uint32
		if newer && !ofGo {
			params = randomSignature(r, params)
			if i > 0 { // References to what stands before it, so that no call leads back.
				for range r.IntN(3) {
					refs = append(refs, m.Functions[r.IntN(i)])
				}
			}
			for _, typ := range refs {
				params = append(params, []ValType{refNon, refNull}[r.IntN(2)]|ValType(typ)<<8)
			}
			for _, p := range params {
				if p.kind() == refNull {
					locals = append(locals, p) // One that is null at first.
				}
			}
		}
		g := &random{newer: newer, ofGo: ofGo, r: r, globals: globals, locals: slices.Concat(params, locals), callees: callees, results: results, m: &m, budget: 60 + r.IntN(250)}
		g.frames = []randomFrame{{results: results}}
		var begin []byte
		if r.IntN(8) > 0 { // The stack of Go lies within the memory.
			begin = asm(get(stackPointer), i32c(0xff8), OpI32And)
		}
		switch {
		case ofGo && begin != nil:
			begin = asm(OpGlobalGet, 0, set(stackPointer), begin, OpLocalTee, stackPointer, OpGlobalSet, 0)
		case ofGo:
			begin = asm(OpGlobalGet, 0, set(stackPointer))
		case begin != nil:
			begin = asm(begin, set(stackPointer))
		}
		code := asm(begin, g.statements(2))
		if tail := g.tail(3); tail != nil {
			code = asm(code, tail)
		} else {
			for _, t := range results {
				code = append(code, g.value(t, 3)...)
			}
		}
		m.fn(string(rune('a'+i)), params, results, locals, code)
		callees = append(callees, FuncType{params, results})
	}
	if newer {
		all := make([]uint32, len(callees))
		for i := range all {
			all[i] = uint32(i)
		}
		m.Tables = []Table{{Elem: FuncRef, Limits: Limits{Min: uint32(len(all)) + 1}}} // The last one is null.
		m.Elements = []Element{{Offset: asm(i32c(7), i32c(-7), OpI32Add, OpEnd), Funcs: all}}
	}
	return m.Encode()
}

// randomSignature puts numbers in front of parameters, up to more than there are registers. The
// stack pointer stays where it is.
func randomSignature(r *rand.Rand, params []ValType) []ValType {
	if r.IntN(2) == 0 {
		return params
	}
	return append(slices.Clone(params), types(I64, I32, I64, I32, I64, I64, I32, I32)[:r.IntN(9)]...)
}

// randomConstant is a constant expression that adds and multiplies. In wazero it can read no global
// of the module.
func randomConstant(r *rand.Rand, t ValType) []byte {
	constant, add := func() []byte { return i32c(r.Int32N(9) - 4) }, OpI32Add
	if t == I64 {
		constant, add = func() []byte { return i64c(r.Int64N(9) - 4) }, OpI64Add
	}
	code := constant()
	for range r.IntN(3) {
		code = asm(code, constant(), add+r.IntN(3))
	}
	return asm(code, OpEnd)
}

// stackPointer is the local that the random code takes for a copy of the stack pointer.
const stackPointer = 1

// random writes random code.
type random struct {
	newer   bool // with calls by reference and in tail position
	ofGo    bool // in the form of a function of Go
	r       *rand.Rand
	m       *module
	globals []ValType
	locals  []ValType
	callees []FuncType
	results []ValType
	frames  []randomFrame
	budget  int
}

// randomFrame is a block that is open. counted says that a branch to it is a new round.
type randomFrame struct {
	loop    bool
	results []ValType
}

func (f *randomFrame) label() []ValType {
	if f.loop {
		return nil
	}
	return f.results
}

func (g *random) pick(parts ...[]byte) []byte { return parts[g.r.IntN(len(parts))] }

// local is a local of a type, or -1.
func (g *random) local(t ValType, writing bool) int {
	from := g.r.IntN(len(g.locals))
	for i := range g.locals {
		n := (from + i) % len(g.locals)
		if g.locals[n] == t && !(writing && n == stackPointer && (g.ofGo || g.r.IntN(20) > 0)) {
			return n
		}
	}
	return -1
}

func (g *random) global(t ValType) byte {
	n := g.r.IntN(len(g.globals))
	for g.globals[n] != t {
		n = (n + 1) % len(g.globals)
	}
	return byte(n)
}

// label is a label that takes values of these types, or -1.
func (g *random) label(list ...ValType) int {
	from := g.r.IntN(len(g.frames))
	for i := range g.frames {
		n := (from + i) % len(g.frames)
		if slices.Equal(g.frames[n].label(), list) && !(g.frames[n].loop && g.r.IntN(4) > 0) {
			return len(g.frames) - 1 - n
		}
	}
	return -1
}

// zero is 0, now and then in an encoding that is longer than it need be.
func (g *random) zero(t ValType) []byte {
	op := OpI32Const
	if t == I64 {
		op = OpI64Const
	}
	if g.r.IntN(4) == 0 {
		return asm(op, 0x80, 0x80, 0x00)
	}
	return asm(op, 0)
}

func (g *random) constant(t ValType) []byte {
	if g.r.IntN(3) == 0 {
		return g.zero(t)
	}
	v := []int64{1, -1, 2, 8, 255, 1 << 20, 1<<31 - 1, -1 << 31, g.r.Int64N(100)}[g.r.IntN(9)]
	if t == I64 {
		if g.r.IntN(4) == 0 {
			v = int64(g.r.Uint64())
		}
		return i64c(v)
	}
	return i32c(int32(v))
}

// within writes code in a block that is open.
func (g *random) within(f randomFrame, code func() []byte) []byte {
	g.frames = append(g.frames, f)
	defer func() { g.frames = g.frames[:len(g.frames)-1] }()
	return code()
}

func (g *random) address(depth int) []byte {
	switch g.r.IntN(6) {
	case 0:
		return i32c(int32(8 * g.r.IntN(500)))
	case 1:
		return asm(g.value(I32, depth-1), i32c(0xfff8), OpI32And)
	case 2:
		return get(stackPointer)
	default:
		return added(get(stackPointer), 8*g.r.IntN(30))
	}
}

// compare is a comparison, often with 0 or of what an `and` leaves.
func (g *random) compare(depth int) []byte {
	t, and, first := I32, OpI32And, OpI32Eq
	if g.r.IntN(2) == 0 {
		t, and, first = I64, OpI64And, OpI64Eq
	}
	operand := func() []byte {
		switch g.r.IntN(3) {
		case 0:
			return g.zero(t)
		case 1:
			return asm(g.value(t, depth-1), g.between(depth), g.value(t, depth-1), and)
		default:
			return g.value(t, depth-1)
		}
	}
	code := asm(operand(), g.between(depth), operand(), g.between(depth), first+g.r.IntN(10))
	for g.r.IntN(3) == 0 {
		code = asm(code, OpI32Eqz)
	}
	if g.r.IntN(8) == 0 {
		code = asm(code, OpNop)
	}
	return code
}

// between is something that leaves the operands below it alone.
func (g *random) between(depth int) []byte {
	if g.r.IntN(4) > 0 {
		return nil
	}
	return g.statement(depth - 1)
}

func (g *random) value(t ValType, depth int) []byte {
	g.budget--
	if depth <= 0 || g.budget < 0 {
		if n := g.local(t, false); n >= 0 && g.r.IntN(3) > 0 {
			return get(n)
		}
		return g.constant(t)
	}
	wide := 0
	if t == I64 {
		wide = 1
	}
	switch g.r.IntN(18) {
	case 0:
		return g.constant(t)
	case 1, 2:
		if n := g.local(t, false); n >= 0 {
			return get(n)
		}
	case 3:
		if n := g.local(t, true); n >= 0 {
			return asm(g.value(t, depth-1), OpLocalTee, n)
		}
	case 4:
		return asm(OpGlobalGet, int(g.global(t)))
	case 5, 6:
		op := []int{0x6a, 0x6b, 0x6c, 0x71, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77}[g.r.IntN(11)]
		return asm(g.value(t, depth-1), g.between(depth), g.value(t, depth-1), op+wide*(0x7c-0x6a))
	case 7:
		return asm(g.value(t, depth-1), g.value(t, depth-1), 0x6d+g.r.IntN(4)+wide*(0x7c-0x6a)) // Division traps now and then.
	case 8:
		if t == I32 {
			return asm(g.value(I64, depth-1), OpI32WrapI64)
		}
		return asm(g.value(I32, depth-1), OpI64ExtendI32U-g.r.IntN(2))
	case 9:
		op := []int{OpI32Load, 0x2c, 0x2d, 0x2e, 0x2f}[g.r.IntN(5)]
		if t == I64 {
			op = []int{OpI64Load, 0x30, 0x31, 0x34, 0x35}[g.r.IntN(5)]
		}
		return asm(g.address(depth), g.between(depth), memarg(byte(op), uint32(8*g.r.IntN(20))))
	case 10:
		return asm(g.value(t, depth-1), g.value(t, depth-1), g.condition(depth-1), OpSelect)
	case 11:
		return asm(OpBlock, int(t), g.within(randomFrame{results: types(t)}, func() []byte { return asm(g.statements(depth-1), g.value(t, depth-1)) }), OpEnd)
	case 12:
		return asm(OpLoop, int(t), g.within(randomFrame{loop: true, results: types(t)}, func() []byte { return asm(g.statements(depth-1), g.value(t, depth-1)) }), OpEnd)
	case 13:
		arm := func() []byte { return asm(g.statements(depth-1), g.value(t, depth-1)) }
		f := randomFrame{results: types(t)}
		return asm(g.condition(depth-1), OpIf, int(t), g.within(f, arm), OpElse, g.within(f, arm), OpEnd)
	case 14:
		if l := g.label(t); l >= 0 {
			return asm(g.value(t, depth-1), g.condition(depth-1), OpBrIf, u(uint32(l)))
		}
	case 15:
		if n := len(g.callees); n > 0 {
			n = g.r.IntN(n)
			if f := g.callees[n]; slices.Equal(f.Results, types(t)) {
				return g.call(n, depth)
			}
		}
	case 16:
		if t == I32 {
			return g.compare(depth - 1)
		}
	case 17:
		if t == I32 && g.r.IntN(4) == 0 {
			return g.pick(asm(0x3f, 0), asm(i32c(g.r.Int32N(3)), OpMemoryGrow, 0))
		}
	}
	return g.value(t, depth-1)
}

// call calls a function, directly or by one of the other ways.
func (g *random) call(n, depth int) []byte {
	return g.callBy(n, depth, OpCall, OpCallIndirect, OpCallRef)
}

func (g *random) callBy(n, depth, direct, indirect, ref int) (code []byte) {
	typ := g.m.Functions[n]
	for _, p := range g.callees[n].Params {
		if p.IsRef() {
			code = append(code, g.reference(p, depth-1)...)
		} else {
			code = append(code, g.value(p, depth-1)...)
		}
	}
	switch how := g.r.IntN(8); {
	case !g.newer || how < 3:
		return asm(code, direct, n)
	case how == 3: // Sometimes beyond the table, null or of another type.
		return asm(code, i32c(g.r.Int32N(int32(len(g.callees))+2)), indirect, u(typ), 0)
	case how == 4:
		return asm(code, i32c(int32(n)), indirect, u(typ), 0)
	default:
		return asm(code, g.reference(refNull|ValType(typ)<<8, depth-1), ref, u(typ))
	}
}

// reference is a reference to a function of that type, or null if that is possible.
func (g *random) reference(t ValType, depth int) []byte {
	var ways [][]byte
	for i, have := range g.locals {
		switch {
		case have.heap() != t.heap() || !have.IsRef():
		case have == t || t.kind() == refNull:
			ways = append(ways, get(i))
		default: // It traps if it is null.
			ways = append(ways, asm(get(i), OpRefAsNonNull))
		}
	}
	for i, typ := range g.m.Functions {
		if int64(typ) == t.heap() {
			ways = append(ways, asm(OpRefFunc, i), asm(OpRefFunc, i))
		}
	}
	switch {
	case depth > 0 && g.r.IntN(6) == 0: // What takes the place of null.
		inner := g.reference(refNon|t&^0xff, 0)
		nullable := g.reference(refNull|t&^0xff, 0)
		result := asm(int(refNon), appendVarint(nil, t.heap()))
		return asm(OpBlock, result, nullable, OpBrOnNonNull, 0, inner, OpEnd)
	case t.kind() == refNull && g.r.IntN(12) == 0:
		return asm(0xd0, appendVarint(nil, t.heap()))
	}
	return ways[g.r.IntN(len(ways))]
}

// tail is a call in tail position of a function with the same results, or nil.
func (g *random) tail(depth int) []byte {
	if !g.newer || g.r.IntN(3) == 0 {
		return nil
	}
	for n, f := range g.callees {
		if slices.Equal(f.Results, g.results) && g.r.IntN(2) == 0 {
			return g.callBy(n, depth, OpReturnCall, OpReturnCallIndirect, OpReturnCallRef)
		}
	}
	return nil
}

// condition is what an if or a br_if takes.
func (g *random) condition(depth int) []byte {
	switch g.r.IntN(6) {
	case 0:
		return g.value(I32, depth)
	case 1:
		if n := g.local(I32, true); n >= 0 {
			return asm(g.compare(depth), set(n), g.between(depth), get(n))
		}
	case 2:
		return asm(OpBlock, int(I32), g.within(randomFrame{results: types(I32)}, func() []byte { return g.compare(depth) }), OpEnd)
	}
	return g.compare(depth)
}

func (g *random) statements(depth int) (code []byte) {
	for range g.r.IntN(4) {
		code = append(code, g.statement(depth)...)
	}
	return code
}

// statement leaves the operand stack as it was.
func (g *random) statement(depth int) []byte {
	g.budget--
	if depth <= 0 || g.budget < 0 {
		return g.pick(nil, asm(OpNop), asm(get(0), OpDrop))
	}
	t := []ValType{I32, I64}[g.r.IntN(2)]
	if g.newer {
		if code := g.newerStatement(depth); code != nil {
			return code
		}
	}
	switch g.r.IntN(16) {
	case 0, 1, 2:
		if n := g.local(t, true); n >= 0 {
			return asm(g.value(t, depth), set(n))
		}
	case 3:
		n := int(g.global(t))
		if g.ofGo && n == 0 && g.r.IntN(20) > 0 {
			// A frame, or the stack pointer that a callee left; otherwise it is no function of Go.
			if g.r.IntN(2) == 0 {
				return asm(get(stackPointer), i32c(int32(8*g.r.IntN(8))), OpI32Sub+g.r.IntN(2)*(OpI32Add-OpI32Sub), OpLocalTee, stackPointer, OpGlobalSet, 0)
			}
			return asm(OpGlobalGet, 0, set(stackPointer))
		}
		return asm(g.value(t, depth), OpGlobalSet, n)
	case 4:
		op := []int{OpI32Store, 0x3a, 0x3b}[g.r.IntN(3)]
		if t == I64 {
			op = []int{OpI64Store, 0x3c, 0x3d, OpI64Store32}[g.r.IntN(4)]
		}
		return asm(g.address(depth), g.value(t, depth-1), memarg(byte(op), uint32(8*g.r.IntN(20))))
	case 5, 6:
		return asm(g.condition(depth), OpIf, BlockTypeEmpty, g.within(randomFrame{}, func() []byte { return g.statements(depth - 1) }), OpEnd)
	case 7:
		arm := func() []byte { return g.statements(depth - 1) }
		return asm(g.condition(depth), OpIf, BlockTypeEmpty, g.within(randomFrame{}, arm), OpElse, g.within(randomFrame{}, arm), OpEnd)
	case 8:
		return asm(OpBlock, BlockTypeEmpty, g.within(randomFrame{}, func() []byte { return g.statements(depth) }), OpEnd)
	case 9:
		return asm(OpLoop, BlockTypeEmpty, g.within(randomFrame{loop: true}, func() []byte { return g.statements(depth - 1) }), OpEnd)
	case 10:
		if l := g.label(); l >= 0 {
			return asm(g.condition(depth), OpBrIf, u(uint32(l)))
		}
	case 11:
		if l := g.label(); l >= 0 && g.r.IntN(3) == 0 {
			return asm(OpBr, u(uint32(l)))
		}
	case 12:
		if l, d := g.label(), g.label(); l >= 0 && d >= 0 {
			return asm(OpBlock, BlockTypeEmpty, g.value(I32, depth-1), OpBrTable, 2, 0, u(uint32(l+1)), u(uint32(d+1)), OpEnd)
		}
	case 13:
		return g.dispatch(depth - 1)
	case 14:
		length := []int32{0, 1, 7, 16, 33, 200, 2000}[g.r.IntN(7)]
		n := asm(i32c(length))
		if g.r.IntN(3) == 0 {
			n = asm(g.value(I32, 1), i32c(0x3ff), OpI32And)
		}
		if g.r.IntN(2) == 0 {
			return asm(g.address(depth), g.value(I32, 1), n, prefixMisc, 0x0b, 0)
		}
		return asm(g.address(depth), g.address(depth), n, prefixMisc, 0x0a, 0, 0)
	case 15:
		if n := len(g.callees); n > 0 {
			n = g.r.IntN(n)
			code := g.call(n, depth)
			for range g.callees[n].Results {
				code = append(code, OpDrop)
			}
			return code
		}
	}
	return asm(g.value(t, depth), OpDrop)
}

// newerStatement is one with a reference or a tail call, or nil.
func (g *random) newerStatement(depth int) []byte {
	switch g.r.IntN(10) {
	case 0: // A function that is left in its middle.
		if tail := g.tail(depth - 1); tail != nil {
			return asm(g.condition(depth-1), OpIf, BlockTypeEmpty, tail, OpEnd)
		}
	case 1:
		for i, t := range g.locals {
			if t.kind() == refNull && g.r.IntN(2) == 0 {
				return asm(g.reference(t, depth), set(i))
			}
		}
	case 2:
		for i, t := range g.locals {
			if !t.IsRef() || g.r.IntN(2) == 0 {
				continue
			}
			if l := g.label(); l >= 0 {
				return asm(get(i), OpBrOnNull, u(uint32(l)), OpDrop)
			}
			return asm(get(i), 0xd1, OpIf, BlockTypeEmpty, OpElse, OpEnd) // ref.is_null
		}
	}
	return nil
}

// dispatch is how Go's compiler writes blocks down: a loop that begins with a br_table, and
// jumps that set a local to the number of a block.
func (g *random) dispatch(depth int) []byte {
	pc, rounds := g.local(I32, true), g.local(I64, true)
	if pc < 0 || rounds < 0 || pc == stackPointer {
		return nil
	}
	blocks := 1 + g.r.IntN(4)
	code := asm(i32c(0), set(pc), i64c(3), set(rounds), OpBlock, BlockTypeEmpty, OpLoop, BlockTypeEmpty)
	for range blocks {
		code = asm(code, OpBlock, BlockTypeEmpty)
	}
	code = asm(code, get(pc), OpBrTable, blocks-1)
	for i := range blocks {
		code = append(code, byte(i))
	}
	for i := range blocks {
		code = asm(code, OpEnd)
		loop := blocks - 1 - i // Its label here.
		// What is in it branches to nothing but the loop, and may change anything.
		frames := g.frames
		g.frames = []randomFrame{{results: types(F32)}}
		code = asm(code, g.statements(depth))
		g.frames = frames
		switch g.r.IntN(4) {
		case 0:
			code = asm(code, g.compare(depth), OpIf, BlockTypeEmpty, i32c(g.r.Int32N(int32(blocks)+1)), set(pc), OpBr, loop+1, OpEnd)
		case 1:
			code = asm(code, get(rounds), i64c(1), OpI64Sub, OpLocalTee, rounds, OpI64Eqz, OpI32Eqz, OpIf, BlockTypeEmpty,
				i32c(g.r.Int32N(int32(blocks))), set(pc), OpBr, loop+1, OpEnd)
		case 2:
			code = asm(code, OpBr, loop+1) // Out of it all.
		}
	}
	return asm(code, OpEnd, OpEnd)
}
