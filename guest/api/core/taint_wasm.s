#include "go_asm.h"
#include "textflag.h"

// LOAD pushes the number of some bytes at the address in a register.
#define LOAD8(R) Get R; I32WrapI64; I64Load8U $0
#define LOAD64(R) Get R; I32WrapI64; I64Load $0

// ADD adds a constant to a register.
#define ADD(N, R) Get R; I64Const N; I64Add; Set R

// STRING leaves the address and the length of the string at a span in registers.
// The memory of the object is in R0, the Spans in R1.
#define STRING(offset, P, L) \
	Get R1; \
	I32WrapI64; \
	I64Load $offset; \
	Tee L; \
	I64Const $0xffffffff; \
	I64And; \
	Tee P; \
	Get R0; \
	I64Add; \
	Get L; \
	I64Const $32; \
	I64ShrU; \
	Get P; \
	I64Sub; \
	Set L; \
	Set P

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

// func untolerated(memory view.Memory, taints []view.Spans, tolerations []terms) int
TEXT ·untolerated(SB), NOSPLIT, $0-64
	I64Load memory_start+0(FP)
	Set R0
	I64Load taints_base+8(FP)
	Set R1
	I64Const $0
	Set R2 // The index of the taint.
	I64Load tolerations_base+32(FP)
	I64Load tolerations_len+40(FP)
	I64Const $terms__size
	I64Mul
	I64Add
	Set R3
	Block
		Loop
			Get R2
			I64Load taints_len+16(FP)
			I64GeU
			BrIf $1
			Block // Left for the next taint.
				STRING(16, R4, R5)
				// NoSchedule and NoExecute, by their first eight bytes and the rest.
				Get R5
				I64Const $10
				I64Eq
				If
					LOAD64(R4)
					I64Const $8458997499126050638
					I64Ne
					BrIf $1
					Get R4
					I32WrapI64
					I64Load16U $8
					I64Const $25964
					I64Ne
					BrIf $1
					I64Const $const_noSchedule
					Set R6
				Else
					Get R5
					I64Const $9
					I64Ne
					BrIf $1
					LOAD64(R4)
					I64Const $8391722768135450446
					I64Ne
					BrIf $1
					Get R4
					I32WrapI64
					I64Load8U $8
					I64Const $101
					I64Ne
					BrIf $1
					I64Const $const_noExecute
					Set R6
				End
				STRING(0, R7, R8)
				STRING(8, R9, R10)
				I64Load tolerations_base+32(FP)
				Set R4
				Loop
					Get R4
					Get R3
					I64GeU
					If
						Get SP
						Get R2
						I64Store ret+56(FP)
						RET
					End
					I64Load8U terms_operator(R4)
					Tee R5
					I64Const $const_otherOperator
					I64Eq
					If
						Get SP
						I64Const $const_unusual
						I64Store ret+56(FP)
						RET
					End
					Block // Left for the next toleration.
						I64Load8U terms_effect(R4)
						Tee R11
						I64Const $const_noEffect
						I64Ne
						Get R11
						Get R6
						I64Ne
						I32And
						BrIf $0
						I64Load (terms_key+8)(R4)
						Tee R12
						I64Const $0
						I64Ne
						If
							Get R12
							Get R8
							I64Ne
							BrIf $1
							Get R7
							Set R11
							I64Load terms_key(R4)
							Set R13
							Block
								Block
									SAME(R11, R12, R13, R14, R15)
									Br $1
								End
								Br $2
							End
						End
						Get R5
						I64Const $const_exists
						I64Eq
						BrIf $2
						I64Load (terms_value+8)(R4)
						Tee R12
						Get R10
						I64Ne
						BrIf $0
						Get R9
						Set R11
						I64Load terms_value(R4)
						Set R13
						SAME(R11, R12, R13, R14, R15)
						Br $2
					End
					ADD($terms__size, R4)
					Br $0
				End
			End
			ADD($1, R2)
			ADD($const_spansSize, R1)
			Br $0
		End
	End
	Get SP
	I64Const $-1
	I64Store ret+56(FP)
	RET
