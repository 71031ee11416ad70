;; does: grows its memory by a random number of pages
;; wants: call result 0
(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 1 9)
  (func $start
    (drop (call $random (i32.const 0) (i32.const 1)))
    (drop (memory.grow (i32.and (i32.load8_u (i32.const 0)) (i32.const 7)))))
  (start $start)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.const 0)))
