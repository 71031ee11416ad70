package wasmbin

// wazero 1.12 has three mistakes in calls that newer features of WebAssembly brought.
//
// It takes a reference to a function of one type for one of any other if neither can be null:
// isRefSubtypeOf compares the kinds, which are the same. call_ref checks no type when it runs, so a
// guest could have a number called as an address, or read one. So a call_ref becomes a table.set
// and a call_indirect, which checks the type. Then the assumed type of a reference, and whether it
// may be null, does not matter: guests cannot make references of numbers.
//
// On amd64 an indirect tail call with seven integers overwrites the last one with the address of
// the callee. On arm64 the address of the callee may lie in a register that is restored before the
// jump. And wherever parameters or results are passed on the stack a tail call is an ordinary call
// on both, so that a loop of them takes stack without end. So a tail call that the compiler does
// not compile as one, or compiles wrongly, becomes a call, which is charged for the stack, and a
// return.

// The number of parameters and results that wazero passes in registers, the lesser number of amd64
// and arm64. It passes two internal integers before the parameters.
const (
	registerIntegers = 8
	registerFloats   = 8
	ownParameters    = 2
)

// inRegisters reports whether values are passed in so many registers for integers, and in those
// for floats and vectors.
func inRegisters(list []ValType, integers int) bool {
	floats := registerFloats
	for _, t := range list {
		if t == F32 || t == F64 || t == V128 {
			floats--
		} else {
			integers--
		}
	}
	return integers >= 0 && floats >= 0
}

// isTailCall reports whether an instruction is a tail call.
func isTailCall(op int) bool {
	return op == OpReturnCall || op == OpReturnCallIndirect || op == OpReturnCallRef
}

// staysTailCall reports whether a tail call remains one. Calls of imports need no stack that has to
// be bounded.
func staysTailCall(op int, t FuncType, imported, plainIndirect bool) bool {
	if op == OpReturnCall && imported || op != OpReturnCall && plainIndirect {
		return false
	}
	return inRegisters(t.Params, registerIntegers-ownParameters) && inRegisters(t.Results, registerIntegers)
}

// plainCall is the call that returns of a tail call.
func plainCall(op int) byte {
	switch op {
	case OpReturnCall:
		return OpCall
	case OpReturnCallIndirect:
		return OpCallIndirect
	}
	return OpCallRef
}

// indirectCall is the call by table of a call by reference.
func indirectCall(op byte) byte {
	if op == OpCallRef {
		return OpCallIndirect
	}
	return OpReturnCallIndirect
}

// appendCall appends the replacement of a call of body: a call by reference, whose operand is on
// top, goes through the table, and one that was in tail position is followed by a return.
func (b *bodyRewriter) appendCall(out []byte, e *edit, body []byte) []byte {
	switch {
	case e.byReference:
		out = append(out, OpRefAsNonNull, OpLocalSet) // It traps as the call would.
		out = append(appendUvarint(out, b.reference), OpI32Const, 0, OpLocalGet)
		out = append(appendUvarint(out, b.reference), OpTableSet)
		out = append(appendUvarint(out, uint64(b.table)), OpI32Const, 0, e.op)
		out = appendUvarint(appendUvarint(out, uint64(e.value)), uint64(b.table))
	case e.op == OpCall:
		out = appendUvarint(append(out, OpCall), uint64(e.value))
	default:
		out = append(append(out, e.op), body[e.at+1:e.end]...)
	}
	if !e.returns {
		return out
	}
	if e.stack > 0 {
		out = b.appendStack(out, OpI32Add, e.stack)
	}
	if b.profile != nil {
		return appendUvarint(append(out, OpBr), uint64(e.depth))
	}
	return append(out, OpReturn)
}
