;; does: hands the host a decision of one byte more than the limit
;; wants: call violation "65537 bytes are more than the limit of 65536"
(module
  (import "k8s.io/hooks" "decision" (func $decision (param i32 i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (drop (memory.grow (i32.const 1)))
    (call $decision (i32.const 0) (i32.const 65537))
    (i32.const 0)))
