;; does: imports a function of the version before
;; wants: load error "wasi_unstable.fd_write is not provided"
(module
  (import "wasi_unstable" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0))))
