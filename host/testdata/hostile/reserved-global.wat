;; does: exports a function by the name of a global of the snapshot
;; wants: load error "reserved name"
(module
  (func (export "kubewasm:global/0"))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
