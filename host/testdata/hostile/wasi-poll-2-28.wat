;; does: waits for 268,435,456 events
;; wants: call result 28
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $poll_oneoff (i32.const 0) (i32.const 0) (i32.const 268435456) (i32.const 0))))
