;; does: sleeps for 70 years a hundred times, and returns how often the clock went back
;; wants: call result 0
(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $n i32) (local $back i32) (local $last i64)
    (loop $l
      (i64.store (i32.const 24) (i64.const 0x1fffffffffffffff))
      (drop (call $poll_oneoff (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 128)))
      (drop (call $clock_time_get (i32.const 0) (i64.const -1) (i32.const 136)))
      (local.set $back (i32.add (local.get $back) (i64.lt_s (i64.load (i32.const 136)) (local.get $last))))
      (local.set $last (i64.load (i32.const 136)))
      (br_if $l (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 100))))
    (local.get $back)))
