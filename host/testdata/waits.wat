;; A guest that calls the host function test.wait, which returns when the test
;; lets it, and panics in the host when it answers 1.
(module
  (import "test" "wait" (func $wait (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (call $wait)))
