package wasmbin

import "fmt"

// wazero's compiler takes time that grows faster than the code: with the square
// of the branches of a function, and with the values that meet where branches
// do. Some kilobytes can keep it busy for a minute, and nothing can stop it. So
// the rewriter estimates the time beforehand, in units of about a nanosecond,
// from what was measured: BenchmarkComplexity compiles what is just accepted.
const (
	// baseComplexity and complexityPerByte are what a module may take, by the size
	// of its bodies, beyond the time that any code takes. A Go guest of 3 MB has a
	// fifth of it, one of 18 MB that links the Kubernetes types a third.
	baseComplexity    = 800_000_000
	complexityPerByte = 1_000
	// maxFunctionComplexity is what one function may take, which is how long a
	// compilation goes on after its context has ended. That guest's worst takes a
	// tenth.
	maxFunctionComplexity = 5_000_000_000
	// maxFunctionMemory is how many bytes the compiler may need for one function,
	// by another estimate. It keeps all that it knows of a function until that is
	// compiled. That Go guest's worst takes a quarter.
	maxFunctionMemory = 400 << 20

	// The weights of what branches, which are added up and squared for each
	// function.
	weightLoop   = 10 // With the check of the fuel at its head.
	weightIf     = 4
	weightElse   = 2
	weightTrap   = 6  // unreachable: a way out of its own
	weightBulk   = 16 // With the check of the fuel behind it.
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
	costLive      = 400 // A value that is live across a call.
	costCarried   = 5_000
	costPassed    = 200    // A parameter or result of a function, a call or a block.
	costTrapping  = 20_000 // A division, a conversion or an access of a table that can trap.
	maxComplexity = 1 << 60
)

// complexity collects what one function takes.
type complexity struct {
	branches uint64 // weighted
	carried  uint64
	passed   uint64
	merges   uint64 // where ways meet
	meeting  uint64 // locals that are read behind such a place
	calls    uint64
	across   uint64 // locals that are read behind a call
	below    uint64 // operands below calls, added up
	memory   uint64 // bytes that the compiler needs
	trapping uint64 // rare instructions that are slow to compile since they can trap

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
		{c.branches, c.branches, 1},
		{c.meeting * c.meeting, c.merges, costMeetings},
		{c.meeting, c.merges, costMeeting},
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
	sum, worst, at := complexityOf(plan, of)
	size := 0
	for i := range rw.Codes {
		size += len(rw.Codes[i].Body)
	}
	const what = "%w: beyond what any %s of %d bytes takes, this one would take the compiler about %d ms, possible are %d; function %d, with its branches, the values that they carry and its parameters, takes %d"
	if limit := uint64(baseComplexity) + complexityPerByte*uint64(size); sum > limit {
		return fmt.Errorf(what, ErrTooComplex, "code", size, sum/1_000_000, limit/1_000_000, at+int(rw.yield), worst/1_000_000)
	}
	if worst > maxFunctionComplexity {
		return fmt.Errorf(what, ErrTooComplex, "function", len(rw.Codes[at].Body), worst/1_000_000, maxFunctionComplexity/1_000_000, at+int(rw.yield), worst/1_000_000)
	}
	for i := range of {
		if n := of[i].memory; n > maxFunctionMemory {
			return fmt.Errorf("%w: function %d would take the compiler about %d MB of memory, possible are %d",
				ErrTooComplex, i+int(rw.yield), n>>20, maxFunctionMemory>>20)
		}
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
func complexityOf(plan *stackPlan, of []complexity) (sum, worst uint64, at int) {
	for i := range of {
		c := &of[i]
		for call := plan.starts[i]; call < plan.starts[i+1]; call++ {
			if plan.charged[call] {
				c.branches += weightCall * uint64(plan.times[call])
			}
		}
		total := c.total()
		sum = min(sum+total, maxComplexity)
		if total > worst {
			worst, at = total, i
		}
	}
	return sum, worst, at
}
