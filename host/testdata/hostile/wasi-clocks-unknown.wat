;; does: looks at clocks that there are not; each call must fail with EINVAL (28), and returns 1
;; wants: call result 1
(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_res_get" (func $clock_res_get (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.and (i32.eq (i32.const 28) (call $clock_time_get (i32.const 2) (i64.const 0) (i32.const 0)))
      (i32.and (i32.eq (i32.const 28) (call $clock_time_get (i32.const -1) (i64.const -1) (i32.const -1)))
      (i32.and (i32.eq (i32.const 28) (call $clock_res_get (i32.const 3) (i32.const 0))) (i32.const 1))))))
