;; does: calls a host function that has a bug
;; wants: call trap "index out of range"
(module
  (import "test" "panic" (func $panic))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $panic)
    (i32.const 0)))
