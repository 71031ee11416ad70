;; A guest whose start section prints, and whose filter traps.
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\08\00\00\00started\n")
  (start $start)
  (func $start (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 64))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) unreachable))
