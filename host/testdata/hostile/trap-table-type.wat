;; does: calls a function of another type through a table
;; wants: call trap "indirect call type mismatch"
(module
  (memory (export "memory") 1)
  (table 1 funcref)
  (elem (i32.const 0) $f)
  (func $f)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (drop (call_indirect (result i64) (i32.const 0)))
    (i32.const 0)))
