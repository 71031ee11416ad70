;; does: asks for an object that was never passed to it
;; wants: call violation "names no object"
(module
  (import "k8s.io/api" "object" (func $object (param i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (drop (call $object (i64.const 0x700000007) (i32.const 0) (i32.const 0)))
    (i32.const 0)))
