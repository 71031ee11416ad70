;; does: hands the host bytes beyond its memory in its start section
;; wants: load violation "out of bounds"
(module
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (func $start (call $log (i32.const 0) (i32.const -8) (i32.const 16)))
  (start $start)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
