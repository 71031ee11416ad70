;; does: says that it implements all 64 functions
;; wants: load error "unknown to this version"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const -1))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
