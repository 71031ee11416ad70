package wasmbin

import (
	"math"
	"slices"
)

// The frame of a function in wazero's machine code, as far as the binary shows: values that are
// live across a call lie in the frame, and no more can be live than the locals and the operands.
// Passed values lie there, too.
const (
	frameBytes = 96 // The return address, saved registers, space for the compiler itself.
	slotBytes  = 8
	// localSlots is for a local that is set on several paths: the compiler has a value for each
	// path, and one for the place where they meet.
	localSlots = 3

	// maxUncharged is the maximum stack of functions that call one another without a charge. The
	// less, the better the estimate, and the more calls are charged: of a Go guest's direct calls,
	// 2 KiB leave nine in ten alone.
	maxUncharged = 2 << 10

	maxFrameBytes = 1 << 24 // Beyond any limit, and far from wrapping a sum.
)

// stackPlan is the set of a module's calls that are charged for the stack that they
// take.
//
// Functions take stack without end only if they call one another in a circle. So it is enough to
// charge one call of each circle of direct calls, and each indirect one, whose target is not known.
// A charge covers everything since the last one: the frame of the caller and, of the paths that
// lead to it without a charge, the largest.
type stackPlan struct {
	imports uint32
	// taken is, for each function that the module defines, the maximum stack since the last charge,
	// its own frame included.
	taken []uint32
	// callees[starts[i]:starts[i+1]] are the functions that function i calls directly; times is the
	// number of these calls, and charged whether they are charged.
	starts  []uint32
	callees []uint32
	times   []uint32
	charged []bool
	// frames are the sizes of the frames, and tails is set for functions that call in
	// tail position.
	frames []uint32
	tails  []bool
}

// measure reads all bodies, to plan the charges for the stack and to estimate the cost of compiling
// each function. It checks nothing: indexes out of range are found when the bodies are rewritten.
func (rw *rewriter) measure() (*stackPlan, []complexity, error) {
	n := len(rw.Codes)
	p := &stackPlan{
		imports: rw.yield, taken: make([]uint32, n), starts: make([]uint32, n+1),
		frames: make([]uint32, n), tails: make([]bool, n),
	}
	m := rw.surveyor()
	complexities := make([]complexity, n)
	seen := make([]uint32, n) // where in callees, from 1
	for i := range rw.Codes {
		m.callees = m.callees[:0]
		frame, tail, err := m.measure(&rw.Codes[i], rw.Functions[i])
		if err != nil {
			return nil, nil, err
		}
		complexities[i] = m.complexity
		complexities[i].locals = nil
		p.frames[i], p.tails[i] = frame, tail
		for _, callee := range m.callees {
			if callee -= p.imports; callee >= uint32(n) {
				continue
			}
			if at := seen[callee]; at > p.starts[i] {
				p.times[at-1]++
				continue
			}
			p.callees, p.times = append(p.callees, callee), append(p.times, 1)
			seen[callee] = uint32(len(p.callees))
		}
		p.starts[i+1] = uint32(len(p.callees))
	}
	p.charged = make([]bool, len(p.callees))
	p.charge(p.order())
	return p, complexities, nil
}

// order charges a call in each circle, and returns the functions in an order in which callers come
// before the functions that they call without a charge.
func (p *stackPlan) order() []uint32 {
	const (
		unknown = iota
		open
		done
	)
	n := len(p.taken)
	state := make([]byte, n)
	next := slices.Clone(p.starts[:n])
	order := make([]uint32, 0, n)
	var path []uint32
	for root := range n {
		if state[root] != unknown {
			continue
		}
		path = append(path[:0], uint32(root))
		state[root] = open
		for len(path) > 0 {
			f := path[len(path)-1]
			if next[f] == p.starts[f+1] {
				state[f] = done
				order = append(order, f)
				path = path[:len(path)-1]
				continue
			}
			call := next[f]
			next[f]++
			switch callee := p.callees[call]; {
			case state[callee] == open || p.tails[callee]:
				// A function that ends in a tail call is replaced by another one, which may call
				// this one: a circle that does not consist of calls alone.
				p.charged[call] = true
				if state[callee] == unknown {
					state[callee] = open
					path = append(path, callee)
				}
			case state[callee] == unknown:
				state[callee] = open
				path = append(path, callee)
			}
		}
	}
	slices.Reverse(order)
	return order
}

// charge computes the stack before each call.
func (p *stackPlan) charge(order []uint32) {
	for _, f := range order {
		p.taken[f] = max(p.taken[f], p.frames[f]) // A charged call may reach it as well.
		for call := p.starts[f]; call < p.starts[f+1]; call++ {
			callee := p.callees[call]
			if sum := p.taken[f] + p.frames[callee]; p.charged[call] || sum > maxUncharged {
				p.charged[call] = true
			} else {
				p.taken[callee] = max(p.taken[callee], sum)
			}
		}
	}
}

// charges marks, by callee, the direct calls of a function that are charged. The marks are those of
// the function if they equal its number, from 1.
func (p *stackPlan) charges(function int, marks []uint32) {
	for call := p.starts[function]; call < p.starts[function+1]; call++ {
		if p.charged[call] {
			marks[p.callees[call]] = uint32(function) + 1
		}
	}
}

// surveyor measures bodies.
type surveyor struct {
	types     []FuncType
	functions []uint32
	scanner   scanner
	blocks    []blockHeight
	callees   []uint32
	// mutable is the number of globals that can change, with those that the rewriter adds.
	mutable uint64
	// globals holds, for each global, the last measurement in which it was read, counted by
	// measured.
	globals  []uint32
	measured uint32
	// plainTail is set if indirect tail calls become calls, refuseUnsafe for
	// [Options.RefuseUnsafe].
	plainTail, refuseUnsafe bool

	// imports is the number of imported functions, to which calls are never charged.
	imports uint32
	// charged marks, by callee, the direct calls that are charged for the stack: those that hold
	// the number of the function. nil stands for all.
	charged  []uint32
	function uint32

	complexity complexity
}

// isCharged reports whether a direct call is charged.
func (m *surveyor) isCharged(callee uint32) bool {
	if callee < m.imports {
		return false
	}
	at := uint64(callee - m.imports)
	return m.charged == nil || at < uint64(len(m.charged)) && m.charged[at] == m.function
}

// blockHeight is the number of operands below an open block, and the numbers that it takes and
// leaves.
type blockHeight struct {
	below, params, results int
	label
}

// arity is the number of values that a branch to the block carries.
func (b *blockHeight) arity() uint64 {
	if b.loop {
		return uint64(b.params)
	}
	return uint64(b.results)
}

// measure returns a bound for the frame of a function, and whether it calls in tail position;
// callees gets the functions that it calls otherwise.
func (m *surveyor) measure(c *Code, typ uint32) (bytes uint32, tail bool, err error) {
	own := m.types[typ]
	vectors := slices.Contains(own.Params, V128) || slices.Contains(own.Results, V128) || slices.Contains(c.Locals, byte(V128))
	s := &m.scanner
	*s = scanner{reader: reader{buf: c.Body, base: c.Offset, section: SectionCode}, labels: s.labels}
	m.measured++
	x := &m.complexity
	x.begin(len(own.Params) + int(c.NumLocals))
	m.blocks = append(m.blocks[:0], blockHeight{results: len(own.Results), label: x.open(false, false)})
	x.passed = uint64(len(own.Params) + len(own.Results))
	branch := func(labels ...uint32) {
		for _, label := range labels {
			if i := len(m.blocks) - 1 - int(label); i >= 0 {
				x.branch(&m.blocks[i].label)
			}
		}
	}
	height, most := 0, 0
	carry := func(labels ...uint32) (n uint64) {
		for _, label := range labels {
			if i := len(m.blocks) - 1 - int(label); i >= 0 {
				n += m.blocks[i].arity()
			}
		}
		return n
	}
	call := func(t FuncType) {
		x.passed += uint64(len(t.Params) + len(t.Results))
		x.memory += bytesArgument * uint64(len(t.Params)+len(t.Results))
		x.call(max(height-len(t.Params), 0))
		most = max(most, height+len(t.Results)) // The passed values still lie on top.
		height += len(t.Results) - len(t.Params)
		vectors = vectors || slices.Contains(t.Params, V128) || slices.Contains(t.Results, V128)
	}
	typeOf := func(i uint32) (t FuncType) {
		if uint64(i) < uint64(len(m.types)) {
			t = m.types[i]
		}
		return t
	}
	reload := func(times int) { x.reloads += m.mutable * uint64(times) }
	reload(1)               // After the check at the entry.
	var before [2]operation // The last one, and the one before.
	for s.next() && len(m.blocks) > 0 {
		if m.refuseUnsafe {
			if f, ok := unsafeFeature(s.op); ok {
				s.fail(s.at, "instruction %#x: %w", s.op, f.refuse())
				break
			}
		}
		top := &m.blocks[len(m.blocks)-1]
		x.memory += memoryOf(s.op)
		if memoryOf(s.op) == memoryAccess && s.op != OpTableGet && s.op != OpTableSet {
			x.address(addressOf(s.op, before))
		}
		if traps(s.op) {
			x.trapping++
		}
		if looksUp(s.op) {
			x.looks = min(x.looks+x.chain, maxComplexity)
		}
		switch s.op {
		case OpBlock, OpLoop, OpTryTable, OpIf:
			switch s.op {
			case OpIf:
				height--
				x.block(weightIf, height)
			case OpLoop:
				x.block(weightLoop, height)
				x.merge()
			case OpTryTable:
				branch(s.to...)
				x.block(weightTry.and(weightTarget.times(len(s.to))), height)
				reload(1 + len(s.to))
				x.carried += carry(s.to...)
			default:
				x.block(weightBlock, height)
			}
			b := blockHeight{label: x.open(s.op == OpLoop, s.op == OpIf)}
			if s.block >= 0 {
				t := typeOf(uint32(s.block))
				b.params, b.results = len(t.Params), len(t.Results)
			} else if s.block != -64 { // of no type at all
				b.results = 1
			}
			x.passed += uint64(b.params + b.results)
			b.below = height - b.params
			m.blocks = append(m.blocks, b)
		case OpElse:
			x.otherwise(&top.label)
			height = top.below + top.params
			x.block(weightElse, height)
		case OpEnd:
			if top.loop && top.branches > 0 {
				x.again(&top.label, top.below+top.params)
				reload(1)
			}
			x.close(&top.label)
			height = top.below + top.results
			m.blocks = m.blocks[:len(m.blocks)-1]
		case OpCall, OpReturnCall, OpCallIndirect, OpReturnCallIndirect, OpCallRef, OpReturnCallRef:
			direct := s.op == OpCall || s.op == OpReturnCall
			t, charged := FuncType{}, !direct
			if !direct {
				t = typeOf(s.imm)
				height--
			} else if uint64(s.imm) < uint64(len(m.functions)) {
				t = typeOf(m.functions[s.imm])
				charged = m.isCharged(s.imm)
			}
			if s.op == OpCallRef || s.op == OpReturnCallRef {
				x.reference()
			}
			if isTailCall(s.op) && staysTailCall(s.op, t, s.imm < m.imports, m.plainTail) {
				// The compiler writes a return as well, and removes it in the end.
				reload(1)
				tail, x.dead = true, true
				break
			}
			reload(1)
			if charged {
				x.check(weightCall, height, 1)
				reload(1)
			}
			call(t)
			if direct {
				m.callees = append(m.callees, s.imm)
			}
			if isTailCall(s.op) {
				x.block(weightLeave, height)
				s.imm = uint32(len(m.blocks) - 1)
				branch(s.imm)
				x.dead = true
				x.passed += carry(s.imm)
			}
		case OpBrIf, OpBrOnNull, OpBrOnNonNull:
			branch(s.imm)
			x.block(weightBranch, height)
			x.chain++
			x.passed += carry(s.imm)
			height += heightOf(s.op)
		case OpBr, OpReturn:
			x.block(weightLeave, height)
			if s.op == OpReturn {
				s.imm = uint32(len(m.blocks) - 1)
			}
			branch(s.imm)
			x.dead = true
			x.passed += carry(s.imm)
		case OpBrTable:
			branch(s.to...)
			x.block(weightTarget.times(len(s.to)), height)
			x.dead = true
			if n := carry(s.to...); n > uint64(len(s.to)) { // One value for each is nothing.
				x.carried += n
			}
			height--
		case OpUnreachable:
			x.block(weightTrap, height)
			x.dead = true
		case OpMemoryCopy, OpMemoryFill, OpMemoryInit:
			x.check(weightPieces, height, 3)
			reload(2)
			height += heightOf(s.op)
		case OpMemoryGrow, OpTableCopy, OpTableFill, OpTableInit, OpTableGrow:
			x.check(weightBulk, height, 2)
			reload(1)
			height += heightOf(s.op)
		case OpLocalGet:
			x.get(s.imm)
			height++
		case OpGlobalGet:
			// The compiler loads a global again unless an earlier value of it is at hand, so of each
			// there is one at a time.
			if uint64(s.imm) >= uint64(len(m.globals)) || m.globals[s.imm] != m.measured {
				x.reads++
			}
			if uint64(s.imm) < uint64(len(m.globals)) {
				m.globals[s.imm] = m.measured
			}
			height++
		case OpLocalSet, OpLocalTee:
			x.set(s.imm)
			height += heightOf(s.op)
		default:
			if s.op>>8 == prefixVec {
				vectors = true
			}
			height += heightOf(s.op)
		}
		height = max(height, 0) // Dead code, whose height means nothing.
		before[1], before[0] = before[0], operation{s.op, s.imm}
	}
	slots := localSlots*(uint64(len(own.Params))+c.NumLocals) + uint64(len(own.Results)+most)
	if vectors {
		slots *= 2
	}
	return uint32(min(frameBytes+slots*slotBytes, maxFrameBytes)), tail, s.err
}

// operation is an instruction with its first index.
type operation struct {
	op  int
	imm uint32
}

// addressOf returns the local with the address of an access of the memory, from the instructions
// before it, or -1 if they do not show that.
func addressOf(op int, before [2]operation) int64 {
	at := before[0]
	if op >= OpI32Store && op <= OpI64Store32 {
		switch {
		case at.op == OpLocalGet, at.op == OpGlobalGet, at.op == OpI32Const, at.op == OpI64Const:
			at = before[1] // The stored value is on top.
		default:
			return -1
		}
	}
	if at.op == OpLocalGet || at.op == OpLocalTee {
		return int64(at.imm)
	}
	return -1
}

// heightOf returns the number of operands that an instruction leaves in excess of those it takes.
// For instructions that are not worth a line of a table, it returns more.
func heightOf(op int) int {
	if op < len(heights) {
		return int(heights[op])
	}
	switch op {
	case OpMemoryInit, OpMemoryCopy, OpMemoryFill, OpTableInit, OpTableCopy, OpTableFill:
		return -3
	case OpTableGrow:
		return -1
	case prefixMisc<<8 | 0x10, prefixVec<<8 | 0x0c: // table.size, v128.const
		return 1
	}
	return 0
}

// heights is heightOf for the plain instructions.
var heights = func() (t [256]int8) {
	for _, r := range []struct {
		first, last byte
		height      int8
	}{
		{0x0d, 0x0e, -1},                  // br_if, br_table
		{0x1a, 0x1a, -1},                  // drop
		{0x1b, 0x1c, -2},                  // select
		{0x20, 0x20, 1}, {0x21, 0x21, -1}, // local.get, local.set
		{0x23, 0x23, 1}, {0x24, 0x24, -1}, {0x26, 0x26, -2}, // global.get, global.set, table.set
		{0x36, 0x3e, -2},                 // stores
		{0x3f, 0x3f, 1}, {0x41, 0x44, 1}, // memory.size, constants
		{0x46, 0x4f, -1}, {0x51, 0x66, -1}, // comparisons
		{0x6a, 0x78, -1}, {0x7c, 0x8a, -1}, // of integers
		{0x92, 0x98, -1}, {0xa0, 0xa6, -1}, // of floats
		{0xd0, 0xd0, 1}, {0xd2, 0xd2, 1}, {0xd6, 0xd6, -1}, // ref.null, ref.func, br_on_non_null
	} {
		for op := int(r.first); op <= int(r.last); op++ {
			t[op] = r.height
		}
	}
	return t
}()

// maxStack is the most that the counter of the stack can hold.
const maxStack = math.MaxInt32
