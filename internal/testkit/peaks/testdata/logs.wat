;; A scheduler guest that logs a line of 16 KB in each filter.
(module
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 128)) ;; filter
  (func (export "filter") (param i64 i64 i64) (result i32)
    (memory.fill (i32.const 0) (i32.const 120) (i32.const 16000))
    (call $log (i32.const 0) (i32.const 0) (i32.const 16000))
    (i32.const 0)))
