package wasmbin

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// wazero's compiler takes time that grows faster than the code: for each branch it walks back to
// the function's entry, for each value back to the place where it was set. Some kilobytes can keep
// it busy for a minute, and nothing can stop it. So the rewriter estimates the time first, in units
// of about a nanosecond, from measurements: BenchmarkComplexity compiles modules that are just
// accepted.
const (
	// baseComplexity and complexityPerByte bound the complexity of a module, by the size of its
	// bodies, beyond the time for any code, unless [Options.CompileTime] overrides it. A Go guest
	// of 3 MB takes a tenth of it, a TinyGo policy whose decoders consist of branches three
	// quarters.
	baseComplexity    = 800_000_000
	complexityPerByte = 2_000
	// maxFunctionComplexity is the maximum complexity of one function, and so the time for which a
	// compilation continues after its context has ended.
	maxFunctionComplexity = 5_000_000_000
	// maxFunctionMemory is the maximum number of bytes that the compiler may need for one function,
	// by another estimate. It keeps all its data about a function until that is compiled. The worst
	// of a Go guest of 18 MB takes a quarter.
	maxFunctionMemory = 400 << 20
	// littleHeld is the number of bytes that a function may leave to the next one without being
	// counted. The compiler keeps the lists of a function for the next one, and makes them longer,
	// so all counted functions share maxFunctionMemory.
	littleHeld = 2 << 20

	// The cost of a value that is one of several where paths meet, its cost for each other such
	// value, and its cost for being carried by a br_table, which has a block for each target then.
	costMeeting   = 500
	costMeetings  = 2
	costCheck     = 100 // The same where a check of the rewriter ends.
	costStep      = 2   // A block on the way from a branch to the entry, twice.
	costLook      = 10  // A block on the way from the use of a value to its definition.
	costLive      = 400 // A value that is live across a call.
	costCarried   = 5_000
	costPassed    = 200    // A parameter or result of a function, a call or a block.
	costReload    = 300    // A global that can change, for each call.
	costTrapping  = 20_000 // A division, a conversion or an access of a table that can trap.
	maxComplexity = 1 << 60
)

// weight is the number of compiler blocks of an instruction that branches, with the checks that the
// rewriter adds to it: for the estimate of the time, and for that of the memory, where each block
// keeps all live values.
type weight struct{ steps, blocks uint64 }

var (
	weightLoop   = weight{10, 2}
	weightTurn   = weight{0, 7} // The check of the fuel at the head of a loop that something branches to.
	weightIf     = weight{4, 3}
	weightElse   = weight{2, 1}
	weightTrap   = weight{6, 1}   // unreachable: a separate exit
	weightBulk   = weight{16, 9}  // With the check of the fuel after it.
	weightPieces = weight{26, 15} // The same, and the choice whether to do it in pieces.
	weightCall   = weight{12, 4}  // One that is charged for the stack.
	weightBranch = weight{4, 2}   // A conditional one; its other path continues in a separate block.
	weightLeave  = weight{2, 1}   // br, return
	weightBlock  = weight{2, 1}
	weightTarget = weight{1, 1} // of br_table
	weightTry    = weight{4, 9}
)

// times returns the weight of n such instructions.
func (w weight) times(n int) weight { return weight{w.steps * uint64(n), w.blocks * uint64(n)} }

// and returns the sum of two weights.
func (w weight) and(other weight) weight {
	return weight{w.steps + other.steps, w.blocks + other.blocks}
}

// The compiler's allocations in bytes, which exceed its memory at any one time: no estimate
// predicts when Go's garbage collector runs. TestComplexityOfFamilies compares their sum.
const (
	bytesBlock    = 3_200
	bytesLive     = 30  // A value that is live in a block.
	bytesKnown    = 48  // An address in a block whose earlier accesses have proved that it lies in the memory.
	bytesMeeting  = 250 // A local that is read after paths met, for each such place.
	bytesEdge     = 400 // The same, for each of these ways.
	bytesCheck    = 150 // The same, if none of these ways sets it.
	bytesReload   = 290 // A global that can change, for each call.
	bytesPassed   = 160 // A value that a branch passes.
	bytesArgument = 600 // A parameter or a result of a call.
)

// complexity collects the costs of one function.
type complexity struct {
	steps    uint64 // from each block up to the entry, along the blocks that dominate it
	looks    uint64 // from each use of a value back along the chain
	ways     uint64 // along all chains that end where others do
	carried  uint64
	passed   uint64
	merges   uint64 // where ways meet
	edges    uint64 // ways that meet there
	checks   uint64 // where ways meet that set nothing
	meeting  uint64 // locals that are read after such a place
	calls    uint64
	across   uint64 // locals that are read after a call
	below    uint64 // operands below calls, added up
	memory   uint64 // bytes that the compiler needs for instructions
	blocks   uint64
	live     uint64 // operands at the begin of each block, added up
	known    uint64 // addresses that are known to lie in the memory, here at most
	knowns   uint64 // the same at the begin of each block, added up
	reads    uint64 // locals and globals that are read
	reloads  uint64 // globals that are read again after calls
	trapping uint64 // rare instructions that are slow to compile since they can trap

	// About the current place: depth is the maximum weight of the blocks that dominate it; chain is
	// the number of blocks with one predecessor that lead to it from the last one with several;
	// dead is set if it cannot be reached.
	depth, chain uint64
	dead         bool

	epoch    uint32 // counts the places where ways met
	straight uint32 // counts the beginnings of straight code, from 1
	locals   []localState
}

// localState records when a local was last set, and whether it was counted already.
type localState struct {
	epoch             uint32
	calls             uint64
	known             uint32 // the straight code in which it was an address
	met, across, read bool
}

// begin begins a function with so many locals.
func (c *complexity) begin(locals int) {
	state := c.locals[:0]
	if cap(state) < locals {
		state = make([]localState, locals)
	}
	state = state[:locals]
	clear(state)
	*c = complexity{locals: state, straight: 1}
}

// label is the target of branches to a block: its end, or the head of a loop.
type label struct {
	loop  bool
	dead  bool   // No way leads to the block.
	chain uint64 // at its begin
	depth uint64
	known uint64
	bare  bool // an if, as long as it has no else

	branches uint64 // How many lead here,
	ways     uint64 // how long their chains are together,
	least    uint64 // and the least depth of them,
	knows    uint64 // and the minimum number of known addresses.
}

// open begins a block, after the branch that an `if` itself is.
func (c *complexity) open(loop, conditional bool) label {
	l := label{loop: loop, bare: conditional, dead: c.dead, depth: c.depth, chain: c.chain, known: c.known, least: math.MaxUint64, knows: math.MaxUint64}
	switch {
	case loop:
		c.chain = 0
	case conditional:
		c.chain++
	}
	return l
}

// block records blocks of the compiler that continue where the last one ended, with so many
// operands.
func (c *complexity) block(w weight, operands int) {
	operands = max(operands, 0) // Dead code, whose height means nothing.
	c.steps = min(c.steps+w.steps*c.depth+w.steps*w.steps/2, maxComplexity)
	c.depth += w.steps
	c.blocks += w.blocks
	c.live += w.blocks * uint64(operands)
	c.knowns += w.blocks * c.known
}

// again records the blocks at the head of a loop that is the target of a branch, with so many
// operands there.
func (c *complexity) again(l *label, operands int) {
	operands = max(operands, 0)
	c.known -= min(c.known, l.known) // None is known after the check.
	c.live += weightTurn.blocks * uint64(operands)
	c.knowns += l.known
	c.blocks += weightTurn.blocks
}

// address records an access of the memory. The compiler records the address unless an earlier
// access had the same: as far as this code sees, the same local in straight code.
func (c *complexity) address(local int64) {
	if local >= 0 && local < int64(len(c.locals)) {
		l := &c.locals[local]
		if l.known == c.straight {
			c.memory -= memoryAccess - memoryKnown
			return
		}
		l.known = c.straight
	}
	c.known++
}

// branch records a path from here to a label.
func (c *complexity) branch(l *label) {
	if !c.dead {
		l.from(c.depth, c.chain, c.known)
	}
}

func (l *label) from(depth, chain, known uint64) {
	l.branches++
	l.ways += chain + 1
	l.least = min(l.least, depth)
	l.knows = min(l.knows, known)
}

// otherwise ends the first arm of an if.
func (c *complexity) otherwise(l *label) {
	c.branch(l)
	c.depth, c.chain, c.known, c.dead, l.bare = l.depth, l.chain+1, l.known, l.dead, false
	c.straight++
}

// close ends a block. A dominator of its end dominates each path to it, so the end is not deeper
// than the shallowest.
func (c *complexity) close(l *label) {
	if l.loop {
		c.ways += l.ways
		c.edges += l.branches + 1
		return
	}
	c.branch(l)
	if l.bare && !l.dead {
		l.from(l.depth, l.chain, 0) // The compiler knows no addresses in a missing arm.
	}
	c.known = l.knows
	switch c.dead = l.branches == 0; {
	case c.dead:
		c.depth, c.chain, c.known = l.depth, l.chain, l.known
	case l.branches == 1:
		c.depth, c.chain = l.least+1, l.ways
	default:
		c.merge()
		c.depth, c.chain = l.least+1, 0
		c.ways += l.ways
		c.edges += l.branches
	}
	c.straight++
}

// merge records a place where paths meet.
func (c *complexity) merge() {
	c.merges++
	c.epoch++
	c.straight++
}

// check records the blocks of an instruction to which the rewriter adds so many checks. Paths meet
// after each, none of which sets a local. The check is an if with one arm, so no address is known
// after it.
func (c *complexity) check(w weight, operands int, checks uint64) {
	c.block(weight{w.steps, 1}, operands)
	c.known = 0
	c.block(weight{0, w.blocks - 1}, operands)
	c.checks += checks
	c.epoch++
	c.straight++
}

// reference records that a call by reference goes through a table, see appendCall.
func (c *complexity) reference() {
	c.memory += memoryTable
	c.trapping++
	c.looks = min(c.looks+c.chain, maxComplexity)
}

// call records a call with so many operands below its own.
func (c *complexity) call(below int) {
	c.calls++
	c.below += uint64(below)
}

// get records that a local is read. A local that was set since paths last met is no value of
// several, and one that was set since the last call need not outlive it.
func (c *complexity) get(local uint32) {
	if uint64(local) >= uint64(len(c.locals)) {
		return
	}
	l := &c.locals[local]
	if !l.read {
		l.read = true
		c.reads++
	}
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
		l := &c.locals[local]
		l.epoch, l.calls, l.known = c.epoch, c.calls, 0
	}
}

// total is the estimate of the time for the function.
func (c *complexity) total() uint64 {
	return sumOf([][3]uint64{
		{c.steps, costStep, 1},
		{c.meeting * c.meeting, c.merges, costMeetings},
		{c.meeting, c.merges, costMeeting},
		{c.meeting, c.checks, costCheck},
		{c.meeting, c.ways, costLook},
		{c.looks, costLook, 1},
		{c.across, c.calls, costLive},
		{c.below, costLive, 1},
		{c.carried, costCarried, 1},
		{c.passed, costPassed, 1},
		{c.reloads, costReload, 1},
		{c.trapping, costTrapping, 1},
	})
}

// held is the estimate of the bytes that the compiler keeps of a function for the next one, as
// many as the two need at most: lists of values.
func (c *complexity) held() uint64 {
	return sumOf([][3]uint64{
		{c.live, bytesLive, 1},
		{c.blocks, c.reads, bytesLive},
		{c.knowns, bytesKnown, 1},
		{c.meeting, c.merges, bytesMeeting},
		{c.meeting, c.edges, bytesEdge},
		{c.meeting, c.checks, bytesCheck},
		{c.reloads, bytesReload, 1},
		{c.carried + c.passed, bytesPassed, 1},
	})
}

// heldTogether is the estimate of the memory that the compiler keeps of all functions. The nth
// block, and the nth list of values that paths carry, have the memory of the nth of the previous
// function, and a list is never longer than the number of values of its function. So the lists of
// all functions take the union of the rectangles of lists and values of each. Memory whose place is
// not known is added up.
func heldTogether(of []complexity) uint64 {
	var blocks, carried []rectangle
	var sum, carriedSum uint64
	for i := range of {
		c := &of[i]
		held := c.held()
		if held <= littleHeld {
			continue
		}
		lists := sumOf([][3]uint64{{c.blocks, c.reads, bytesLive}})
		ways := sumOf([][3]uint64{{c.meeting, c.merges, bytesMeeting}, {c.meeting, c.edges, bytesEdge}, {c.meeting, c.checks, bytesCheck}})
		blocks = append(blocks, rectangle{c.blocks, c.reads})
		carried = append(carried, rectangle{c.merges + c.edges + c.checks + c.calls, c.meeting})
		carriedSum = min(carriedSum+ways, maxComplexity)
		sum = min(sum+held-lists-ways, maxComplexity)
	}
	carriedSum = min(carriedSum, sumOf([][3]uint64{{covered(carried), bytesEdge, 1}}))
	return min(sum+carriedSum+sumOf([][3]uint64{{covered(blocks), bytesLive, 1}}), maxComplexity)
}

// rectangle is so many lists of so many values.
type rectangle struct{ lists, values uint64 }

// covered returns the area of the union of rectangles with a common corner.
func covered(of []rectangle) (sum uint64) {
	slices.SortFunc(of, func(a, b rectangle) int { return cmp.Compare(b.lists, a.lists) })
	values := uint64(0)
	for i, r := range of {
		values = max(values, r.values)
		fewer := uint64(0)
		if i+1 < len(of) {
			fewer = of[i+1].lists
		}
		sum = min(sum+sumOf([][3]uint64{{r.lists - fewer, values, 1}}), maxComplexity)
	}
	return sum
}

// bytes is the estimate of the memory for the function.
func (c *complexity) bytes() uint64 {
	return sumOf([][3]uint64{{c.memory, 1, 1}, {c.blocks, bytesBlock, 1}, {c.held(), 1, 1}})
}

// sumOf adds up products.
func sumOf(products [][3]uint64) (sum uint64) {
	for _, product := range products {
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

// checkComplexity refuses a module whose functions take too much memory or too long together; it
// names the most expensive one.
func (rw *rewriter) checkComplexity(plan *stackPlan, of []complexity) error {
	if rw.tooComplex(of) == nil {
		return nil
	}
	// Each call counted as if it were charged for the stack.
	if err := rw.countCharges(plan, of); err != nil {
		return err
	}
	return rw.tooComplex(of)
}

// tooComplex returns the error of a module whose functions are too expensive.
func (rw *rewriter) tooComplex(of []complexity) error {
	for i := range of {
		if n := of[i].bytes(); n > maxFunctionMemory {
			return fmt.Errorf("%w: function %d, with the values that are live where it branches, would take the compiler about %d MB of memory, possible are %d",
				ErrTooComplex, i+int(rw.yield), n>>20, maxFunctionMemory>>20)
		}
	}
	if held := heldTogether(of); held > maxFunctionMemory {
		return fmt.Errorf("%w: the lists of values that are live in its functions would take the compiler about %d MB of memory together, possible are %d",
			ErrTooComplex, held>>20, maxFunctionMemory>>20)
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
	m := rw.surveyor()
	m.charged = make([]uint32, len(rw.Codes))
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

// surveyor returns a surveyor for the bodies.
func (rw *rewriter) surveyor() *surveyor {
	return &surveyor{
		types: rw.types, functions: rw.functions, imports: rw.yield, mutable: rw.mutableGlobals(),
		globals:   make([]uint32, len(rw.spaces[ExternGlobal])),
		plainTail: rw.opts.ExpandTailCalls, refuseUnsafe: rw.opts.RefuseUnsafe,
	}
}

// mutableGlobals returns the number of globals that can change, with the fuel and the stack.
func (rw *rewriter) mutableGlobals() uint64 {
	n := uint64(2)
	for i := range rw.spaces[ExternGlobal] {
		if rw.spaces[ExternGlobal][i].Global.Mutable {
			n++
		}
	}
	return n
}

// memoryOf estimates the bytes that the compiler allocates for an instruction, beyond those for
// blocks and values: measurements lie between half of it and all.
func memoryOf(op int) uint64 {
	if op < len(memories) {
		return uint64(memories[op])
	}
	if op>>8 == prefixAtomic && op&0xff != 0x03 || op>>8 == prefixVec && (op&0xff <= 0x0b || op&0xff >= 0x54 && op&0xff <= 0x5d) {
		return memoryAccess // The loads and stores, which take an address as these do.
	}
	return memoryOther
}

// traps reports whether an instruction counts as complexity.trapping. Loads and stores, which every
// guest is full of, are part of the costs of any code.
func traps(op int) bool {
	switch {
	case op >= len(memories):
		return false
	case op == 0x25, op == 0x26: // table.get, table.set
		return true
	}
	return memories[op] >= memoryDivide
}

// looksUp reports whether the compiler searches earlier blocks for a value: for locals and globals,
// and for the place and size of the memory.
func looksUp(op int) bool {
	return op == OpLocalGet || op == OpGlobalGet || memoryOf(op) == memoryAccess
}

const (
	memoryNone   = 50 // Locals, drop, nop, end: instructions that only move values of the compiler.
	memoryOther  = 850
	memoryKnown  = 1_300 // Loads and stores whose address is known to lie in the memory.
	memoryCall   = 2_000 // Calls, ref.func.
	memoryAccess = 5_000 // Loads, stores, accesses of tables.
	memoryDivide = 5_500
	memoryTrunc  = 7_500  // A float to an integer.
	memoryCheck  = 1_600  // ref.as_non_null
	memoryTable  = 19_000 // The additional cost of a call by reference over one by table.
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
		{OpNop, OpNop, memoryNone}, {OpEnd, OpEnd, memoryNone}, {OpDrop, OpDrop, memoryNone}, {OpLocalGet, OpLocalTee, memoryNone},
		{0x10, 0x15, memoryCall}, {0xd2, 0xd2, memoryCall},
		{OpRefAsNonNull, OpRefAsNonNull, memoryCheck},
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

// complexityOf adds up the costs of all functions, and finds the most expensive one.
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
