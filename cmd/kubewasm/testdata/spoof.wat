;; A plugin for schedulers and for admission. Tests put something else in the place of each
;; row of Z: control characters, which no text of a module can have.
(module
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ")
  ;; filter (bit 7) and validate (bit 32).
  (func $marker (export "kubewasm_abi_v1") (result i64) (i64.const 0x100000080))
  (func (export "filter") (param i64 i64 i64) (result i32)
    (call $log (i32.const 4) (i32.const 0) (i32.const 64))
    (call $status_reason (i32.const 0) (i32.const 64))
    (i32.const 2))
  (func $ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ (result i64) unreachable)
  (func (export "validate") (result i64) (call $ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ))
  (export "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ" (func $marker)))
