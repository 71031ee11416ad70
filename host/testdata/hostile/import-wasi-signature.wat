;; does: imports a function of WASI with another signature
;; wants: load error "proc_exit"
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func (param i64)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
