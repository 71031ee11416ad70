#include "go_asm.h"
#include "textflag.h"

// The Go compiler's code for WebAssembly goes through a table of jumps for each
// block and keeps its variables in memory. Here they are locals, and each turn of
// a loop takes eight bytes whatever is in them. An admission verdict on a Pod of
// 4.3 KB takes 0.57 of the time and half of the fuel (go run -C internal/bench . -only
// admission). These three functions carry all of it; scan_native.go has the same in Go,
// and TestReadsTheSameInWebAssembly compares both.
//
// In all functions:
//
//	R1 is the address of the next byte
//	R2 is the end of the document
//	R3 is R2-8, the last address where eight bytes begin
//	R4 is the eight bytes that are looked at

#define LOWS $0x0101010101010101
#define HIGHS $0x8080808080808080
#define LOW7 $0x7f7f7f7f7f7f7f7f
#define QUOTES $0x2222222222222222
#define BACKSLASHES $0x5c5c5c5c5c5c5c5c
#define SPACES $0x2020202020202020
#define OPENING $0x7b7b7b7b7b7b7b7b
#define CLOSING $0x7d7d7d7d7d7d7d7d

// LOAD reads the eight bytes at R1 to R4, with 0 for those behind the end, and
// leaves for none if there is no byte. The last bytes are read together with those
// before them, which may lie before the document: memory begins long before it.
#define LOAD(none) \
	Get R1; Get R3; I64LeU; \
	If; \
		Get R1; I32WrapI64; I64Load $0; Set R4; \
	Else; \
		Get R1; Get R2; I64GeU; BrIf none; \
		Get R3; I32WrapI64; I64Load $0; \
		Get R1; Get R3; I64Sub; I64Const $3; I64Shl; I64ShrU; Set R4; \
	End

// ZEROS marks the bytes of the word r that are 0, as zeroBytes does: the lowest
// mark is right.
#define ZEROS(r) \
	Get r; I64Const LOWS; I64Sub; \
	Get r; I64Const $-1; I64Xor; I64And; \
	I64Const HIGHS; I64And

// DIFFERENT takes the word r, whose bytes are below 0x80, and marks those that are
// not the character. All marks are right; the lower bits of a byte are anything.
#define DIFFERENT(r, char) \
	Get r; I64Const char; I64Xor; I64Const LOW7; I64Add

// STRING moves R1 from behind the quote that opens a string behind the one that
// closes it, and leaves for none if there is none. It uses R5 and R6. done and
// bytes are labels of its own.
#define STRING(done, bytes, none) \
done: \
	Block; \
bytes: \
		Loop; \
			LOAD(none); \
			Get R4; I64Const QUOTES; I64Xor; Set R5; \
			Get R4; I64Const BACKSLASHES; I64Xor; Set R6; \
			ZEROS(R5); \
			ZEROS(R6); \
			I64Or; Tee R5; \
			I64Eqz; \
			If; \
				Get R1; I64Const $8; I64Add; Set R1; \
				Br bytes; \
			End; \
			/* R5 is the number of bits before the first mark's byte. */ \
			Get R5; I64Ctz; I64Const $56; I64And; Set R5; \
			Get R1; Get R5; I64Const $3; I64ShrU; I64Add; Set R1; \
			Get R4; Get R5; I64ShrU; I64Const $255; I64And; I64Const $'"'; I64Eq; \
			If; \
				Get R1; I64Const $1; I64Add; Set R1; \
				Br done; \
			End; \
			Get R1; I64Const $2; I64Add; Set R1; \
			Br bytes; \
		End; \
	End

// BRACKETS looks at the next eight bytes and moves R1 behind them, or leaves for
// none if there are none. R7 becomes where they begin; R9 has a mark for each of
// them that does not open an array or object, and R10 for each that does not close
// one, for which all are taken that are in a string. It uses R8.
//
// It does not look for the ends of strings: whether a byte is in one is a matter of
// the quotes before it. R6 is 1 in a string, and 0 before the first bytes.
#define BRACKETS(none) \
	LOAD(none); \
	Get R1; Tee R7; I64Const $8; I64Add; Set R1; \
	Get R4; I64Const LOW7; I64And; Set R8; \
	DIFFERENT(R8, BACKSLASHES); Get R4; I64Or; I64Const HIGHS; I64And; Tee R9; \
	I64Const HIGHS; I64Ne; \
	If; \
		/* What is before the backslash is looked at now. In a string, */ \
		/* the byte behind it is passed over, too.                     */ \
		Get R9; I64Const HIGHS; I64Xor; I64Ctz; I64Const $56; I64And; Set R9; \
		Get R4; I64Const $1; Get R9; I64Shl; I64Const $1; I64Sub; Tee R10; I64And; Set R4; \
		Get R8; Get R10; I64And; Set R8; \
		Get R7; Get R9; I64Const $3; I64ShrU; I64Add; I64Const $1; I64Add; \
		DIFFERENT(R8, QUOTES); Get R4; I64Or; I64Const HIGHS; I64And; I64Popcnt; \
		Get R6; I64Add; I64Const $1; I64And; \
		I64Add; Set R1; \
	End; \
	/* R10 has a mark for each byte that is in a string, by the sum of the */ \
	/* quotes up to it, or is above 0x7f.                                  */ \
	DIFFERENT(R8, QUOTES); Get R4; I64Or; I64Const HIGHS; I64And; I64Const HIGHS; I64Xor; I64Const $7; I64ShrU; \
	Get R6; I64Add; I64Const LOWS; I64Mul; Tee R9; \
	I64Const $56; I64ShrU; I64Const $1; I64And; Set R6; \
	Get R9; I64Const $7; I64Shl; Get R4; I64Or; Set R10; \
	Get R8; I64Const SPACES; I64Or; Set R8; \
	DIFFERENT(R8, OPENING); Get R10; I64Or; I64Const HIGHS; I64And; Set R9; \
	DIFFERENT(R8, CLOSING); Get R10; I64Or; I64Const HIGHS; I64And; Set R10

// FIRST takes the first of the marks in R11 away and leaves it in R8.
#define FIRST \
	Get R11; I64Const $0; Get R11; I64Sub; I64And; Set R8; \
	Get R11; Get R8; I64Xor; Set R11

// MARKED is the address of the byte that R8 marks.
#define MARKED \
	Get R7; Get R8; I64Ctz; I64Const $3; I64ShrU; I64Add

// NESTED moves R1 from the bracket that opens an array or object behind the one
// that closes it, and leaves for none if there is none. It uses R5 to R11. done,
// bytes and brackets are labels of its own.
//
// R5 is the depth less 8.
#define NESTED(done, bytes, brackets, none) \
	I64Const $-8; Set R5; \
	I64Const $0; Set R6; \
done: \
	Block; \
bytes: \
		Loop; \
			BRACKETS(none); \
			/* R11 is the depth without what opens here. */ \
			Get R5; Get R10; I64Popcnt; I64Add; Tee R11; \
			I64Const $0; I64LeS; \
			If; \
				/* It may end here: the brackets one by one. */ \
				Get R9; Get R10; I64And; I64Const HIGHS; I64Xor; Set R11; \
brackets: \
				Loop; \
					Get R11; I64Eqz; BrIf bytes; \
					FIRST; \
					Get R10; Get R8; I64And; I64Eqz; \
					If; \
						Get R5; I64Const $1; I64Sub; Tee R5; \
						I64Const $-8; I64Eq; \
						If; \
							MARKED; I64Const $1; I64Add; Set R1; \
							Br done; \
						End; \
						Br brackets; \
					End; \
					Get R5; I64Const $1; I64Add; Set R5; \
					Br brackets; \
				End; \
			End; \
			Get R11; Get R9; I64Popcnt; I64Sub; Set R5; \
			Br bytes; \
		End; \
	End

// PLAIN moves R1 to the first byte from there on that a plain string does not have, as
// special marks them, and leaves for none if there is none. It uses R5 and R6; bytes is
// a label of its own.
#define PLAIN(bytes, none) \
bytes: \
	Loop; \
		LOAD(none); \
		Get R4; I64Const QUOTES; I64Xor; Set R5; \
		Get R4; I64Const BACKSLASHES; I64Xor; Set R6; \
		ZEROS(R5); \
		ZEROS(R6); \
		I64Or; \
		Get R4; I64Const SPACES; I64Sub; Get R4; I64Const $-1; I64Xor; I64And; Get R4; I64Or; I64Const HIGHS; I64And; \
		I64Or; Tee R5; \
		I64Eqz; \
		If; \
			Get R1; I64Const $8; I64Add; Set R1; \
			Br bytes; \
		End; \
	End; \
	Get R1; Get R5; I64Ctz; I64Const $3; I64ShrU; I64Add; Set R1

// NAME moves R1 from the beginning of a member behind its colon, and leaves for any
// if there is anything else than a name that need not be decoded and a colon. The
// name begins at R14 and ends at R15. It uses R5 and R6; plain is a label of its own.
#define NAME(plain, any) \
	LOAD(any); \
	Get R4; I64Const $255; I64And; I64Const $'"'; I64Ne; BrIf any; \
	Get R1; I64Const $1; I64Add; Tee R1; Set R14; \
	PLAIN(plain, any); \
	Get R1; Set R15; \
	LOAD(any); \
	Get R4; I64Const $0xffff; I64And; I64Const $0x3a22; I64Ne; BrIf any; \
	Get R1; I64Const $2; I64Add; Set R1

// FIELD loads a field of the walk at R0.
#define FIELD(offset) \
	Get R0; I32WrapI64; I64Load offset

// KNOWN moves R1 from an array or object behind its end, if the index of the walk at
// R0 has it. Otherwise it leaves R1. It uses R6 to R9; passed and unknown are labels
// of its own.
//
// R6 is where the index goes on, R7 where it ends, and R9 where the value begins in
// the document.
#define KNOWN(passed, unknown) \
unknown: \
	Block; \
		FIELD($walk_nested); Tee R8; \
		FIELD($walk_passed); I64Const $3; I64Shl; I64Add; Set R6; \
		Get R8; FIELD($(walk_nested+8)); I64Const $3; I64Shl; I64Add; Set R7; \
		Get R1; FIELD($walk_doc); I64Sub; Set R9; \
passed: \
		Loop; \
			Get R6; Get R7; I64GeU; BrIf unknown; \
			Get R6; I32WrapI64; I64Load32U $0; Get R9; I64LtU; \
			If; \
				Get R6; I64Const $8; I64Add; Set R6; \
				Br passed; \
			End; \
		End; \
		Get R0; I32WrapI64; Get R6; Get R8; I64Sub; I64Const $3; I64ShrU; I64Store $walk_passed; \
		Get R6; I32WrapI64; I64Load32U $0; Get R9; I64Ne; BrIf unknown; \
		Get R6; I32WrapI64; I64Load32U $4; Get R1; Get R9; I64Sub; I64Add; Tee R6; \
		Get R2; I64GtU; BrIf unknown; \
		/* It is an entry of the value only if it ends with its bracket. */ \
		Get R6; I64Const $1; I64Sub; Tee R7; Get R1; I64LeU; BrIf unknown; \
		Get R7; I32WrapI64; I64Load8U $0; \
		Get R1; I32WrapI64; I64Load8U $0; I64Const $2; I64Add; \
		I64Ne; BrIf unknown; \
		Get R6; Set R1; \
	End

// VALUE moves R1 from the beginning of a value behind it, and leaves for any if it is
// neither a string, an array, an object, a word nor a whole number, or does not end.
// The value begins at R13. It uses R4 to R12; all other arguments are labels of its
// own.
#define VALUE(quoted, quotedBytes, passed, unknown, nested, nestedBytes, brackets, digits, any) \
	LOAD(any); \
	Get R1; Set R13; \
	Get R4; I64Const $255; I64And; Tee R5; \
	I64Const $'"'; I64Eq; \
	If; \
		Get R1; I64Const $1; I64Add; Set R1; \
		STRING(quoted, quotedBytes, any); \
	Else; \
		Get R5; I64Const $0x20; I64Or; I64Const $'{'; I64Eq; \
		If; \
			KNOWN(passed, unknown); \
			Get R1; Get R13; I64Eq; \
			If; \
				NESTED(nested, nestedBytes, brackets, any); \
			End; \
		Else; \
			/* The number of letters of true, null and false; 0 of a number. */ \
			Get R4; I64Const $0xffffffff; I64And; I64Const $0x65757274; I64Eq; \
			Get R4; I64Const $0xffffffff; I64And; I64Const $0x6c6c756e; I64Eq; \
			I32Or; I64ExtendI32U; I64Const $2; I64Shl; \
			Get R4; I64Const $0xffffffffff; I64And; I64Const $0x65736c6166; I64Eq; \
			I64ExtendI32U; I64Const $5; I64Mul; \
			I64Or; Tee R6; Get R1; I64Add; Set R1; \
			Get R6; I64Eqz; \
			If; \
				Get R5; I64Const $'0'; I64Sub; I64Const $9; I64GtU; BrIf any; \
				Get R5; Set R6; \
digits: \
				Loop; \
					Get R1; I64Const $1; I64Add; Set R1; \
					LOAD(any); \
					Get R4; I64Const $255; I64And; Tee R5; \
					I64Const $'0'; I64Sub; I64Const $9; I64LeU; BrIf digits; \
				End; \
				/* 0 is followed by no other digit, and no number by what */ \
				/* makes it a fraction or gives it an exponent.           */ \
				Get R6; I64Const $'0'; I64Eq; Get R1; Get R13; I64Sub; I64Const $1; I64GtU; I32And; BrIf any; \
				Get R5; I64Const $','; I64Eq; \
				Get R5; I64Const $0x20; I64Or; I64Const $'}'; I64Eq; \
				I32Or; I32Eqz; BrIf any; \
			End; \
		End; \
	End

// NEXT moves R1 to the beginning of the next member or element of the walk at R0, to
// white space before it or to anything else, and leaves for any if there is none. At
// the end of the walk it notes that and leaves for ended. It sets R2 and R3.
#define NEXT(ended, any) \
	FIELD($walk_doc); Tee R4; \
	FIELD($(walk_doc+8)); I64Add; Tee R2; \
	I64Const $8; I64Sub; Set R3; \
	Get R4; FIELD($walk_end); I64Add; Set R1; \
	Get R0; I32WrapI64; I64Load8U $walk_state; Tee R4; \
	I64Const $const_before; I64Ne; \
	If; \
		Get R4; I64Const $const_inside; I64Ne; BrIf any; \
		Get R1; Get R2; I64GeU; BrIf any; \
		Get R1; I32WrapI64; I64Load8U $0; Tee R4; \
		I64Const $','; I64Ne; \
		If; \
			/* The end, if nothing follows. */ \
			Get R4; Get R0; I32WrapI64; I64Load8U $walk_closing; I64Ne; BrIf any; \
			Get R1; I64Const $1; I64Add; Get R2; I64Ne; BrIf any; \
			Get R0; I32WrapI64; I64Const $const_ended; I64Store8 $walk_state; \
			Br ended; \
		End; \
		Get R1; I64Const $1; I64Add; Set R1; \
	End

// func next(w *walk) bool
//
// It knows what the API server writes: members and elements without white space
// around them, with names that need not be decoded. All else is for nextOf, which
// is only left for before anything is changed.
TEXT ·next(SB), NOSPLIT, $0-9
	I64Load w+0(FP)
	Set R0

ended:
	Block
any:
		Block
			NEXT(ended, any)
			Get R0
			I32WrapI64
			I64Load8U $walk_closing
			I64Const $'}'
			I64Eq
			If
				NAME(plain, any)
			End
			VALUE(quoted, quotedBytes, passed, unknown, nested, nestedBytes, brackets, digits, any)

			// R4 is the address of the document.
			FIELD($walk_doc)
			Set R4
			Get R0
			I32WrapI64
			Get R14
			Get R4
			I64Sub
			I64Store $walk_keyStart
			Get R0
			I32WrapI64
			Get R15
			Get R4
			I64Sub
			I64Store $walk_keyEnd
			Get R0
			I32WrapI64
			Get R13
			Get R4
			I64Sub
			I64Store $walk_start
			Get R0
			I32WrapI64
			Get R1
			Get R4
			I64Sub
			I64Store $walk_end
			Get R0
			I32WrapI64
			I64Const $const_inside
			I64Store8 $walk_state

			Get SP
			I64Const $1
			I64Store8 ret+8(FP)
			RET
		End
		JMP ·nextOf(SB)
	End
	Get SP
	I64Const $0
	I64Store8 ret+8(FP)
	RET

// func indexNested(doc []byte, nested []uint64) int
//
//	R0 is the address of the document
//	R12 is the address of nested, R13 the end of its room
//	R14 is where the next one is noted
//	R15 is where the innermost one that is open was noted, R13 if none is
TEXT ·indexNested(SB), NOSPLIT, $0-56
	I64Load doc_base+0(FP)
	Tee R0
	Tee R1
	I64Load doc_len+8(FP)
	I64Add
	Tee R2
	I64Const $8
	I64Sub
	Set R3
	I64Load nested_base+24(FP)
	Tee R12
	Tee R14
	I64Load nested_len+32(FP)
	I64Const $3
	I64Shl
	I64Add
	Tee R13
	Set R15

nothing:
	Block
		// The first byte behind white space opens.
space:
		Loop
			LOAD(nothing)
			Get R4
			I64Const $255
			I64And
			Tee R4
			I64Const $0x20
			I64Or
			I64Const $'{'
			I64Ne
			If
				Get R4
				I64Const $0x20
				I64Ne
				Get R4
				I64Const $9
				I64Sub
				I64Const $1
				I64GtU
				I32And
				Get R4
				I64Const $13
				I64Ne
				I32And
				BrIf nothing
				Get R1
				I64Const $1
				I64Add
				Set R1
				Br space
			End
		End

		I64Const $0
		Set R6
bytes:
		Loop
			BRACKETS(nothing)
			Get R9
			Get R10
			I64And
			I64Const HIGHS
			I64Xor
			Tee R11
			I64Eqz
			BrIf bytes
brackets:
			Loop
				FIRST
				Get R10
				Get R8
				I64And
				I64Eqz
				If
					// R9 is the end, R4 what was noted, R5 where its outer one was.
					MARKED
					I64Const $1
					I64Add
					Get R0
					I64Sub
					Set R9
					Get R15
					I32WrapI64
					I64Load $0
					Tee R4
					I64Const $32
					I64ShrU
					Get R12
					I64Add
					Set R5
					Get R15
					I32WrapI64
					Get R9
					I64Store32 $4
					// A short one is forgotten with all in it.
					Get R15
					I64Const $8
					I64Add
					Get R14
					I64Eq
					Get R9
					Get R4
					I64Const $0xffffffff
					I64And
					I64Sub
					I64Const $const_indexedLength
					I64LtU
					I32And
					If
						Get R15
						Set R14
					End
					Get R5
					Tee R15
					Get R13
					I64Eq
					If
						Get SP
						Get R14
						Get R12
						I64Sub
						I64Const $3
						I64ShrU
						I64Store ret+48(FP)
						RET
					End
				Else
					Get R14
					Get R13
					I64Eq
					BrIf nothing
					Get R14
					I32WrapI64
					Get R15
					Get R12
					I64Sub
					I64Const $32
					I64Shl
					MARKED
					Get R0
					I64Sub
					I64Or
					I64Store $0
					Get R14
					Tee R15
					I64Const $8
					I64Add
					Set R14
				End
				Get R11
				I64Eqz
				BrIf bytes
				Br brackets
			End
		End
	End
	Get SP
	I64Const $0
	I64Store ret+48(FP)
	RET

// FIND looks for a name. R10 is its address and R11 its length, R12 is the address of
// the names to look among, count how many they are, and from where to begin. R4
// becomes the address of the one that is equal, R12 if there is none: the first is not
// looked at. It uses R5 to R9; the other arguments are labels of its own.
//
// runtime.memequal compares byte by byte. Here it is eight at a time, the last eight
// together with those before them, which may lie before the string: memory begins
// long before it.
//
// R5 is by how much R4 moves on, and R6 how many names are left.
#define FIND(count, from, found, missing, search, other, equal) \
	Get R12; I64Load from; I64Const $4; I64Shl; I64Add; Set R4; \
	I64Const $16; Set R5; \
	I64Load count; I64Load from; I64Sub; Set R6; \
found: \
	Block; \
missing: \
		Block; \
search: \
			Loop; \
				Get R6; I64Const $0; I64LeS; \
				If; \
					/* From the one before from to the second, once. */ \
					Get R5; I64Const $0; I64LtS; BrIf missing; \
					I64Const $-16; Set R5; \
					I64Load from; I64Load count; I64Load from; I64Load count; I64LtS; Select; \
					I64Const $1; I64Sub; Tee R6; \
					I64Const $4; I64Shl; Get R12; I64Add; Set R4; \
					Br search; \
				End; \
other: \
				Block; \
					Get R4; I32WrapI64; I64Load $8; Get R11; I64Ne; BrIf other; \
					/* R7 is where they are compared, R8 what is left from there, */ \
					/* and R9 the way to the same place in the name.              */ \
					Get R4; I32WrapI64; I64Load $0; Set R7; \
					Get R10; Get R7; I64Sub; Set R9; \
					Get R11; Set R8; \
equal: \
					Loop; \
						Get R8; I64Const $8; I64GtS; \
						If; \
							Get R7; I32WrapI64; I64Load $0; \
							Get R7; Get R9; I64Add; I32WrapI64; I64Load $0; \
							I64Ne; BrIf other; \
							Get R7; I64Const $8; I64Add; Set R7; \
							Get R8; I64Const $8; I64Sub; Set R8; \
							Br equal; \
						End; \
					End; \
					Get R8; I64Eqz; BrIf found; \
					/* The last 1 to 8. */ \
					Get R7; Get R8; I64Add; I64Const $8; I64Sub; Tee R7; \
					I32WrapI64; I64Load $0; \
					Get R7; Get R9; I64Add; I32WrapI64; I64Load $0; \
					I64Xor; \
					I64Const $8; Get R8; I64Sub; I64Const $3; I64Shl; I64ShrU; \
					I64Eqz; BrIf found; \
				End; \
				Get R4; Get R5; I64Add; Set R4; \
				Get R6; I64Const $1; I64Sub; Set R6; \
				Br search; \
			End; \
		End; \
		Get R12; Set R4; \
	End

// func readFields(w *Walker, names []string, fields []Field, version uint32, from int) int
TEXT ·readFields(SB), NOSPLIT, $0-80
	I64Load w+0(FP)
	Set R0

ended:
	Block
any:
		Block
members:
			Loop
				NEXT(ended, any)
				NAME(plain, any)
				VALUE(quoted, quotedBytes, passed, unknown, nested, nestedBytes, brackets, digits, any)

				// The walk stands behind the member.
				Get R0
				I32WrapI64
				Get R1
				FIELD($walk_doc)
				I64Sub
				I64Store $walk_end
				Get R0
				I32WrapI64
				I64Const $const_inside
				I64Store8 $walk_state

				Get R14
				Set R10
				Get R15
				Get R14
				I64Sub
				Set R11
				I64Load names_base+8(FP)
				Set R12
				FIND(names_len+16(FP), from+64(FP), found, missing, search, other, equal)

				// R4 becomes the index of the name, R5 the address of the field.
				Get R4
				Get R12
				I64Sub
				Tee R4
				I64Eqz
				BrIf members
				Get SP
				Get R4
				I64Const $4
				I64ShrU
				I64Const $1
				I64Add
				I64Store from+64(FP)
				I64Load fields_base+32(FP)
				Get R4
				I64Add
				Set R5
				// null is as good as nothing, and it is not of this version.
				Get R13
				I32WrapI64
				I64Load8U $0
				I64Const $'n'
				I64Eq
				If
					Get R5
					I32WrapI64
					I64Const $0
					I64Store $Field_Value
					Get R5
					I32WrapI64
					I64Const $0
					I64Store $Field_First
					Br members
				End
				// R6 is the address of the document.
				FIELD($walk_doc)
				Set R6
				Get R5
				I32WrapI64
				Get R1
				Get R6
				I64Sub
				I64Const $32
				I64Shl
				Get R13
				Get R6
				I64Sub
				I64Or
				I64Store $Field_Value
				Get R5
				I32WrapI64
				I64Load32U version+56(FP)
				I64Const $32
				I64Shl
				I64Store $Field_First
				Br members
			End
		End
		Get SP
		I64Load from+64(FP)
		I64Store ret+72(FP)
		RET
	End
	Get SP
	I64Const $-1
	I64Store ret+72(FP)
	RET
