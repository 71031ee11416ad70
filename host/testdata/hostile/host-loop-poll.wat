;; does: sleeps for 500 years, for ever
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i64.store (i32.const 24) (i64.const 0x3fffffffffffffff))
    (loop $l
      (drop (call $poll (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
      (br $l))
    (i32.const 0)))
