package wasmbin

// The opcodes that the rewriter looks for or emits. All others it only has to
// step over.
const (
	OpUnreachable        = 0x00
	OpNop                = 0x01
	OpBlock              = 0x02
	OpLoop               = 0x03
	OpIf                 = 0x04
	OpElse               = 0x05
	OpThrow              = 0x08
	OpThrowRef           = 0x0a
	OpEnd                = 0x0b
	OpBr                 = 0x0c
	OpBrIf               = 0x0d
	OpBrTable            = 0x0e
	OpReturn             = 0x0f
	OpCall               = 0x10
	OpCallIndirect       = 0x11
	OpReturnCall         = 0x12
	OpReturnCallIndirect = 0x13
	OpCallRef            = 0x14
	OpReturnCallRef      = 0x15
	OpDrop               = 0x1a
	OpSelect             = 0x1b
	OpTryTable           = 0x1f
	OpLocalGet           = 0x20
	OpLocalSet           = 0x21
	OpLocalTee           = 0x22
	OpGlobalGet          = 0x23
	OpGlobalSet          = 0x24
	OpTableGet           = 0x25
	OpTableSet           = 0x26
	OpI32Load            = 0x28
	OpI64Load            = 0x29
	OpI32Load8U          = 0x2d
	OpI64Load8S          = 0x30
	OpI32Store           = 0x36
	OpI64Store           = 0x37
	OpI64Store32         = 0x3e
	OpMemorySize         = 0x3f
	OpMemoryGrow         = 0x40
	OpI32Const           = 0x41
	OpI64Const           = 0x42
	OpI32Eqz             = 0x45
	OpI32Eq              = 0x46
	OpI32LtS             = 0x48
	OpI32LtU             = 0x49
	OpI32GtS             = 0x4a
	OpI32GtU             = 0x4b
	OpI32LeS             = 0x4c
	OpI32LeU             = 0x4d
	OpI32GeS             = 0x4e
	OpI32GeU             = 0x4f
	OpI64Eqz             = 0x50
	OpI64Eq              = 0x51
	OpI64Ne              = 0x52
	OpI64LtS             = 0x53
	OpI64LtU             = 0x54
	OpI64GtS             = 0x55
	OpI64GtU             = 0x56
	OpI64LeS             = 0x57
	OpI64LeU             = 0x58
	OpI64GeS             = 0x59
	OpI64GeU             = 0x5a
	OpI32Add             = 0x6a
	OpI32Sub             = 0x6b
	OpI32Mul             = 0x6c
	OpI32RemS            = 0x6f
	OpI32RemU            = 0x70
	OpI32And             = 0x71
	OpI64Add             = 0x7c
	OpI64Sub             = 0x7d
	OpI64Mul             = 0x7e
	OpI64RemS            = 0x81
	OpI64RemU            = 0x82
	OpI64And             = 0x83
	OpI64Shl             = 0x86
	OpI64ShrU            = 0x88
	OpI32WrapI64         = 0xa7
	OpI64ExtendI32U      = 0xad
	OpI64Extend32S       = 0xc4
	OpRefFunc            = 0xd2
	OpRefAsNonNull       = 0xd4
	OpBrOnNull           = 0xd5
	OpBrOnNonNull        = 0xd6

	prefixMisc   = 0xfc
	prefixVec    = 0xfd
	prefixAtomic = 0xfe

	// Instructions after a prefix are numbered prefix<<8 | suffix.
	OpMemoryInit = prefixMisc<<8 | 0x08
	OpDataDrop   = prefixMisc<<8 | 0x09
	OpMemoryCopy = prefixMisc<<8 | 0x0a
	OpMemoryFill = prefixMisc<<8 | 0x0b
	OpTableInit  = prefixMisc<<8 | 0x0c
	OpElemDrop   = prefixMisc<<8 | 0x0d
	OpTableCopy  = prefixMisc<<8 | 0x0e
	OpTableGrow  = prefixMisc<<8 | 0x0f
	OpTableFill  = prefixMisc<<8 | 0x11

	BlockTypeEmpty = 0x40
	BlockEmpty     = -64 // The same, read as a block type is.
)

// imm is the layout of the bytes after an opcode.
type imm byte

const (
	immInvalid imm = iota // no such instruction in code that wazero accepts
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
	immPrefix // a separate opcode
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
