#include "go_asm.h"
#include "textflag.h"

// These functions do what those in read_native.go do, with the names from there.
// Addresses are 64 bits wide, as in Go, and are wrapped where they are used. Only
// numbers are written, never pointers: those need Go's write barrier.
//
// What lies behind a message may be looked at, up to the end of the object's
// buffer, but nothing is noted that ends behind the message.

// Where the version of a message lies, and that of a list: in the upper half of the
// key.
#define message_version (message_part+part_key+4)
#define messages_version (messages_part+part_key+4)

// NEXT goes on with the next part in a loop.
#define NEXT(P) I64Load part_next(P); Set P; Br $0

// OTHERVERSION says whether two keys that differ are of the same field.
#define OTHERVERSION(K, L) Get K; Get L; I64Xor; I64Const $0xffffffff; I64And; I64Eqz

// PARTOF leaves in P the part of the field that the lower half of a key says, of any
// version: the first one of a chain that begins in P. There must be one.
#define PARTOF(P, key) \
	Loop; \
	I64Load32U part_key(P); \
	key; \
	I64Ne; \
	If; \
	I64Load part_next(P); \
	Set P; \
	Br $1; \
	End; \
	End

// LOAD pushes the number of some bytes at the address in a register.
#define LOAD8(R) Get R; I32WrapI64; I64Load8U $0
#define LOAD16(R) Get R; I32WrapI64; I64Load16U $0
#define LOAD32(R) Get R; I32WrapI64; I64Load32U $0
#define LOAD64(R) Get R; I32WrapI64; I64Load $0

// ADD adds a constant to a register.
#define ADD(N, R) Get R; I64Const N; I64Add; Set R

// SETLEVEL and LEVEL are readUsual. The first one sets up registers for the message
// in R0; then R1 is where in memory a field begins; LEVEL leaves it behind the last
// field that it noted. The registers:
//
//	R2  the end of the message          R8  the key, the length, what follows
//	R3  where 4 bytes can be read last  R9  the end of the field
//	R4  the fields' places              R10 where its bytes begin, or the number
//	R5  their number, without the 0th   R11 where the first of its kind begins
//	R6  the version                     R12 its number, then its place
//	R7  where the object begins         R15 its key, if that has one byte
//
// The block around all that is unusual is left for the end of LEVEL. A key of two
// bytes is read as if its second byte was the key, with the number of both. Where
// the next field has the same key, as labels have, it is passed over at once.
#define SETLEVEL \
	I64Load message_object(R0); \
	Set R13; \
	I64Load object_bytes(R13); \
	Set R7; \
	Get R7; \
	I64Load32U message_end(R0); \
	I64Add; \
	Set R2; \
	Get R7; \
	I64Load (object_bytes+16)(R13); \
	I64Add; \
	I64Const $4; \
	I64Sub; \
	Set R3; \
	I64Load message_fields(R0); \
	Set R4; \
	I64Load message_typ(R0); \
	Set R5; \
	I64Load (Type_Names+8)(R5); \
	I64Const $1; \
	I64Sub; \
	Set R5; \
	I64Load32U message_version(R0); \
	Set R6

// BYTES reads how long what begins at R1 is, of whose first bytes R8 has four: R10 is
// where its bytes begin, R9 where they end. It leaves the second block around it if
// the length has more than two bytes, or what it is of goes beyond R2.
#define BYTES \
	Get R8; \
	I64Const $8; \
	I64ShrU; \
	I64Const $0x7f; \
	I64And; \
	Set R9; \
	Get R8; \
	I64Const $0x8000; \
	I64And; \
	I64Eqz; \
	If; \
	Get R1; \
	I64Const $2; \
	I64Add; \
	Set R10; \
	Else; \
	Get R8; \
	I64Const $0x800000; \
	I64And; \
	I64Const $0; \
	I64Ne; \
	BrIf $2; \
	Get R8; \
	I64Const $9; \
	I64ShrU; \
	I64Const $0x3f80; \
	I64And; \
	Get R9; \
	I64Or; \
	Set R9; \
	Get R1; \
	I64Const $3; \
	I64Add; \
	Set R10; \
	End; \
	Get R10; \
	Get R9; \
	I64Add; \
	Tee R9; \
	Get R2; \
	I64GtU; \
	BrIf $1

#define LEVEL \
	Block; \
	Loop; \
	Get R1; \
	Get R3; \
	I64GtS; \
	BrIf $1; \
	LOAD32(R1); \
	Tee R8; \
	I64Const $3; \
	I64ShrU; \
	I64Const $15; \
	I64And; \
	Set R12; \
	Get R8; \
	I64Const $0xff; \
	I64And; \
	Set R15; \
	Get R1; \
	Get R7; \
	I64Sub; \
	Set R11; \
	Get R8; \
	I64Const $0x80; \
	I64And; \
	I64Eqz; \
	If; \
	Else; \
	Get R8; \
	I64Const $0x8000; \
	I64And; \
	I64Const $0; \
	I64Ne; \
	BrIf $2; \
	Get R12; \
	Get R8; \
	I64Const $4; \
	I64ShrU; \
	I64Const $0x7f0; \
	I64And; \
	I64Or; \
	Set R12; \
	ADD($1, R1); \
	Get R1; \
	Get R3; \
	I64GtS; \
	If; \
	ADD($-1, R1); \
	Br $3; \
	End; \
	Get R8; \
	I64Const $7; \
	I64And; \
	LOAD32(R1); \
	I64Const $0xffffff00; \
	I64And; \
	I64Or; \
	Set R8; \
	I64Const $0x10000; \
	Set R15; \
	End; \
	Block; \
	Get R12; \
	I64Const $1; \
	I64Sub; \
	Get R5; \
	I64GeU; \
	BrIf $0; \
	Get R4; \
	Get R12; \
	I64Const $4; \
	I64Shl; \
	I64Add; \
	Set R12; \
	I64Load32U field_version(R12); \
	Get R6; \
	I64Eq; \
	If; \
	I64Load32U field_first(R12); \
	I64Const $0x7fffffff; \
	I64And; \
	Set R11; \
	End; \
	Get R8; \
	I64Const $7; \
	I64And; \
	Tee R13; \
	I64Const $2; \
	I64Eq; \
	If; \
	BYTES; \
	Block; \
	Loop; \
	Get R9; \
	Get R3; \
	I64GtS; \
	BrIf $1; \
	LOAD16(R9); \
	Tee R13; \
	Get R15; \
	I64Xor; \
	I64Const $0x180ff; \
	I64And; \
	I64Const $0; \
	I64Ne; \
	BrIf $1; \
	Get R9; \
	I64Const $2; \
	I64Add; \
	Tee R14; \
	Get R13; \
	I64Const $8; \
	I64ShrU; \
	I64Add; \
	Tee R13; \
	Get R2; \
	I64GtU; \
	BrIf $1; \
	Get R14; \
	Set R10; \
	Get R13; \
	Set R9; \
	Br $0; \
	End; \
	End; \
	Get R12; \
	I32WrapI64; \
	Get R9; \
	Get R7; \
	I64Sub; \
	I64Const $32; \
	I64Shl; \
	Get R10; \
	Get R7; \
	I64Sub; \
	I64Or; \
	I64Store $field_value; \
	Else; \
	Get R13; \
	I64Const $0; \
	I64Ne; \
	BrIf $1; \
	Get R1; \
	I64Const $2; \
	I64Add; \
	Set R9; \
	Get R8; \
	I64Const $8; \
	I64ShrU; \
	I64Const $0x7f; \
	I64And; \
	Set R10; \
	Get R8; \
	I64Const $0x8000; \
	I64And; \
	I64Eqz; \
	If; \
	Else; \
	I64Const $7; \
	Set R14; \
	Loop; \
	Get R9; \
	Get R2; \
	I64GeU; \
	BrIf $3; \
	LOAD8(R9); \
	Tee R13; \
	I64Const $0x7f; \
	I64And; \
	Get R14; \
	I64Shl; \
	Get R10; \
	I64Or; \
	Set R10; \
	ADD($1, R9); \
	ADD($7, R14); \
	Get R13; \
	I64Const $0x80; \
	I64GeU; \
	If; \
	Get R14; \
	I64Const $63; \
	I64GeU; \
	BrIf $4; \
	Br $1; \
	End; \
	End; \
	End; \
	Get R9; \
	Get R2; \
	I64GtU; \
	BrIf $1; \
	Get R12; \
	I32WrapI64; \
	Get R10; \
	I64Store $field_value; \
	Get R11; \
	I64Const $0x80000000; \
	I64Or; \
	Set R11; \
	End; \
	Get R12; \
	I32WrapI64; \
	Get R11; \
	I64Store32 $field_first; \
	Get R12; \
	I32WrapI64; \
	Get R6; \
	I64Store32 $field_version; \
	Get R9; \
	Set R1; \
	Br $1; \
	End; \
	Get R15; \
	I64Const $0x10000; \
	I64Eq; \
	If; \
	ADD($-1, R1); \
	End; \
	End; \
	End

// SAME compares the bytes at P with those at q, L of them, and leaves the block
// around it if they differ. It changes P, Q and N.
#define SAME(P, L, q, Q, N) \
	Get q; \
	Set Q; \
	Get L; \
	Set N; \
	Block; \
	Loop; \
	Get N; \
	I64Const $8; \
	I64GeU; \
	If; \
	LOAD64(P); \
	LOAD64(Q); \
	I64Ne; \
	BrIf $3; \
	ADD($8, P); \
	ADD($8, Q); \
	ADD($-8, N); \
	Br $1; \
	End; \
	End; \
	Get L; \
	I64Const $8; \
	I64GeU; \
	If; \
	Get P; \
	Get N; \
	I64Add; \
	I64Const $8; \
	I64Sub; \
	I32WrapI64; \
	I64Load $0; \
	Get Q; \
	Get N; \
	I64Add; \
	I64Const $8; \
	I64Sub; \
	I32WrapI64; \
	I64Load $0; \
	I64Ne; \
	BrIf $2; \
	Br $1; \
	End; \
	Loop; \
	Get N; \
	I64Eqz; \
	BrIf $1; \
	LOAD8(P); \
	LOAD8(Q); \
	I64Ne; \
	BrIf $2; \
	ADD($1, P); \
	ADD($1, Q); \
	ADD($-1, N); \
	Br $0; \
	End; \
	End

// ENTRIES is the loop of readEntries, within a block. The registers:
//
//	R0 where the object begins     R5  the length of the key that is wanted
//	R1 where an entry begins       R13 where that key is
//	R3 the end, less 2             R6  the span of the value, 0 at first
//	R4 the key of an entry and that of its key, as they lie in the first 4 bytes
//
// Behind a key of n bytes there is the key of the value and its length, which is
// 4+n less than that of the entry: one comparison is for both. It reads up to 134
// bytes from where an entry could begin.
#define ENTRIES \
	Loop; \
	LOAD32(R1); \
	Tee R7; \
	I64Const $0x80ff80ff; \
	I64And; \
	Get R4; \
	I64Ne; \
	BrIf $1; \
	Get R1; \
	Get R7; \
	I64Const $24; \
	I64ShrU; \
	Tee R11; \
	I64Add; \
	I32WrapI64; \
	I64Load16U $4; \
	Get R7; \
	I64Const $8; \
	I64ShrU; \
	I64Const $0xff; \
	I64And; \
	Tee R12; \
	Get R11; \
	I64Sub; \
	I64Const $8; \
	I64Shl; \
	I64Const $0x3ee; \
	I64Sub; \
	I64Ne; \
	BrIf $1; \
	Get R1; \
	Get R12; \
	I64Add; \
	Tee R9; \
	Get R3; \
	I64GtU; \
	BrIf $1; \
	Get R11; \
	Get R5; \
	I64Eq; \
	If; \
	Block; \
	Get R1; \
	I64Const $4; \
	I64Add; \
	Set R10; \
	SAME(R10, R5, R13, R11, R12); \
	Get R9; \
	I64Const $2; \
	I64Add; \
	Get R0; \
	I64Sub; \
	I64Const $32; \
	I64Shl; \
	Get R1; \
	I64Const $6; \
	I64Add; \
	Get R5; \
	I64Add; \
	Get R0; \
	I64Sub; \
	I64Or; \
	Set R6; \
	End; \
	End; \
	Get R9; \
	I64Const $2; \
	I64Add; \
	Set R1; \
	Br $0; \
	End

// ROOM leaves the block around it if less than 136 bytes of memory follow the address
// in a register.
#define ROOM(R) \
	CurrentMemory; \
	I64ExtendI32U; \
	I64Const $16; \
	I64Shl; \
	I64Const $136; \
	I64Sub; \
	Get R; \
	I64LtU; \
	BrIf $0

// ELEMENTS is the loop of readElements, within a block. The registers:
//
//	R1 where an element begins          R4  its key
//	R2 the end of the last one          R5  the place of the next element
//	R3 where 4 bytes can be read last   R6  how many there are
//	R7 where the object begins          R12 for how many there is room
#define ELEMENTS \
	Loop; \
	Get R1; \
	Get R3; \
	I64GtS; \
	BrIf $1; \
	LOAD32(R1); \
	Tee R8; \
	I64Const $0xff; \
	I64And; \
	Get R4; \
	I64Ne; \
	BrIf $1; \
	BYTES; \
	Get R6; \
	Get R12; \
	I64LtU; \
	If; \
	Get R5; \
	I32WrapI64; \
	Get R10; \
	Get R7; \
	I64Sub; \
	I64Store32 $message_at; \
	Get R5; \
	I32WrapI64; \
	Get R9; \
	Get R7; \
	I64Sub; \
	I64Store32 $message_end; \
	Get R5; \
	I32WrapI64; \
	I64Const $0; \
	I64Store $(message_part+part_key); \
	ADD($message__size, R5); \
	End; \
	ADD($1, R6); \
	Get R9; \
	Set R1; \
	Br $0; \
	End

// VIEWS returns the views of the list in R5, from readViews.
#define VIEWS \
	Get SP; \
	I64Load messages_views(R5); \
	I64Store ret_base+32(FP); \
	Get SP; \
	I64Load (messages_views+8)(R5); \
	I64Store ret_len+40(FP); \
	Get SP; \
	I64Load (messages_views+8)(R5); \
	I64Store ret_cap+48(FP); \
	RET

// NONE leaves the block around it unless the message in R0 was read in the version V
// and has no field R1. Of a part of which that field may be missing it does, too, be it
// in a message within, or 64 less.
#define NONE(V) \
	I64Load32U message_version(R0); \
	Get V; \
	I64Ne; \
	BrIf $0; \
	I64Load message_typ(R0); \
	Set R6; \
	Get R1; \
	I64Load (Type_Names+8)(R6); \
	I64GeU; \
	BrIf $0; \
	I64Load message_fields(R0); \
	Get R1; \
	I64Const $4; \
	I64Shl; \
	I64Add; \
	Set R6; \
	I64Load32U field_version(R6); \
	Get V; \
	I64Eq; \
	BrIf $0; \
	I64Load message_object(R0); \
	Set R6; \
	I64Load object_missing(R6); \
	Get R1; \
	I64ShrU; \
	I64Const $1; \
	I64And; \
	I32WrapI64; \
	BrIf $0

// VIEW returns the view of the message in a register, of a version.
#define VIEW(M, V) \
	Get SP; \
	Get M; \
	I64Store ret_m+32(FP); \
	Get SP; \
	Get V; \
	I64Store ret_version+40(FP); \
	RET

// The way of what was read before has few registers, so it is a function of its own,
// and so is that of what is of another version.

// func readMessage(v View, n uint32, t *Type) View
TEXT ·readMessage(SB), NOSPLIT, $0-48
	Block
		I64Load v_m+0(FP)
		Tee R0
		I64Eqz
		BrIf $0
		I64Load v_version+8(FP)
		Tee R4
		I64Const $32
		I64Shl
		I64Load32U n+16(FP)
		I64Or
		Set R2 // The key.
		I64Load message_made(R0)
		Set R1
		Block
			Block
				Loop
					Get R1
					I64Eqz
					BrIf $2
					I64Load part_key(R1)
					Tee R3
					Get R2
					I64Eq
					If
						VIEW(R1, R4)
					End
					OTHERVERSION(R3, R2)
					BrIf $1
					NEXT(R1)
				End
			End
			JMP ·rereadMessage(SB)
		End
		I64Load32U n+16(FP)
		Set R1
		NONE(R4)
		Get SP
		I64Const $0
		I64Store ret_m+32(FP)
		Get SP
		I64Const $0
		I64Store ret_version+40(FP)
		RET
	End
	JMP ·slowMessage(SB)

// func rereadMessage(v View, n uint32, t *Type) View
TEXT ·rereadMessage(SB), NOSPLIT, $0-48
	Block
		I64Load v_version+8(FP)
		Set R6
		I64Load v_m+0(FP)
		Set R1
		I64Load message_object(R1)
		Set R13
		I64Load object_version(R13)
		Get R6
		I64Ne
		BrIf $0
		I64Load message_made(R1)
		Set R0
		PARTOF(R0, I64Load32U n+16(FP)) // The message in the field.
		I64Load8U object_byParts(R13)
		I64Const $0
		I64Ne
		If
			// It is an object of its own: read or not, unless it is to be read at once.
			I64Load message_object(R0)
			Set R5
			I64Load8U object_wasRead(R5)
			I64Const $0
			I64Ne
			BrIf $1
			VIEW(R0, R6)
		End
		I64Load32U message_version(R1)
		Get R6
		I64Ne
		BrIf $0
		I64Load8U object_json(R13)
		I64Load message_typ(R0)
		Set R5
		I64Load Type_Numbers(R5)
		I64Or
		I64Const $0
		I64Ne
		BrIf $0
		I64Load message_fields(R0)
		I64Eqz
		BrIf $0
		I64Load message_fields(R1)
		I64Load32U n+16(FP)
		I64Const $4
		I64Shl
		I64Add
		Set R5
		I64Load32U field_version(R5)
		Get R6
		I64Ne
		BrIf $0
		I64Load32U field_first(R5)
		I64Const $0x80000000
		I64GeU
		BrIf $0
		Get R0
		I32WrapI64
		I64Load field_value(R5)
		I64Store $message_at // And message_end.
		SETLEVEL
		I64Load v_version+8(FP)
		Set R6
		Get R7
		I64Load32U message_at(R0)
		I64Add
		Set R1
		LEVEL
		Get R1
		Get R2
		I64Ne
		BrIf $0
		Get R0
		I32WrapI64
		Get R6
		I64Const $32
		I64Shl
		I64Load32U n+16(FP)
		I64Or
		I64Store $(message_part+part_key)
		VIEW(R0, R6)
	End
	JMP ·slowMessage(SB)

// func readViews(v View, n uint32, t *Type) []View
TEXT ·readViews(SB), NOSPLIT, $0-56
	Block
		I64Load v_m+0(FP)
		Tee R0
		I64Eqz
		BrIf $0
		I64Load v_version+8(FP)
		Tee R2
		I64Const $32
		I64Shl
		I64Load32U n+16(FP)
		Tee R1
		I64Or
		I64Const $const_madeMessages
		I64Or
		Set R4 // The key.
		I64Load message_made(R0)
		Set R5
		Block
			Block
				Loop
					Get R5
					I64Eqz
					BrIf $2
					I64Load part_key(R5)
					Tee R3
					Get R4
					I64Eq
					If
						VIEWS
					End
					OTHERVERSION(R3, R4)
					BrIf $1
					NEXT(R5)
				End
			End
			JMP ·rereadViews(SB)
		End
		NONE(R2) // Most Nodes have no taints.
		Get SP
		I64Const $0
		I64Store ret_base+32(FP)
		Get SP
		I64Const $0
		I64Store ret_len+40(FP)
		Get SP
		I64Const $0
		I64Store ret_cap+48(FP)
		RET
	End
	JMP ·slowViews(SB)

// func rereadViews(v View, n uint32, t *Type) []View
TEXT ·rereadViews(SB), NOSPLIT, $0-56
	Block
		I64Load v_m+0(FP)
		Set R0
		I64Load v_version+8(FP)
		Tee R14
		I64Load32U message_version(R0)
		I64Ne
		BrIf $0
		I64Load message_object(R0)
		Tee R13
		I32WrapI64
		I64Load $object_version
		Get R14
		I64Ne
		BrIf $0
		I64Load32U n+16(FP)
		Tee R4
		I64Const $16
		I64GeU
		BrIf $0
		I64Load message_typ(R0)
		Set R5
		I64Load8U object_json(R13)
		I64Load Type_Numbers(R5)
		I64Or
		I64Const $0
		I64Ne
		BrIf $0
		I64Load message_fields(R0)
		Get R4
		I64Const $4
		I64Shl
		I64Add
		Tee R5
		I32WrapI64
		I64Load32U $field_version
		Get R14
		I64Ne
		BrIf $0
		I64Load32U field_first(R5)
		I64Const $0x80000000
		I64GeU
		BrIf $0
		Get R4
		I64Const $const_madeMessages
		I64Or
		Set R15 // The lower half of the key.
		I64Load message_made(R0)
		Set R11
		PARTOF(R11, Get R15)
		// Where the elements lie.
		I64Load object_bytes(R13)
		Tee R7
		I64Load (object_bytes+16)(R13)
		I64Add
		I64Const $4
		I64Sub
		Set R3
		Get R7
		I64Load32U field_first(R5)
		I64Add
		Set R1
		Get R7
		I64Load field_value(R5)
		I64Const $32
		I64ShrU
		I64Add
		Set R2
		Get R4
		I64Const $3
		I64Shl
		I64Const $2
		I64Or
		Set R4
		I64Load messages_elements(R11)
		Set R5
		I64Const $0
		Set R6
		I64Load (messages_elements+8)(R11)
		Set R12
		Block
			ELEMENTS
		End
		Get R1
		Get R2
		I64Ne
		BrIf $0
		// There are as many as before, and the views for them are made.
		Get R6
		I64Load (messages_views+8)(R11)
		I64Ne
		BrIf $0
		I64Load (messages_views+16)(R11)
		Get R6
		I64Sub
		Tee R2
		Get R6
		I64LtU
		BrIf $0
		// They are behind the last ones: the pointer stays within what it points
		// into.
		I64Load messages_views(R11)
		Get R6
		I64Const $4
		I64Shl
		I64Add
		Set R1
		Get R11
		I32WrapI64
		Get R1
		I64Store $messages_views
		Get R11
		I32WrapI64
		Get R2
		I64Store $(messages_views+16)
		Get R11
		I32WrapI64
		Get R14
		I64Const $32
		I64Shl
		Get R15
		I64Or
		I64Store $(messages_part+part_key)
		Get SP
		Get R1
		I64Store ret_base+32(FP)
		Get SP
		Get R6
		I64Store ret_len+40(FP)
		Get SP
		Get R6
		I64Store ret_cap+48(FP)
		Loop
			Get R1
			I32WrapI64
			Get R14
			I64Store $View_version
			ADD($16, R1)
			ADD($-1, R6)
			Get R6
			I64Const $0
			I64Ne
			BrIf $0
		End
		RET
	End
	JMP ·slowViews(SB)

// func readText(v View, n uint32) string
TEXT ·readText(SB), NOSPLIT, $0-40
	Block
		I64Load v_m+0(FP)
		Tee R0
		I64Eqz
		BrIf $0
		I64Load v_version+8(FP)
		I64Const $32
		I64Shl
		I64Load32U n+16(FP)
		I64Or
		I64Const $const_madeText
		I64Or
		Set R1 // The key.
		I64Load message_made(R0)
		Set R2
		Loop
			Get R2
			I64Eqz
			BrIf $1
			I64Load part_key(R2)
			Get R1
			I64Eq
			If
				Get SP
				I64Load text_string(R2)
				I64Store ret_base+24(FP)
				Get SP
				I64Load (text_string+8)(R2)
				I64Store ret_len+32(FP)
				RET
			End
			NEXT(R2)
		End
	End
	JMP ·slowText(SB)

// ANSWER leaves in R14 the answer, of any version, for the key with the length R5 at
// R13, in the field that R4 says of the message in R8; and the block around it if
// there is none.
#define ANSWER \
	I64Load message_made(R8); \
	Set R14; \
	Block; \
	Loop; \
	Get R14; \
	I64Eqz; \
	BrIf $2; \
	I64Load32U part_key(R14); \
	Get R4; \
	I64Eq; \
	BrIf $1; \
	NEXT(R14); \
	End; \
	End; \
	ADD($answers_first, R14); \
	Block; \
	Loop; \
	I64Load (answer_Entry+Entry_Key)(R14); \
	Get R13; \
	I64Eq; \
	I64Load (answer_Entry+Entry_Key+8)(R14); \
	Get R5; \
	I64Eq; \
	I32And; \
	BrIf $1; \
	I64Load answer_next(R14); \
	Tee R14; \
	I64Eqz; \
	BrIf $2; \
	Br $0; \
	End; \
	End

// func readEntry(s StringMap, key string) string
TEXT ·readEntry(SB), NOSPLIT, $0-48
	Block
		I64Load s_m+0(FP)
		Tee R8
		I64Eqz
		BrIf $0
		I64Load s_at+8(FP)
		Tee R9
		I64Const $0xffffffff
		I64And
		Set R4 // The field, and that it is answers.
		Get R9
		I64Const $32
		I64ShrU
		Set R9 // The version.
		I64Load key_base+16(FP)
		Set R13
		I64Load key_len+24(FP)
		Set R5
		ANSWER
		I64Load32U answer_version(R14)
		Get R9
		I64Ne
		If
			JMP ·rereadEntry(SB)
		End
		Get SP
		I64Load (answer_Entry+Entry_Value)(R14)
		I64Store ret_base+32(FP)
		Get SP
		I64Load (answer_Entry+Entry_Value+8)(R14)
		I64Store ret_len+40(FP)
		RET
	End
	JMP ·slowEntry(SB)

// func rereadEntry(s StringMap, key string) string
TEXT ·rereadEntry(SB), NOSPLIT, $0-48
	Block
		I64Load s_m+0(FP)
		Tee R8
		I64Eqz
		BrIf $0
		I64Load s_at+8(FP)
		Tee R9
		I64Const $0xffffffff
		I64And
		Set R4 // The field, and that it is answers.
		Get R9
		I64Const $32
		I64ShrU
		Set R9 // The version.
		I64Load key_base+16(FP)
		Set R13
		I64Load key_len+24(FP)
		Set R5
		ANSWER
		// It is of another version: look again, and see whether the value is what it
		// was.
		Block
			I64Load32U message_version(R8)
			Get R9
			I64Ne
			BrIf $1
			I64Load message_object(R8)
			Tee R1
			I32WrapI64
			I64Load $object_version
			Get R9
			I64Ne
			BrIf $1
			I64Load8U object_json(R1)
			I64Const $0
			I64Ne
			BrIf $1
			I64Load message_typ(R8)
			Set R2
			I64Load Type_Numbers(R2)
			I64Const $0
			I64Ne
			BrIf $1
			Get R4
			I64Const $const_madeAnswers
			I64Sub
			Tee R4 // The field alone.
			I64Const $16
			I64GeU
			BrIf $1
			I64Load message_fields(R8)
			Get R4
			I64Const $4
			I64Shl
			I64Add
			Set R7
			I64Load32U field_version(R7)
			Get R9
			I64Ne
			BrIf $1
			I64Load32U field_first(R7)
			I64Const $0x80000000
			I64GeU
			BrIf $1
			I64Load object_bytes(R1)
			Tee R0
			I64Load32U field_first(R7)
			I64Add
			Set R1
			Get R0
			I64Load field_value(R7)
			I64Const $32
			I64ShrU
			I64Add
			Tee R2
			I64Const $2
			I64Sub
			Set R3
			Get R4
			I64Const $3
			I64Shl
			I64Const $0x0a0002
			I64Or
			Set R4
			I64Const $0
			Set R6
			Block
				ROOM(R2)
				ENTRIES
			End
			Get R1
			Get R2
			I64LtU
			BrIf $1
			// Nothing found, or another value: that is for Go.
			Get R6
			I64Eqz
			BrIf $1
			I64Load8U answer_found(R14)
			I64Eqz
			BrIf $1
			Get R0
			Get R6
			I64Const $0xffffffff
			I64And
			I64Add
			Set R10
			Get R6
			I64Const $32
			I64ShrU
			Get R6
			I64Const $0xffffffff
			I64And
			I64Sub
			Tee R8
			I64Load (answer_Entry+Entry_Value+8)(R14)
			I64Ne
			BrIf $1
			I64Load (answer_Entry+Entry_Value)(R14)
			Set R13
			Block
				Block
					SAME(R10, R8, R13, R11, R12)
					Br $1
				End
				Br $2
			End
			Get R14
			I32WrapI64
			I64Load s_at+8(FP)
			I64Const $32
			I64ShrU
			I64Store32 $answer_version
		End
		Get SP
		I64Load (answer_Entry+Entry_Value)(R14)
		I64Store ret_base+32(FP)
		Get SP
		I64Load (answer_Entry+Entry_Value+8)(R14)
		I64Store ret_len+40(FP)
		RET
	End
	JMP ·slowEntry(SB)

// func readUsual(m *message, at int) int
TEXT ·readUsual(SB), NOSPLIT, $0-24
	I64Load m+0(FP)
	Set R0
	SETLEVEL
	Get R7
	I64Load at+8(FP)
	I64Add
	Set R1
	LEVEL
	Get SP
	Get R1
	Get R7
	I64Sub
	I64Store ret+16(FP)
	RET

// func readElements(m *message, key uint64, at, end int, into []message, count int) (next, total int)
TEXT ·readElements(SB), NOSPLIT, $0-80
	I64Load m+0(FP)
	Set R0
	I64Load message_object(R0)
	Set R13
	I64Load object_bytes(R13)
	Set R7
	Get R7
	I64Load at+16(FP)
	I64Add
	Set R1
	Get R7
	I64Load end+24(FP)
	I64Add
	Set R2
	Get R7
	I64Load (object_bytes+16)(R13)
	I64Add
	I64Const $4
	I64Sub
	Set R3
	I64Load key+8(FP)
	Set R4
	I64Load count+56(FP)
	Set R6
	I64Load into_base+32(FP)
	Get R6
	I64Const $message__size
	I64Mul
	I64Add
	Set R5 // The place of the next element.
	Block
		Get R4
		I64Const $0x80
		I64GeU
		BrIf $0
		I64Load into_len+40(FP)
		Set R12
		ELEMENTS
	End
	Get SP
	Get R1
	Get R7
	I64Sub
	I64Store next+64(FP)
	Get SP
	Get R6
	I64Store total+72(FP)
	RET

// func readEntries(b []byte, at int, number uint64, key string) (next int, value uint64)
TEXT ·readEntries(SB), NOSPLIT, $0-72
	I64Load b_base+0(FP)
	Tee R0
	I64Load at+24(FP)
	I64Add
	Set R1 // Where an entry begins.
	Get R0
	I64Load b_len+8(FP)
	I64Add
	Tee R2
	I64Const $2
	I64Sub
	Set R3
	I64Load number+32(FP)
	I64Const $0x0a0000
	I64Or
	Set R4
	I64Load key_len+48(FP)
	Set R5
	I64Const $0
	Set R6
	Block
		I64Load number+32(FP)
		I64Const $0x80
		I64GeU
		BrIf $0
		ROOM(R2)
		I64Load key_base+40(FP)
		Set R13
		ENTRIES
	End
	Get SP
	Get R1
	Get R0
	I64Sub
	I64Store next+56(FP)
	Get SP
	Get R6
	I64Store value+64(FP)
	RET
