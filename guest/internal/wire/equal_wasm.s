#include "textflag.h"

// LOAD pushes the number of some bytes at the address in a register.
#define LOAD8(R) Get R; I32WrapI64; I64Load8U $0
#define LOAD32(R) Get R; I32WrapI64; I64Load32U $0
#define LOAD64(R) Get R; I32WrapI64; I64Load $0

// LAST pushes the N bytes before the address in a register.
#define LAST32(R) Get R; I64Const $4; I64Sub; I32WrapI64; I64Load32U $0
#define LAST64(R) Get R; I64Const $8; I64Sub; I32WrapI64; I64Load $0

// func Equal(a, b string) bool
TEXT ·Equal(SB), NOSPLIT, $0-33
	Block // Left when they differ.
		I64Load a_len+8(FP)
		Tee R2
		I64Load b_len+24(FP)
		I64Ne
		BrIf $0
		Block // Left when they are the same.
			I64Load a_base+0(FP)
			Tee R0
			I64Load b_base+16(FP)
			Tee R1
			I64Eq
			BrIf $0
			Get R0
			Get R2
			I64Add
			Set R3 // The end of a.
			Get R1
			Get R2
			I64Add
			Set R4 // The end of b.
			Get R2
			I64Const $8
			I64GeU
			If
				// By eight bytes, the last of which may have been compared before.
				Loop
					LOAD64(R0)
					LOAD64(R1)
					I64Ne
					BrIf $3
					Get R1
					I64Const $8
					I64Add
					Set R1
					Get R0
					I64Const $8
					I64Add
					Tee R0
					I64Const $8
					I64Add
					Get R3
					I64LeU
					BrIf $0
				End
				LAST64(R3)
				LAST64(R4)
				I64Ne
				BrIf $2
				Br $1
			End
			Get R2
			I64Const $4
			I64GeU
			If
				LOAD32(R0)
				LOAD32(R1)
				I64Ne
				BrIf $2
				LAST32(R3)
				LAST32(R4)
				I64Ne
				BrIf $2
				Br $1
			End
			Loop
				Get R0
				Get R3
				I64Eq
				BrIf $1
				LOAD8(R0)
				LOAD8(R1)
				I64Ne
				BrIf $2
				Get R0
				I64Const $1
				I64Add
				Set R0
				Get R1
				I64Const $1
				I64Add
				Set R1
				Br $0
			End
		End
		Get SP
		I64Const $1
		I64Store8 ret+32(FP)
		RET
	End
	Get SP
	I64Const $0
	I64Store8 ret+32(FP)
	RET
