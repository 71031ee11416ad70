;; does: grows a table by a thousand elements for ever
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (table $t 1 funcref)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (drop (table.grow $t (ref.null func) (i32.const 1000)))
      (br $l))
    (i32.const 0)))
