;; does: calls an element beyond a table
;; wants: call trap "invalid table access"
(module
  (memory (export "memory") 1)
  (table 1 funcref)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call_indirect (i32.const -1))
    (i32.const 0)))
