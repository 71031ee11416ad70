;; A guest for tests of the second wall: filter runs what the test has planted.
(module
  (import "drill" "try" (func $try (param i64 i64) (result i64)))
  (memory (export "memory") 1 4)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32)
    (i32.wrap_i64 (call $try (local.get 0) (local.get 1)))))
