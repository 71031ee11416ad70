;; does: imports a function of a name that belongs to the host
;; wants: load error "reserved name"
(module
  (import "env" "kubewasm:refill" (func))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
