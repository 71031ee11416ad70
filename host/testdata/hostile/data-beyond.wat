;; does: has a data segment that begins beyond its memory
;; wants: load error "out of bounds"
(module
  (memory (export "memory") 1)
  (data (i32.const 65536) "x")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
