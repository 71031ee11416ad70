;; does: traps when it is asked what it implements
;; wants: load trap "unreachable"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) unreachable)
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
