;; does: fills four billion elements of a table of one
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "table"
(module
  (memory (export "memory") 1)
  (table $t 1 funcref)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (table.fill $t (i32.const 0) (ref.null func) (i32.const -1))
    (i32.const 0)))
