;; does: fills and copies a table of 131,072 elements again and again
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (table $t 131072 funcref)
  (elem declare func $f)
  (func $f)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (table.fill $t (i32.const 0) (ref.func $f) (i32.const 131072))
      (table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 131071))
      (br $l))
    unreachable))
