;; The guest asks.wat, as a version that reads the status instead.
(module
  (import "k8s.io/api" "object_part" (func $object_part (param i64 i32 i64 i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "short")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (i32.gt_u (call $object_part (local.get $node) (i32.const 3) (i64.const 3) (i32.const 1024) (i32.const 64)) (i32.const 8))
      (then (return (i32.const 0))))
    (call $status_reason (i32.const 0) (i32.const 5))
    (i32.const 2)))
