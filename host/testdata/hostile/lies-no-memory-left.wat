;; does: hands bytes that end exactly where its memory does, and asks for some with a limit of 0 at the greatest address: no lies, so it may
;; wants: call result 0
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $reason (param i32 i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $reason (i32.const 65528) (i32.const 8))
    (call $reason (i32.const -1) (i32.const 0))
    (drop (call $config (i32.const -1) (i32.const 0)))
    (i32.const 0)))
