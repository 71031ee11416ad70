;; does: sleeps for 500 years, by a clock that is a fake
;; wants: call result 0
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i64.store (i32.const 24) (i64.const 0x3fffffffffffffff))
    (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128))))
