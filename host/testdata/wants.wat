;; A guest that asks for the time, for random numbers and for a granted host
;; function. Its filter returns, by the node, the seconds since 1970, four random
;; bytes, or what test.secret answers.
(module
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "test" "secret" (func $secret (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (i64.eq (local.get $node) (i64.const 0)) (then
      (drop (call $clock (i32.const 0) (i64.const 0) (i32.const 0)))
      (return (i32.wrap_i64 (i64.div_u (i64.load (i32.const 0)) (i64.const 1000000000))))))
    (if (i64.eq (local.get $node) (i64.const 1)) (then
      (drop (call $random (i32.const 0) (i32.const 4)))
      (return (i32.load (i32.const 0)))))
    (call $secret)))
