;; does: exports a global by the name of the memory
;; wants: load error "want a memory"
(module
  (memory 1)
  (global (export "memory") i32 (i32.const 0))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
