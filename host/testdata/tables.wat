;; A guest that changes a table, which no snapshot captures: the call after a
;; trap must find the table as it was.
(module
  (memory (export "memory") 1)
  (table $t 2 funcref)
  (elem (i32.const 0) func $zero)
  (elem declare func $one)
  (func $zero (result i32) (i32.const 0))
  (func $one (result i32) (i32.const 1))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (i64.eqz (local.get $pod))
      (then (return (call_indirect (result i32) (i32.const 0)))))
    (table.set $t (i32.const 0) (ref.func $one))
    unreachable))
