;; does: exports a global by the name of the marker
;; wants: load error "kubewasm_abi_v1"
(module
  (memory (export "memory") 1)
  (global (export "kubewasm_abi_v1") i64 (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
