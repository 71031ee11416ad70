;; A scheduler guest that logs 16,000 bytes in each Filter, or traps if it is configured to.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 2)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 128)) ;; filter
  (func (export "filter") (param i64 i64 i64) (result i32)
    (if (call $config (i32.const 0) (i32.const 0)) (then unreachable))
    (memory.fill (i32.const 0) (i32.const 120) (i32.const 16000))
    (call $log (i32.const 0) (i32.const 0) (i32.const 16000))
    (i32.const 0)))
