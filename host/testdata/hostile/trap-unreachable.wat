;; does: executes unreachable
;; wants: call trap "unreachable"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    unreachable
    (i32.const 0)))
