;; does: looks at the clock until a time that never comes
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (drop (call $clock (i32.const 1) (i64.const 0) (i32.const 0)))
      (br_if $l (i64.lt_u (i64.load (i32.const 0)) (i64.const -1))))
    (i32.const 0)))
