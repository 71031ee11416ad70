package wasmbin

import (
	"iter"
	"math"
)

// instruction is the instruction that scanner has read.
type instruction struct {
	op    int      // the opcode, or prefix<<8 | opcode
	at    int      // where it begins in the body
	imm   uint32   // the first index of its immediates
	immAt int      // where that index begins
	block int64    // the block type: a type index, or negative
	to    []uint32 // the labels of br_table and of the catches of try_table; valid until the next instruction
}

// scanner steps through the instructions of a body or of a constant expression.
type scanner struct {
	reader
	instruction
	labels []uint32
}

// next reads one instruction. It returns false at the end of the bytes and on
// an error.
func (s *scanner) next() bool {
	if s.pos >= len(s.buf) {
		return false
	}
	s.at = s.pos
	op := s.buf[s.pos]
	s.op = int(op)
	s.pos++
	s.immAt = s.pos
	kind := opcodes[op]
	if kind == immPrefix {
		kind = s.prefixed(op)
	}
	switch kind {
	case immNone:
	case immIndex:
		if s.pos < len(s.buf) && s.buf[s.pos] < 0x80 { // nearly all
			s.imm = uint32(s.buf[s.pos])
			s.pos++
		} else {
			s.imm = s.u32("an index")
		}
	case immI32:
		s.leb(5)
	case immI64:
		s.leb(10)
	case immMemArg:
		s.leb(5)
		s.leb(5)
	case immMemLane:
		s.leb(5)
		s.leb(5)
		s.byte("a lane")
	case immBlock:
		s.blockType()
	case immTwo:
		s.imm = s.u32("an index")
		s.u32("an index")
	case immTable:
		s.labels = s.labels[:0]
		for n := s.count("labels", 1, math.MaxInt32); n > 0 && s.err == nil; n-- {
			s.labels = append(s.labels, s.u32("a label"))
		}
		s.to = append(s.labels, s.u32("the default label"))
	case immTry:
		s.tryTable()
	case immSelect:
		for n := s.count("types", 1, math.MaxInt32); n > 0 && s.err == nil; n-- {
			s.valType("the type of select")
		}
	case immHeap:
		s.s33("a heap type")
	case immMemIndex:
		s.memIndex()
	case immMemIndex2:
		s.memIndex()
		s.memIndex()
	case immInitMem:
		s.imm = s.u32("a segment")
		s.memIndex()
	case imm1:
		s.bytes(1, "an immediate")
	case imm4:
		s.bytes(4, "an immediate")
	case imm8:
		s.bytes(8, "an immediate")
	case imm16:
		s.bytes(16, "an immediate")
	default:
		if f, ok := featureOf(s.op); ok && s.err == nil {
			s.fail(s.at, "instruction %#x: %w", s.op, f.refuse())
		}
		s.fail(s.at, "unknown instruction %#x", s.op)
	}
	return s.err == nil
}

// constant returns the number if the instruction is an i32.const, 0 otherwise.
func (s *scanner) constant() uint32 {
	if s.op != OpI32Const {
		return 0
	}
	v, _ := varint(s.buf[s.immAt:], 5)
	return uint32(v)
}

// prefixed reads the opcode after a prefix, exactly as wazero does: if we read other instructions
// than wazero from the same bytes, a guest could hide a loop from the meter. wazero reads vector
// and atomic opcodes as one byte. The second byte that LEB128 demands of a vector opcode from 0x80
// is always 0x01, which wazero takes for a nop.
func (s *scanner) prefixed(prefix byte) imm {
	var op byte
	var table *[256]imm
	switch prefix {
	case prefixMisc:
		v := s.u32("an opcode")
		if v > 0xff {
			s.fail(s.at, "unknown instruction 0xfc %#x", v)
		}
		op, table = byte(v), &miscOpcodes
	case prefixVec:
		op, table = s.byte("an opcode"), &vecOpcodes
		if op >= 0x80 {
			switch b := s.byte("the second byte of an opcode"); {
			case b == 0x02 && s.err == nil:
				s.fail(s.at, "instruction 0xfd %#x %#x: %w", op, b, relaxedSIMD.refuse())
			case b != 0x01:
				s.fail(s.at, "unknown instruction 0xfd %#x %#x", op, b)
			}
		}
	default:
		op, table = s.byte("an opcode"), &atomicOpcodes
	}
	s.op = int(prefix)<<8 | int(op)
	s.immAt = s.pos
	return table[op]
}

// leb steps over an integer of at most max bytes, whose value does not matter
// here.
func (s *scanner) leb(max int) {
	for i := s.pos; i < len(s.buf) && i < s.pos+max; i++ {
		if s.buf[i] < 0x80 {
			s.pos = i + 1
			return
		}
	}
	s.fail(s.pos, "want an integer of at most %d bytes", max)
}

func (s *scanner) memIndex() {
	at := s.pos
	if i := s.byte("a memory index"); i != 0 && s.err == nil {
		s.fail(at, "%w", multiMemory.refuse())
	}
}

func (s *scanner) blockType() {
	s.block = s.s33("a block type")
	if s.block == -29 || s.block == -28 { // refNull, refNon as signed seven bits
		s.s33("a heap type")
	}
}

func (s *scanner) tryTable() {
	s.blockType()
	s.labels = s.labels[:0]
	for n := s.count("catches", 2, math.MaxInt32); n > 0 && s.err == nil; n-- {
		at := s.pos
		switch kind := s.byte("the kind of a catch"); kind {
		case 0, 1: // catch, catch_ref
			s.u32("a tag")
		case 2, 3: // catch_all, catch_all_ref
		default:
			s.fail(at, "want the kind of a catch from 0 to 3, have %d", kind)
		}
		s.labels = append(s.labels, s.u32("a label"))
	}
	s.to = s.labels
}

// Instruction is an instruction of a body, for a [Pass].
type Instruction struct {
	Op      int      // the opcode, or prefix<<8 | opcode
	At, End int      // where it begins and ends in the body
	Index   uint32   // the local, global, function or label that it names first
	IndexAt int      // where that index begins in the body
	Block   int64    // the type of a block: the index of a type, or negative, as BlockEmpty is
	Labels  []uint32 // of br_table, the default last
}

// Instructions returns the instructions of a body in their order, each of which is valid until the
// next one. It ends before the end of the body at malformed code.
func Instructions(body []byte) iter.Seq[*Instruction] {
	return func(yield func(*Instruction) bool) {
		var i Instruction
		for s := (scanner{reader: reader{buf: body}}); s.next(); {
			i = Instruction{s.op, s.at, s.pos, s.imm, s.immAt, s.block, s.to}
			if !yield(&i) {
				return
			}
		}
	}
}

// Operands returns the number of operands that a plain instruction takes and leaves; some that
// leave as many as they take count as taking one. ok is false for an instruction that branches,
// calls, opens or closes a block or has a prefix.
func Operands(op int) (takes, leaves int, ok bool) {
	if op >= len(takenOperands) || takenOperands[op] < 0 {
		return 0, 0, false
	}
	return int(takenOperands[op]), int(takenOperands[op]) + int(heights[op]), true
}

// takenOperands are the operands that plain instructions take, -1 for the others.
var takenOperands = func() (t [256]int8) {
	for op := range t {
		switch {
		case op != OpNop && op < OpDrop || op > OpSelect && op < OpLocalGet || op > OpI64Extend32S:
			t[op] = -1
		case op == OpNop:
		case op == OpDrop, op == OpLocalSet, op == OpGlobalSet:
			t[op] = 1
		case op == OpTableSet:
			t[op] = 2
		case op == OpSelect:
			t[op] = 3
		case heights[op] == 1:
			t[op] = 0
		case heights[op] == 0:
			t[op] = 1
		default:
			t[op] = 2
		}
	}
	return t
}()
