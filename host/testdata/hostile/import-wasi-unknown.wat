;; does: imports a function that WASI does not have
;; wants: load error "launch_missiles"
(module
  (import "wasi_snapshot_preview1" "launch_missiles" (func))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
