;; A scheduler guest that reads its configuration while it starts, before it is configured:
;; Filter returns its first byte.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (memory (export "memory") 1 1)
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 64))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80)) ;; filter
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.load8_u (i32.const 0))))
