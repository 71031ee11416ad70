;; A scheduler guest that keeps a Pod away from all nodes while Pods are added that
;; were not removed, and scores each by the configuration's first byte, a digit; anything
;; before "0" is below 0. What it counts stands at 1024, 4 bytes for the slot of a cycle.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "crowded")
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 1))))
  ;; prefilter, addpod, removepod, filter and score.
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 1264))
  (func $count (param $cycle i64) (result i32)
    (i32.add (i32.const 1024) (i32.shl (i32.and (i32.wrap_i64 (local.get $cycle)) (i32.const 63)) (i32.const 2))))
  (func $add (param $cycle i64) (param $n i32) (result i32)
    (i32.store (call $count (local.get $cycle)) (i32.add (i32.load (call $count (local.get $cycle))) (local.get $n)))
    (i32.const 0))
  (func (export "prefilter") (param $cycle i64) (param $pod i64) (result i32)
    (i32.store (call $count (local.get $cycle)) (i32.const 0))
    (i32.const 0))
  (func (export "addpod") (param $cycle i64) (param i64) (param i64) (param i64) (result i32)
    (call $add (local.get $cycle) (i32.const 1)))
  (func (export "removepod") (param $cycle i64) (param i64) (param i64) (param i64) (result i32)
    (call $add (local.get $cycle) (i32.const -1)))
  (func (export "filter") (param $cycle i64) (param i64) (param i64) (result i32)
    (if (i32.load (call $count (local.get $cycle))) (then
      (call $status_reason (i32.const 64) (i32.const 7))
      (return (i32.const 2))))
    (i32.const 0))
  (func (export "score") (param $cycle i64) (param i64) (param i64) (result i64)
    (i64.shl (i64.sub (i64.load8_u (i32.const 0)) (i64.const 48)) (i64.const 32))))
