;; does: imports its memory
;; wants: load error "env.memory"
(module
  (import "env" "memory" (memory 1))
  (export "memory" (memory 0))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
