;; does: has three functions that call one another for ever, two of them from two places
;; wants: call trap "out of stack"
;; wants with fuel without end: call trap "out of stack"
(module
  (memory (export "memory") 1)
  (func $a (param i32) (result i32)
    (if (result i32) (i32.and (local.get 0) (i32.const 1))
      (then (i32.add (i32.const 1) (call $b (local.get 0))))
      (else (i32.add (i32.const 2) (call $c (local.get 0))))))
  (func $b (param i32) (result i32) (i32.add (i32.const 3) (call $c (i32.add (local.get 0) (i32.const 1)))))
  (func $c (param i32) (result i32) (i32.add (i32.const 4) (call $a (i32.add (local.get 0) (i32.const 1)))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $a (i32.const 0))))
