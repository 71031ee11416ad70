;; Imports that the host does not have, or has with another type.
(module
  (import "env" "system" (func (param i32) (result i32)))
  (import "kubewasm" "config" (func (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
