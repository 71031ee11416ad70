;; does: hands WASI pointers beyond its memory; each call must fail with EFAULT (21), and returns 1
;; wants: call result 1
(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.and
      (i32.and
        (i32.eq (i32.const 21) (call $clock (i32.const 1) (i64.const 0) (i32.const -4)))
        (i32.eq (i32.const 21) (call $random_get (i32.const 65535) (i32.const -1))))
      (i32.and
        (i32.eq (i32.const 21) (call $fd_write (i32.const 1) (i32.const -8) (i32.const 4) (i32.const 0)))
        (i32.eq (i32.const 21) (call $args_get (i32.const -1) (i32.const -1)))))))
