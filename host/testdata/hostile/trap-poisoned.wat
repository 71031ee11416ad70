;; does: leaves a mark in memory, in a global and in a table and traps; returns 1 if it finds one
;; wants: call trap "unreachable"
(module
  (memory (export "memory") 1)
  (global $mark (mut i32) (i32.const 0))
  (table $t 1 funcref)
  (elem declare func $f)
  (func $f)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (i32.or (i32.or (i32.load (i32.const 0)) (global.get $mark)) (i32.eqz (ref.is_null (table.get $t (i32.const 0)))))
      (then (return (i32.const 1))))
    (i32.store (i32.const 0) (i32.const 1))
    (global.set $mark (i32.const 1))
    (table.set $t (i32.const 0) (ref.func $f))
    unreachable
    (i32.const 0)))
