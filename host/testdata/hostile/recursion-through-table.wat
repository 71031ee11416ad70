;; does: recurses for ever, 40 deep at most, through an entry of a table
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (type $t (func (param i32)))
  (table 1 funcref)
  (elem (i32.const 0) $tree)
  (func $tree (param $n i32)
    (if (local.get $n)
      (then
        (call_indirect (type $t) (i32.sub (local.get $n) (i32.const 1)) (i32.const 0))
        (call_indirect (type $t) (i32.sub (local.get $n) (i32.const 1)) (i32.const 0)))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $tree (i32.const 40))
    (i32.const 0)))
