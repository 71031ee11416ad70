package wasmbin

// The opcodes that the rewriter looks for or emits. All others it only has to
// step over.
const (
	opUnreachable        = 0x00
	opNop                = 0x01
	opBlock              = 0x02
	opLoop               = 0x03
	opIf                 = 0x04
	opElse               = 0x05
	opThrow              = 0x08
	opThrowRef           = 0x0a
	opEnd                = 0x0b
	opBr                 = 0x0c
	opBrIf               = 0x0d
	opBrTable            = 0x0e
	opReturn             = 0x0f
	opCall               = 0x10
	opCallIndirect       = 0x11
	opReturnCall         = 0x12
	opReturnCallIndirect = 0x13
	opCallRef            = 0x14
	opReturnCallRef      = 0x15
	opDrop               = 0x1a
	opSelect             = 0x1b
	opTryTable           = 0x1f
	opLocalGet           = 0x20
	opLocalSet           = 0x21
	opLocalTee           = 0x22
	opGlobalGet          = 0x23
	opGlobalSet          = 0x24
	opTableSet           = 0x26
	opI32Load            = 0x28
	opI64Load            = 0x29
	opI32Load8U          = 0x2d
	opI32Store           = 0x36
	opI64Store           = 0x37
	opI64Store32         = 0x3e
	opMemorySize         = 0x3f
	opMemoryGrow         = 0x40
	opI32Const           = 0x41
	opI64Const           = 0x42
	opI32Eqz             = 0x45
	opI32Eq              = 0x46
	opI32LtS             = 0x48
	opI32LtU             = 0x49
	opI32GtS             = 0x4a
	opI32GtU             = 0x4b
	opI32LeS             = 0x4c
	opI32LeU             = 0x4d
	opI32GeS             = 0x4e
	opI32GeU             = 0x4f
	opI64Eqz             = 0x50
	opI64Eq              = 0x51
	opI64Ne              = 0x52
	opI64LtS             = 0x53
	opI64LtU             = 0x54
	opI64GtS             = 0x55
	opI64GtU             = 0x56
	opI64LeS             = 0x57
	opI64LeU             = 0x58
	opI64GeS             = 0x59
	opI64GeU             = 0x5a
	opI32Add             = 0x6a
	opI32Sub             = 0x6b
	opI32Mul             = 0x6c
	opI32RemS            = 0x6f
	opI32RemU            = 0x70
	opI32And             = 0x71
	opI64Add             = 0x7c
	opI64Sub             = 0x7d
	opI64Mul             = 0x7e
	opI64RemS            = 0x81
	opI64RemU            = 0x82
	opI64And             = 0x83
	opI64Shl             = 0x86
	opI64ShrU            = 0x88
	opI32WrapI64         = 0xa7
	opI64ExtendI32U      = 0xad
	opI64Extend32S       = 0xc4
	opRefFunc            = 0xd2
	opBrOnNull           = 0xd5
	opBrOnNonNull        = 0xd6

	prefixMisc   = 0xfc
	prefixVec    = 0xfd
	prefixAtomic = 0xfe

	// Instructions behind a prefix are numbered prefix<<8 | suffix.
	opMemoryInit = prefixMisc<<8 | 0x08
	opDataDrop   = prefixMisc<<8 | 0x09
	opMemoryCopy = prefixMisc<<8 | 0x0a
	opMemoryFill = prefixMisc<<8 | 0x0b
	opTableInit  = prefixMisc<<8 | 0x0c
	opElemDrop   = prefixMisc<<8 | 0x0d
	opTableCopy  = prefixMisc<<8 | 0x0e
	opTableGrow  = prefixMisc<<8 | 0x0f
	opTableFill  = prefixMisc<<8 | 0x11

	blockTypeEmpty = 0x40
	blockEmpty     = -64 // The same, read as a block type is.
)

// imm is the layout of what follows an opcode.
type imm byte

const (
	immInvalid imm = iota // no such instruction in what wazero accepts
	immNone
	immBlock     // block type
	immIndex     // one index or label
	immTwo       // two indexes
	immTable     // vector of labels, and one more
	immTry       // block type, vector of catches
	immSelect    // vector of value types
	immHeap      // heap type
	immMemArg    // alignment, offset
	immMemLane   // alignment, offset, lane
	immMemIndex  // memory index in one byte
	immMemIndex2 // two of them
	immInitMem   // segment, memory index in one byte
	immI32
	immI64
	imm1 // that many bytes
	imm4
	imm8
	imm16
	immPrefix // an opcode of its own
)

// immRange gives the opcodes from first to last the layout.
type immRange struct {
	first, last byte
	imm         imm
}

// layout is the table of the opcodes in the ranges.
func layout(ranges ...immRange) (t [256]imm) {
	for _, r := range ranges {
		for op := int(r.first); op <= int(r.last); op++ {
			t[op] = r.imm
		}
	}
	return t
}

// opcodes is the layout of the plain instructions: MVP, sign extension,
// multi-value, reference types, tail calls, exceptions with exnref, typed
// function references. The legacy exception instructions are missing, as in
// wazero.
var opcodes = layout(
	immRange{0x00, 0x01, immNone},     // unreachable, nop
	immRange{0x02, 0x04, immBlock},    // block, loop, if
	immRange{0x05, 0x05, immNone},     // else
	immRange{0x08, 0x08, immIndex},    // throw
	immRange{0x0a, 0x0b, immNone},     // throw_ref, end
	immRange{0x0c, 0x0d, immIndex},    // br, br_if
	immRange{0x0e, 0x0e, immTable},    // br_table
	immRange{0x0f, 0x0f, immNone},     // return
	immRange{0x10, 0x10, immIndex},    // call
	immRange{0x11, 0x11, immTwo},      // call_indirect
	immRange{0x12, 0x12, immIndex},    // return_call
	immRange{0x13, 0x13, immTwo},      // return_call_indirect
	immRange{0x14, 0x15, immIndex},    // call_ref, return_call_ref
	immRange{0x1a, 0x1b, immNone},     // drop, select
	immRange{0x1c, 0x1c, immSelect},   // select with types
	immRange{0x1f, 0x1f, immTry},      // try_table
	immRange{0x20, 0x26, immIndex},    // locals, globals, table.get, table.set
	immRange{0x28, 0x3e, immMemArg},   // loads and stores
	immRange{0x3f, 0x40, immMemIndex}, // memory.size, memory.grow
	immRange{0x41, 0x41, immI32},      // i32.const
	immRange{0x42, 0x42, immI64},      // i64.const
	immRange{0x43, 0x43, imm4},        // f32.const
	immRange{0x44, 0x44, imm8},        // f64.const
	immRange{0x45, 0xc4, immNone},     // numeric
	immRange{0xd0, 0xd0, immHeap},     // ref.null
	immRange{0xd1, 0xd1, immNone},     // ref.is_null
	immRange{0xd2, 0xd2, immIndex},    // ref.func
	immRange{0xd4, 0xd4, immNone},     // ref.as_non_null
	immRange{0xd5, 0xd6, immIndex},    // br_on_null, br_on_non_null
	immRange{0xfc, 0xfe, immPrefix},   // misc, vector, atomic
)

// miscOpcodes follow 0xfc: saturating conversions and bulk operations.
var miscOpcodes = layout(
	immRange{0x00, 0x07, immNone},      // trunc_sat
	immRange{0x08, 0x08, immInitMem},   // memory.init
	immRange{0x09, 0x09, immIndex},     // data.drop
	immRange{0x0a, 0x0a, immMemIndex2}, // memory.copy
	immRange{0x0b, 0x0b, immMemIndex},  // memory.fill
	immRange{0x0c, 0x0c, immTwo},       // table.init
	immRange{0x0d, 0x0d, immIndex},     // elem.drop
	immRange{0x0e, 0x0e, immTwo},       // table.copy
	immRange{0x0f, 0x11, immIndex},     // table.grow, table.size, table.fill
)

// vecOpcodes follow 0xfd. wazero has no relaxed SIMD, which begins at 0x100,
// and reads the opcode as one byte. Holes are filled here: wazero rejects them
// when it validates.
var vecOpcodes = layout(
	immRange{0x00, 0x0b, immMemArg},  // v128.load ... v128.store
	immRange{0x0c, 0x0d, imm16},      // v128.const, i8x16.shuffle
	immRange{0x0e, 0x14, immNone},    // swizzle, splat
	immRange{0x15, 0x22, imm1},       // extract_lane, replace_lane
	immRange{0x23, 0x53, immNone},    // comparisons, bitwise
	immRange{0x54, 0x5b, immMemLane}, // v128.load8_lane ... v128.store64_lane
	immRange{0x5c, 0x5d, immMemArg},  // v128.load32_zero, v128.load64_zero
	immRange{0x5e, 0xff, immNone},    // arithmetic, conversions
)

// atomicOpcodes follow 0xfe.
var atomicOpcodes = layout(
	immRange{0x00, 0x02, immMemArg}, // notify, wait32, wait64
	immRange{0x03, 0x03, imm1},      // fence
	immRange{0x10, 0x4e, immMemArg}, // loads, stores, read-modify-write
)
