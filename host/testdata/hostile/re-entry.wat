;; does: has the host call the instance that runs
;; wants: call trap "the instance trapped before"
(module
  (import "test" "reenter" (func $reenter))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $reenter)
    (i32.const 0)))
