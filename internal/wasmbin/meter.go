package wasmbin

import (
	"fmt"
	"math"
	"slices"
)

// leafCost is the cost up to which a function that calls nothing is not checked on entry, only
// charged. So is a bulk operation whose length is a constant in the code. It bounds the work of a
// guest between two checks: calls to such functions, one after the other, half a million of which
// fit into a megabyte.
const leafCost = 128

// bodyRewriter rewrites the bodies of functions, one after the other, in two steps. scan goes
// through the instructions and records the changes, in the order of the body; emit copies the body
// with these changes.
type bodyRewriter struct {
	types     []FuncType
	functions []uint32 // the type of each function, imports included
	globals   uint32   // the number of globals, imports included
	memoryMax uint32   // no memory.grow by more pages can succeed
	tableMax  []uint32 // the same of table.grow, for each table
	yield     uint32   // the index of yield; the guest's functions from there on move up
	shift     uint32   // by how much they do
	fuel      uint32   // the index of the fuel global
	stack     uint32   // the index of the stack global
	meter     bool
	divide    bool   // remainders are worked out from quotients
	plainTail bool   // indirect tail calls become calls
	table     uint32 // the index of the table for call_ref
	info      *Info
	// plan holds the calls that are charged for the stack, nil if none are; marks are those of the
	// function that is being rewritten.
	plan  *stackPlan
	marks []uint32
	// blockType is the encoded type of a block with these results.
	blockType func(results []ValType) []byte
	// pieces is rewriter.pieceFunction.
	pieces func(op int, segment uint32) (index uint32, blockType []byte, ok bool)

	// profile is nil without a profile; prev and self are locals for it.
	profile    *profileImports
	prev, self uint64

	scanner  scanner
	frames   []frame
	edits    []edit
	constant constant // the last one
	ordered  ordered
	current  int  // the edit that is being charged, or none
	catches  bool // the function catches exceptions
	// refers is set if the function calls references, which pass through the local reference.
	refers    bool
	reference uint64
	// segments is set if an instruction of any function names a data segment.
	segments bool
	// remainders reports whether the function has remainders of 32 and of 64 bits that are
	// expanded. dividends are the first of two locals for the operands of each.
	remainders [2]bool
	dividends  [2]uint64
	checked    bool // a loop checks the fuel for the entry, too
	// counts is set if the function counts its fuel in a local, which is count then.
	counts bool
	count  uint64
}

// frame is a block that is open.
type frame struct {
	// entry is the charge that was current before the block, or none.
	entry int
	// outermost is the outermost frame that is the target of a branch inside: all frames above it
	// are left early.
	outermost int
	// caught is set if a caught exception continues at the label of the frame. loop is
	// the edit at the head of a loop, none for any other block.
	caught bool
	loop   int
	// looped is set if there is a branch to the head of the loop. checks is set if the check of the
	// fuel there serves the function's entry as well.
	looped, checks bool
}

// constant is an i32.const: its end in the body, and its value.
type constant struct {
	end   int
	value uint32
}

// none stands for the charge of code that is never reached, which costs
// nothing.
const none = -1

// edit is a change of a body: it replaces the bytes from at to end depending on its kind.
type edit struct {
	at, end int
	kind    editKind
	cost    uint64 // of a charge
	value   uint32 // the new index of a function, the saturation of a bulk operation, or bytes of stack
	restore bool   // of a loop: an exception that was caught continues here
	op      byte   // the instruction that is written in its place
	piece   uint32 // the function that does a bulk operation in pieces, or 0
	typ     []byte // the block type of its parameters
	// Of a rewritten call: whether the operand on top is a reference, whether the function returns
	// after it, and for that the stack to give back and the label of the body.
	byReference, returns bool
	stack, depth         uint32
}

type editKind byte

const (
	editCharge    editKind = iota // take the cost from the fuel
	editEntry                     // yield if the fuel is negative, and charge, at a function's entry
	editLoop                      // the same at the head of a loop
	editLoopParam                 // the same at the head of a loop that takes parameters
	editIndex                     // write value instead of an index
	editBulkBytes                 // charge for a number of bytes on the stack, and yield
	editBulkElems                 // the same for a number of elements
	editBulkPages                 // the same for a number of pages
	editUnfused                   // the comparison op, i32.eqz
	editRemainder                 // the remainder op, worked out from the quotient
	editEnter                     // take bytes from the stack in front of a call
	editLeave                     // give them back after it
	editRestore                   // restore the stack to its value at the function's entry
	editReturn                    // branch to the end of the body instead of returning
	editTail                      // tell the profiler that the function is left
	editGrew                      // tell the profiler of a memory.grow
	editCall                      // the call op, see appendCall
	editSave                      // bring the count to the fuel global
	editLoad                      // take it from there
)

// rewrite changes the body of a function of the given type. function is its number among those that
// the module defines.
func (b *bodyRewriter) rewrite(function int, c *Code, typ uint32) error {
	if b.plan != nil {
		b.plan.charges(function, b.marks)
	}
	declared := c.NumLocals
	locals := uint64(len(b.types[typ].Params)) + declared
	bulk, err := b.scan(function, c, locals)
	if err != nil || !b.meter {
		return err
	}
	size := len(c.Body)
	for i := range b.edits {
		size += b.edits[i].size()
	}
	extra := func(n uint64, typ ValType) (first uint64) {
		c.LocalGroups++
		c.Locals = append(c.Locals, byte(n), byte(typ)) // the decoder cut it to its capacity, so this copies
		c.NumLocals += n
		return locals + c.NumLocals - declared - n
	}
	var length, entry uint64
	if bulk {
		length = extra(1, I32)
	}
	if b.counts = b.countsItself(); b.counts {
		b.count = extra(1, I64)
	}
	if b.refers {
		b.reference = extra(1, FuncRef)
	}
	for i, typ := range []ValType{I32, I64} {
		if b.remainders[i] {
			b.dividends[i] = extra(2, typ)
		}
	}
	if b.profile != nil {
		return b.profiled(function, c, typ, extra, length, size)
	}
	if b.plan == nil || !b.catches {
		c.Body = b.emit(make([]byte, 0, size), c.Body, length, entry)
		return nil
	}
	// An exception leaves functions without giving their stack back. So the function saves the
	// stack counter when it begins, for the places where its handlers continue. One of them may be
	// its own end, around which another block makes a place: the label is the same as before.
	entry = extra(1, I32)
	out := make([]byte, 0, size+64)
	out = append(appendUvarint(append(out, OpGlobalGet), uint64(b.stack)), OpLocalSet)
	out = append(appendUvarint(out, entry), OpBlock)
	out = append(out, b.blockType(b.types[typ].Results)...)
	out = b.emit(out, c.Body, length, entry)
	c.Body = append(b.appendRestore(out, entry), OpEnd)
	return nil
}

// savings is the number of charges in excess of loads of the count from which a function counts its
// fuel itself.
const savings = 3

// countsItself reports whether the function counts its fuel in a local. A global lies in memory for
// wazero, where each charge waits for the previous one. A local has to be saved before everything
// that reads or changes the fuel, mostly a call, and loaded after it. A trap in between loses the
// function's count since then, less than the host gives at a time. A handler of exceptions, and a
// profile, find the fuel in the global.
func (b *bodyRewriter) countsItself() bool {
	if b.catches || b.profile != nil {
		return false
	}
	n := 0
	for i := range b.edits {
		switch e := &b.edits[i]; {
		case e.kind == editLoad:
			n--
		case e.cost != 0:
			n++
		}
	}
	return n >= savings
}

// restores reports whether there is state to restore where an exception was caught.
func (b *bodyRewriter) restores() bool { return b.plan != nil || b.profile != nil }

// appendRestore restores the stack to its value at the function's entry, and the profiler to the
// function.
func (b *bodyRewriter) appendRestore(out []byte, entry uint64) []byte {
	if b.profile != nil {
		out = b.appendLeave(out, b.self)
	}
	if b.plan == nil {
		return out
	}
	out = append(appendUvarint(append(out, OpLocalGet), entry), OpGlobalSet)
	return appendUvarint(out, uint64(b.stack))
}

// scan fills edits. It reports whether there are bulk operations, which need an extra local.
//
// Charging follows the structure of the code. A charge is placed where code begins that may run or
// not run, or run again: at the function's entry, the head of a loop, the arms of an if, after a
// conditional branch, and after a block that is left early. Every other instruction is added to the
// charge with which it is certain to run: after a block that no branch leaves for an outer one,
// that is the charge which was current before the block. So exactly the instructions that run are
// charged, unless a trap or an exception cuts the code short.
//
// It also checks the indexes of functions, globals, types and locals: each of these spaces gets one
// more entry, and an index that was out of range must not come to name that.
func (b *bodyRewriter) scan(function int, c *Code, locals uint64) (bulk bool, err error) {
	s := &b.scanner
	*s = scanner{reader: reader{buf: c.Body, base: c.Offset, section: SectionCode}, labels: s.labels}
	b.edits = append(b.edits[:0], edit{kind: editCharge})
	b.frames = append(b.frames[:0], frame{outermost: math.MaxInt, loop: none})
	b.current, b.catches, b.refers, b.checked, b.remainders, b.constant = 0, false, false, false, [2]bool{}, constant{}
	b.ordered.straight()
	calls := false
	for s.next() {
		if len(b.frames) == 0 {
			s.fail(s.at, "want the end of the body, have instruction %#x", s.op)
			break
		}
		if !free(s.op) {
			b.add(1)
		}
		b.compare()
		switch s.op {
		case OpBlock:
			b.open()
		case OpIf:
			b.open()
			b.charge(editCharge, b.current)
		case OpElse:
			b.charge(editCharge, b.frames[len(b.frames)-1].entry)
		case OpLoop:
			// A loop that the function is certain to run before any call checks the fuel for the
			// entry, too.
			checks := b.current == 0 && !calls
			b.open()
			if b.current != none {
				f := &b.frames[len(b.frames)-1]
				f.loop, f.checks = len(b.edits), checks
			}
			if s.block >= 0 && s.block < int64(len(b.types)) && len(b.types[s.block].Params) > 0 {
				b.charge(editLoopParam, b.current)
			} else {
				b.charge(editLoop, b.current)
			}
		case OpTryTable:
			for _, label := range s.to {
				b.branch(label)
				b.catch(label)
			}
			b.open()
			if len(s.to) > 0 { // a caught exception leaves the block early, for one of these labels
				b.frames[len(b.frames)-1].outermost = len(b.frames) - 2
			}
		case OpEnd:
			if len(b.frames) == 1 {
				b.save()
			}
			b.close()
		case OpBrIf, OpBrOnNull, OpBrOnNonNull:
			b.saveFor(s.imm)
			b.branch(s.imm)
			b.charge(editCharge, b.current)
		case OpBr:
			b.saveFor(s.imm)
			b.branch(s.imm)
			b.current = none
		case OpBrTable:
			b.saveFor(s.to...)
			for _, label := range s.to {
				b.branch(label)
			}
			b.current = none
		case OpUnreachable:
			b.save()
			b.current = none
		case OpReturn, OpThrow, OpThrowRef:
			b.save()
			if s.op == OpReturn && b.profile != nil {
				b.edits = append(b.edits, edit{at: s.at, end: s.pos, kind: editReturn, value: uint32(len(b.frames) - 1)})
			}
			b.leave()
		case OpRefFunc:
			if s.within("function", s.imm, len(b.functions)); s.imm >= b.yield {
				b.edits = append(b.edits, edit{at: s.immAt, end: s.pos, kind: editIndex, value: s.imm + b.shift})
			}
		case OpCall, OpReturnCall:
			calls = true
			if s.within("function", s.imm, len(b.functions)); s.err != nil {
				break
			}
			b.call(function, s.imm >= b.yield && b.plan != nil && b.marks[s.imm-b.yield] == uint32(function)+1)
		case OpCallIndirect, OpCallRef, OpReturnCallIndirect, OpReturnCallRef:
			calls = true
			if s.within("type", s.imm, len(b.types)); s.err != nil {
				break
			}
			b.call(function, b.plan != nil)
		case OpI32Const:
			b.constant = constant{s.pos, s.constant()}
		case OpI32RemS, OpI32RemU, OpI64RemS, OpI64RemU:
			b.remainder()
		case OpLocalGet, OpLocalSet, OpLocalTee:
			s.within("local", s.imm, int(locals))
		case OpGlobalGet, OpGlobalSet:
			s.within("global", s.imm, int(b.globals))
		case OpTableSet:
			b.info.MutatesTables = true
		case OpMemoryCopy, OpMemoryFill, OpMemoryInit:
			b.segments = b.segments || s.op == OpMemoryInit
			if length := b.constantLength(); length != 0 && length>>bytesShift <= leafCost {
				b.add(uint64(length >> bytesShift))
				break
			}
			bulk = true
			b.bulk(editBulkBytes, math.MaxUint32)
			if length := b.constantLength(); b.meter && b.current != none && (length == 0 || length > pieceBytes) {
				// The instruction becomes a part of the edit.
				if index, typ, ok := b.pieces(s.op, s.imm); ok {
					e := &b.edits[len(b.edits)-1]
					e.end, e.piece, e.typ = s.pos, index, typ
				}
			}
		case OpMemoryGrow:
			bulk = true
			b.bulk(editBulkPages, b.memoryMax)
			if b.profile != nil && b.current != none {
				b.edits = append(b.edits, edit{at: s.pos, end: s.pos, kind: editGrew})
			}
		case OpTableCopy, OpTableFill, OpTableInit, OpTableGrow:
			bulk = true
			b.info.MutatesTables = true
			limit := uint32(math.MaxUint32)
			if s.op == OpTableGrow && int(s.imm) < len(b.tableMax) {
				limit = b.tableMax[s.imm]
			}
			b.bulk(editBulkElems, limit)
		case OpDataDrop, OpElemDrop:
			b.segments = b.segments || s.op == OpDataDrop
			b.info.DropsSegments = true
		}
	}
	if len(b.frames) > 0 {
		s.fail(s.pos, "%w: want the end of %d blocks", errEnd, len(b.frames))
	}
	if s.types > int64(len(b.types)) {
		s.fail(s.pos, "%w: type %d, there are %d", ErrIndex, s.types-1, len(b.types))
	}
	if !b.checked && (calls || b.total() > leafCost) {
		b.edits[0].kind = editEntry
	}
	if s.err == nil {
		s.err = b.inOrder()
	}
	return bulk, s.err
}

// inOrder returns an error if the edits overlap or are not in the order of the body: the output of
// emit would not be the guest's code.
func (b *bodyRewriter) inOrder() error {
	at := 0
	for i := range b.edits {
		e := &b.edits[i]
		if e.at < at || e.end < e.at {
			return fmt.Errorf("%w: edit %d of the body at %#x, of kind %d, covers %d to %d, the one before ends at %d",
				ErrInternal, i, b.scanner.base, e.kind, e.at, e.end, at)
		}
		at = e.end
	}
	return nil
}

// free reports whether an instruction costs nothing: it only marks a place.
func free(op int) bool {
	switch op {
	case OpNop, OpBlock, OpLoop, OpElse, OpEnd:
		return true
	}
	return false
}

// total is the cost of all instructions of the body, each once.
func (b *bodyRewriter) total() (n uint64) {
	for i := range b.edits {
		n += b.edits[i].cost
	}
	return n
}

// charge begins a charge after the instruction, which follows the charge from.
// If that is none, the code after it is dead.
func (b *bodyRewriter) charge(kind editKind, from int) {
	if b.current = from; from != none {
		b.current = len(b.edits)
		b.edits = append(b.edits, edit{at: b.scanner.pos, end: b.scanner.pos, kind: kind})
	}
}

// add adds to the charge that is current.
func (b *bodyRewriter) add(cost uint64) {
	if b.current != none {
		b.edits[b.current].cost += cost
	}
}

// bulk charges before the instruction for the number on the stack, but at most for limit.
func (b *bodyRewriter) bulk(kind editKind, limit uint32) {
	if b.current != none {
		b.edits = append(b.edits, edit{at: b.scanner.at, end: b.scanner.at, kind: kind, value: limit})
	}
}

// enter charges for the stack before a call, and exit gives it back after it.
func (b *bodyRewriter) enter(function int) {
	s := &b.scanner
	b.edits = append(b.edits, edit{at: s.at, end: s.at, kind: editEnter, value: b.plan.taken[function]})
}

func (b *bodyRewriter) exit(function int) {
	s := &b.scanner
	b.edits = append(b.edits, edit{at: s.pos, end: s.pos, kind: editLeave, value: b.plan.taken[function]})
}

// call records a call of any kind, which is charged for the stack or not.
func (b *bodyRewriter) call(function int, charged bool) {
	s := &b.scanner
	tails, stays := isTailCall(s.op), false
	if tails {
		stays = staysTailCall(s.op, b.callee(), s.imm < b.yield, b.plainTail)
	}
	b.save()
	if charged = charged && !stays; charged {
		b.enter(function)
	}
	if stays {
		b.tail()
	}
	e := edit{at: s.at, end: s.pos, kind: editCall, op: byte(s.op), value: s.imm, returns: tails && !stays, depth: uint32(len(b.frames) - 1)}
	if tails && !stays {
		e.op = plainCall(s.op)
	}
	if charged && e.returns {
		e.stack = b.plan.taken[function]
	}
	switch s.op {
	case OpCallRef, OpReturnCallRef:
		b.refers, e.byReference, e.op = true, true, indirectCall(e.op)
		b.edits = append(b.edits, e)
	case OpCall, OpReturnCall:
		if s.imm >= b.yield {
			e.value += b.shift
		}
		if e.returns {
			b.edits = append(b.edits, e)
		} else if s.imm >= b.yield {
			b.edits = append(b.edits, edit{at: s.immAt, end: s.pos, kind: editIndex, value: e.value})
		}
	default:
		if e.returns {
			b.edits = append(b.edits, e)
		}
	}
	if tails {
		b.leave()
		return
	}
	if charged {
		b.exit(function)
	}
	b.load()
}

// callee is the type of the function that the instruction calls.
func (b *bodyRewriter) callee() FuncType {
	if s := &b.scanner; s.op == OpCall || s.op == OpReturnCall {
		return b.types[b.functions[s.imm]]
	}
	return b.types[b.scanner.imm]
}

// save writes the count to the fuel global before the instruction, and load reads it from there
// after it, if the function counts itself.
func (b *bodyRewriter) save() {
	if s := &b.scanner; b.current != none && b.profile == nil {
		b.edits = append(b.edits, edit{at: s.at, end: s.at, kind: editSave})
	}
}

func (b *bodyRewriter) load() {
	if s := &b.scanner; b.current != none && b.profile == nil {
		b.edits = append(b.edits, edit{at: s.pos, end: s.pos, kind: editLoad})
	}
}

// saveFor saves the count for a branch that may leave the function.
func (b *bodyRewriter) saveFor(labels ...uint32) {
	if slices.Contains(labels, uint32(len(b.frames)-1)) {
		b.save()
	}
}

// catch records that a caught exception continues at a label.
func (b *bodyRewriter) catch(label uint32) {
	b.catches = true
	if top := len(b.frames) - 1; int64(label) <= int64(top) {
		f := &b.frames[top-int(label)]
		f.caught = true
		if f.loop != none {
			b.edits[f.loop].restore = true
		}
	}
}

// constantLength returns the length of a bulk operation if it is given by an i32.const before it, 0
// otherwise.
func (b *bodyRewriter) constantLength() uint32 {
	if b.constant.end == b.scanner.at {
		return b.constant.value
	}
	return 0
}

// open opens a block.
func (b *bodyRewriter) open() {
	b.frames = append(b.frames, frame{entry: b.current, outermost: math.MaxInt, loop: none})
}

// close closes a block. The code after it continues the code before it, or not, depending on how
// the block was left.
func (b *bodyRewriter) close() {
	depth := len(b.frames) - 1
	f := b.frames[depth]
	b.frames = b.frames[:depth]
	switch {
	case f.loop == none:
	case f.looped:
		b.checked = b.checked || f.checks
	case f.entry != none:
		// A loop that is never repeated is part of the code before it.
		head := &b.edits[f.loop]
		b.edits[f.entry].cost += head.cost
		head.kind, head.cost = editCharge, 0
	}
	if f.caught && f.loop == none && depth > 0 && b.restores() {
		b.edits = append(b.edits, edit{at: b.scanner.pos, end: b.scanner.pos, kind: editRestore})
	}
	switch {
	case depth == 0: // the end of the body
	case f.outermost < depth:
		parent := &b.frames[depth-1]
		parent.outermost = min(parent.outermost, f.outermost)
		b.charge(editCharge, f.entry)
	default:
		b.current = f.entry
	}
}

// branch records a branch to a label.
func (b *bodyRewriter) branch(label uint32) {
	top := len(b.frames) - 1
	if int64(label) > int64(top) {
		b.scanner.fail(b.scanner.at, "%w: label %d, there are %d", ErrIndex, label, len(b.frames))
		return
	}
	f := &b.frames[top]
	f.outermost = min(f.outermost, top-int(label))
	b.frames[top-int(label)].looped = true
}

// leave records that the function is left.
func (b *bodyRewriter) leave() {
	b.branch(uint32(len(b.frames) - 1))
	b.current = none
}

// within fails unless the index is less than n.
func (s *scanner) within(what string, index uint32, n int) {
	if int64(index) >= int64(n) {
		s.fail(s.at, "%w: %s %d, there are %d", ErrIndex, what, index, n)
	}
}

// size is a bound for the bytes that the edit adds.
func (e *edit) size() int {
	switch e.kind {
	case editCharge:
		return 4 + 5 + 5 + 10
	case editIndex, editUnfused:
		return 8
	default:
		return 96
	}
}

// emit appends the body with its edits to out. local is the index of the local that keeps the
// length of a bulk operation, entry that of the local for the stack at the function's entry.
func (b *bodyRewriter) emit(out, body []byte, local, entry uint64) []byte {
	out = b.appendLoad(out)
	at := 0
	for i := range b.edits {
		e := &b.edits[i]
		if e.restore && b.restores() {
			out = append(out, body[at:e.at]...)
			at = e.at
			out = b.appendRestore(out, entry)
		}
		if e.kind == editCharge && e.cost == 0 {
			continue
		}
		out = append(out, body[at:e.at]...)
		at = e.end
		switch e.kind {
		case editCharge:
			out = b.appendCharge(out, e.cost)
		case editEntry:
			out = b.appendCharge(b.appendYield(out), e.cost)
		case editLoop:
			// After the yield the loop begins anew, so that the path past it has one predecessor.
			// wazero's compiler keeps values in registers along such a path, and would reload all
			// of them after a point where two paths meet.
			out = append(b.appendCheck(out), OpBr, 1, OpEnd)
			out = b.appendCharge(out, e.cost)
		case editLoopParam:
			// The parameters are out of reach here, so this loop cannot begin
			// anew by itself.
			out = b.appendCharge(b.appendYield(out), e.cost)
		case editIndex:
			out = appendUvarint(out, uint64(e.value))
		case editUnfused:
			out = append(out, e.op, OpI32Eqz)
		case editRemainder:
			out = b.appendRemainder(out, e.op)
		case editEnter:
			// Nothing follows the yield, so that the path past it has one predecessor, see
			// editLoop.
			out = b.appendStack(out, OpI32Sub, e.value)
			out = appendUvarint(append(out, OpGlobalGet), uint64(b.stack))
			out = append(out, OpI32Const, 0, OpI32LtS, OpIf, BlockTypeEmpty, OpCall)
			out = append(appendUvarint(out, uint64(b.yield)), OpUnreachable, OpEnd)
		case editLeave:
			out = b.appendStack(out, OpI32Add, e.value)
		case editRestore:
			out = b.appendRestore(out, entry)
		case editReturn:
			out = appendUvarint(append(out, OpBr), uint64(e.value))
		case editTail:
			out = b.appendLeave(out, b.prev)
		case editSave:
			out = b.appendSave(out)
		case editLoad:
			out = b.appendLoad(out)
		case editCall:
			out = b.appendCall(out, e, body)
		case editGrew:
			out = appendUvarint(append(out, OpLocalGet), local)
			out = appendUvarint(append(out, OpCall), uint64(b.profile.grew))
		default:
			out = b.appendBulk(out, e, local)
			if e.piece != 0 {
				// It yields between two pieces, when there is no deficit.
				out = b.appendSave(out)
				out = appendUvarint(append(out, OpLocalGet), local)
				out = appendVarint(append(out, OpI32Const), pieceBytes)
				out = append(append(out, OpI32GtU, OpIf), e.typ...)
				out = appendUvarint(append(out, OpCall), uint64(e.piece))
				out = append(append(append(out, OpElse), body[e.at:e.end]...), OpEnd)
				out = b.appendLoad(out)
			}
		}
	}
	return append(out, body[at:]...)
}

// appendCharge takes a cost from the fuel.
func (b *bodyRewriter) appendCharge(out []byte, cost uint64) []byte {
	if cost == 0 {
		return out
	}
	out = append(b.appendFuel(out, OpLocalGet), OpI64Const)
	out = append(appendVarint(out, int64(cost)), OpI64Sub)
	return b.appendFuel(out, OpLocalSet)
}

// appendFuel reads the fuel or writes it: op is OpLocalGet or OpLocalSet.
func (b *bodyRewriter) appendFuel(out []byte, op byte) []byte {
	if b.counts {
		return appendUvarint(append(out, op), b.count)
	}
	return appendUvarint(append(out, op-OpLocalGet+OpGlobalGet), uint64(b.fuel))
}

// appendSave writes the count to the fuel global.
func (b *bodyRewriter) appendSave(out []byte) []byte {
	if !b.counts {
		return out
	}
	out = appendUvarint(append(out, OpLocalGet), b.count)
	return appendUvarint(append(out, OpGlobalSet), uint64(b.fuel))
}

// appendLoad reads the count from the fuel global.
func (b *bodyRewriter) appendLoad(out []byte) []byte {
	if !b.counts {
		return out
	}
	out = appendUvarint(append(out, OpGlobalGet), uint64(b.fuel))
	return appendUvarint(append(out, OpLocalSet), b.count)
}

// appendStack adds to the remaining stack, or subtracts from it.
func (b *bodyRewriter) appendStack(out []byte, op byte, bytes uint32) []byte {
	out = appendUvarint(append(out, OpGlobalGet), uint64(b.stack))
	out = appendVarint(append(out, OpI32Const), int64(bytes))
	out = append(out, op, OpGlobalSet)
	return appendUvarint(out, uint64(b.stack))
}

// appendCheck calls yield if the fuel is negative, and leaves the if open.
func (b *bodyRewriter) appendCheck(out []byte) []byte {
	out = b.appendFuel(out, OpLocalGet)
	out = b.appendSave(append(out, OpI64Const, 0, OpI64LtS, OpIf, BlockTypeEmpty))
	return b.appendLoad(appendUvarint(append(out, OpCall), uint64(b.yield)))
}

// appendYield yields as long as the fuel is negative.
func (b *bodyRewriter) appendYield(out []byte) []byte {
	out = append(out, OpLoop, BlockTypeEmpty)
	out = b.appendCheck(out)
	return append(out, OpBr, 1, OpEnd, OpEnd)
}

// appendBulk charges for the length on the stack, and yields if that leaves the
// fuel negative. The length is 32 bits wide and the fuel 64, so no length wraps
// the fuel around.
func (b *bodyRewriter) appendBulk(out []byte, e *edit, local uint64) []byte {
	length := func(op byte) {
		out = append(out, op)
		out = appendUvarint(out, local)
	}
	length(OpLocalSet)
	out = b.appendFuel(out, OpLocalGet)
	length(OpLocalGet)
	if e.value < math.MaxUint32 {
		limit := func() {
			out = append(out, OpI32Const)
			out = appendVarint(out, int64(int32(e.value)))
		}
		limit()
		length(OpLocalGet)
		limit()
		out = append(out, OpI32LtU, OpSelect)
	}
	out = append(out, OpI64ExtendI32U)
	switch e.kind {
	case editBulkBytes:
		out = append(out, OpI64Const, bytesShift, OpI64ShrU)
	case editBulkPages:
		out = append(out, OpI64Const, pageShift, OpI64Shl)
	}
	out = b.appendYield(b.appendFuel(append(out, OpI64Sub), OpLocalSet))
	length(OpLocalGet)
	return out
}
