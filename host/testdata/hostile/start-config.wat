;; does: asks for its configuration in its start section, which it may
;; wants: call result 0
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func $start (drop (call $config (i32.const 0) (i32.const 64))))
  (start $start)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
