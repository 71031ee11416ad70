;; does: calls itself for ever through an entry of a table
;; wants: call trap "out of stack"
;; wants with fuel without end: call trap "out of stack"
(module
  (memory (export "memory") 1)
  (type $t (func (param i32) (result i32)))
  (table 1 funcref)
  (elem (i32.const 0) $f)
  (func $f (param i32) (result i32) (i32.add (i32.const 1) (call_indirect (type $t) (local.get 0) (i32.const 0))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $f (i32.const 0))))
