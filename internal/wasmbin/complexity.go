package wasmbin

import (
	"fmt"
	"math"
)

// wazero's compiler takes time that grows faster than the code: for each branch
// it goes the way back to the function's entry, for each value the way back to
// where it was set. Some kilobytes can keep it busy for a minute, and nothing can
// stop it. So the rewriter estimates the time before, in units of about a
// nanosecond, from what was measured: BenchmarkComplexity compiles what is just
// accepted.
const (
	// baseComplexity and complexityPerByte are what a module may take, by the size
	// of its bodies, beyond the time that any code takes, unless
	// [Options.CompileTime] says otherwise. A Go guest of 3 MB takes a tenth of it,
	// a TinyGo policy whose decoders consist of branches three quarters.
	baseComplexity    = 800_000_000
	complexityPerByte = 2_000
	// maxFunctionComplexity is what one function may take, which is how long a
	// compilation goes on after its context has ended.
	maxFunctionComplexity = 5_000_000_000
	// maxFunctionMemory is how many bytes the compiler may need for one function,
	// by another estimate. It keeps all that it knows of a function until that is
	// compiled. The worst of a Go guest of 18 MB takes a quarter.
	maxFunctionMemory = 400 << 20

	// The weights of what branches: about how many blocks the compiler makes of it.
	weightLoop   = 10 // With the check of the fuel at its head.
	weightIf     = 4
	weightElse   = 2
	weightTrap   = 6  // unreachable: a way out of its own
	weightBulk   = 16 // With the check of the fuel after it.
	weightPieces = 26 // The same, and the choice whether to do it in pieces.
	weightCall   = 12 // One that is charged for the stack.
	weightBranch = 4  // A conditional one; its other way goes on in a block of its own.
	weightLeave  = 2  // br, return
	weightBlock  = 2
	weightTarget = 1 // of br_table

	// What a value costs that is one of several where ways meet, what it costs
	// for each other such value, and what it costs to be carried by a br_table,
	// which has a block for each target then.
	costMeeting   = 500
	costMeetings  = 2
	costStep      = 2   // A block on the way from a branch to the entry, twice.
	costLook      = 10  // A block on the way from the use of a value to its definition.
	costLive      = 400 // A value that is live across a call.
	costCarried   = 5_000
	costPassed    = 200    // A parameter or result of a function, a call or a block.
	costTrapping  = 20_000 // A division, a conversion or an access of a table that can trap.
	maxComplexity = 1 << 60
)

// complexity collects what one function takes.
type complexity struct {
	steps    uint64 // from each block up to the entry, along the blocks that dominate it
	looks    uint64 // from each use of a value back along the chain
	ways     uint64 // along all chains that end where others do
	carried  uint64
	passed   uint64
	merges   uint64 // where ways meet
	meeting  uint64 // locals that are read after such a place
	calls    uint64
	across   uint64 // locals that are read after a call
	below    uint64 // operands below calls, added up
	memory   uint64 // bytes that the compiler needs
	trapping uint64 // rare instructions that are slow to compile since they can trap

	// Of the place that is looked at: depth is the weight of the blocks that
	// dominate it, at most; chain is how many blocks with one way in lead to it from
	// the last one that has several; dead is set if no way leads there.
	depth, chain uint64
	dead         bool

	epoch  uint32 // counts the places where ways met
	locals []localState
}

// localState says when a local was last set, and whether it was counted already.
type localState struct {
	epoch       uint32
	calls       uint64
	met, across bool
}

// begin begins a function with so many locals.
func (c *complexity) begin(locals int) {
	state := c.locals[:0]
	if cap(state) < locals {
		state = make([]localState, locals)
	}
	state = state[:locals]
	clear(state)
	*c = complexity{locals: state}
}

// label is where the branches to a block lead: to its end, or to the head of a
// loop.
type label struct {
	loop  bool
	dead  bool   // No way leads to the block.
	chain uint64 // at its begin
	depth uint64
	bare  bool // an if, as long as it has no else

	branches uint64 // How many lead here,
	ways     uint64 // how long their chains are together,
	least    uint64 // and the least depth of them.
}

// open begins a block, after the branch that an `if` itself is.
func (c *complexity) open(loop, conditional bool) label {
	l := label{loop: loop, bare: conditional, dead: c.dead, depth: c.depth, chain: c.chain, least: math.MaxUint64}
	switch {
	case loop:
		c.chain = 0
	case conditional:
		c.chain++
	}
	return l
}

// block notes blocks of the compiler that go on where the last one ended.
func (c *complexity) block(weight uint64) {
	c.steps = min(c.steps+weight*c.depth+weight*weight/2, maxComplexity)
	c.depth += weight
}

// branch notes a way from here to a label.
func (c *complexity) branch(l *label) {
	if !c.dead {
		l.from(c.depth, c.chain)
	}
}

func (l *label) from(depth, chain uint64) {
	l.branches++
	l.ways += chain + 1
	l.least = min(l.least, depth)
}

// otherwise ends the first arm of an if.
func (c *complexity) otherwise(l *label) {
	c.branch(l)
	c.depth, c.chain, c.dead, l.bare = l.depth, l.chain+1, l.dead, false
}

// close ends a block. What dominates its end dominates each way that leads there,
// so it is not deeper than the shallowest.
func (c *complexity) close(l *label) {
	if l.loop {
		c.ways += l.ways
		return
	}
	c.branch(l)
	if l.bare && !l.dead {
		l.from(l.depth, l.chain)
	}
	switch c.dead = l.branches == 0; {
	case c.dead:
		c.depth, c.chain = l.depth, l.chain
	case l.branches == 1:
		c.depth, c.chain = l.least+1, l.ways
	default:
		c.depth, c.chain = l.least+1, 0
		c.ways += l.ways
	}
}

func (c *complexity) merge() {
	c.merges++
	c.epoch++
}

// call notes a call with so many operands below its own.
func (c *complexity) call(below int) {
	c.calls++
	c.below += uint64(below)
}

// get notes that a local is read. One that was set since ways met last is no
// value of several, and one that was set since the last call need not outlive
// it.
func (c *complexity) get(local uint32) {
	if uint64(local) >= uint64(len(c.locals)) {
		return
	}
	l := &c.locals[local]
	if !l.met && l.epoch != c.epoch {
		l.met = true
		c.meeting++
	}
	if !l.across && l.calls != c.calls {
		l.across = true
		c.across++
	}
}

func (c *complexity) set(local uint32) {
	if uint64(local) < uint64(len(c.locals)) {
		c.locals[local].epoch, c.locals[local].calls = c.epoch, c.calls
	}
}

// total is the estimate for the function.
func (c *complexity) total() uint64 {
	sum := uint64(0)
	for _, product := range [][3]uint64{
		{c.steps, costStep, 1},
		{c.meeting * c.meeting, c.merges, costMeetings},
		{c.meeting, c.merges, costMeeting},
		{c.meeting, c.ways, costLook},
		{c.looks, costLook, 1},
		{c.across, c.calls, costLive},
		{c.below, costLive, 1},
		{c.carried, costCarried, 1},
		{c.passed, costPassed, 1},
		{c.trapping, costTrapping, 1},
	} {
		p := uint64(1)
		for _, f := range product {
			if f != 0 && p > maxComplexity/f {
				return maxComplexity
			}
			p *= f
		}
		sum += p
	}
	return min(sum, maxComplexity)
}

// checkComplexity refuses a module whose functions take too long together; it
// names the one that takes longest.
func (rw *rewriter) checkComplexity(plan *stackPlan, of []complexity) error {
	for i := range of {
		if n := of[i].memory; n > maxFunctionMemory {
			return fmt.Errorf("%w: function %d would take the compiler about %d MB of memory, possible are %d",
				ErrTooComplex, i+int(rw.yield), n>>20, maxFunctionMemory>>20)
		}
	}
	size := 0
	for i := range rw.Codes {
		size += len(rw.Codes[i].Body)
	}
	limit, function := uint64(baseComplexity)+complexityPerByte*uint64(size), uint64(maxFunctionComplexity)
	if t := rw.opts.CompileTime; t > 0 {
		limit, function = uint64(t), uint64(t)
	}
	sum, worst, at := complexityOf(of)
	if sum > limit || worst > function {
		// Each call counted as if it were charged for the stack.
		if err := rw.countCharges(plan, of); err != nil {
			return err
		}
		sum, worst, at = complexityOf(of)
	}
	const what = "%w: beyond what any %s of %d bytes takes, this one would take the compiler about %d ms, possible are %d; function %d, with its branches, the values that they carry and its parameters, takes %d"
	if sum > limit {
		return fmt.Errorf(what, ErrTooSlow, "code", size, sum/1_000_000, limit/1_000_000, at+int(rw.yield), worst/1_000_000)
	}
	if worst > function {
		return fmt.Errorf(what, ErrTooSlow, "function", len(rw.Codes[at].Body), worst/1_000_000, function/1_000_000, at+int(rw.yield), worst/1_000_000)
	}
	return nil
}

// countCharges estimates the functions anew, with the calls that are charged
// instead of all.
func (rw *rewriter) countCharges(plan *stackPlan, of []complexity) error {
	m := &surveyor{types: rw.types, functions: rw.functions, imports: rw.yield, charged: make([]uint32, len(rw.Codes))}
	for i := range rw.Codes {
		if plan.starts[i] == plan.starts[i+1] {
			continue
		}
		m.function = uint32(i) + 1
		plan.charges(i, m.charged)
		if _, _, err := m.measure(&rw.Codes[i], rw.Functions[i]); err != nil {
			return err
		}
		of[i] = m.complexity
		of[i].locals = nil
	}
	return nil
}

// memoryOf estimates the bytes that the compiler needs for an instruction: what was
// measured is between half of it and all. What can trap is made of several blocks.
func memoryOf(op int) uint64 {
	if op < len(memories) {
		return uint64(memories[op])
	}
	if op>>8 == prefixVec && (op&0xff <= 0x0b || op&0xff >= 0x54 && op&0xff <= 0x5d) {
		return memoryAccess // The loads and stores.
	}
	return memoryOther
}

// traps reports whether an instruction counts as complexity.trapping. Loads and
// stores, which every guest is full of, are what any code takes.
func traps(op int) bool {
	switch {
	case op >= len(memories):
		return false
	case op == 0x25, op == 0x26: // table.get, table.set
		return true
	}
	return memories[op] >= memoryDivide
}

// looksUp reports whether the compiler looks for a value in the blocks before: for
// locals and globals, and for where the memory lies and how large it is.
func looksUp(op int) bool {
	return op == OpLocalGet || op == OpGlobalGet || memoryOf(op) == memoryAccess
}

const (
	memoryOther  = 350
	memoryCall   = 2_000 // Calls, ref.func.
	memoryAccess = 5_000 // Loads, stores, accesses of tables.
	memoryDivide = 5_500
	memoryTrunc  = 7_500 // A float to an integer.
)

// memories is memoryOf for the plain instructions.
var memories = func() (t [256]uint16) {
	for i := range t {
		t[i] = memoryOther
	}
	for _, r := range []struct {
		first, last byte
		bytes       uint16
	}{
		{0x10, 0x15, memoryCall}, {0xd2, 0xd2, memoryCall},
		{0x25, 0x26, memoryAccess}, {0x28, 0x3e, memoryAccess},
		{0x6d, 0x70, memoryDivide}, {0x7f, 0x82, memoryDivide},
		{0xa8, 0xab, memoryTrunc}, {0xae, 0xb1, memoryTrunc},
	} {
		for op := int(r.first); op <= int(r.last); op++ {
			t[op] = r.bytes
		}
	}
	return t
}()

// complexityOf adds up what all functions take, and finds the one that takes
// most.
func complexityOf(of []complexity) (sum, worst uint64, at int) {
	for i := range of {
		total := of[i].total()
		sum = min(sum+total, maxComplexity)
		if total > worst {
			worst, at = total, i
		}
	}
	return sum, worst, at
}
