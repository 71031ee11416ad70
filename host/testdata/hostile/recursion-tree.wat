;; does: calls two functions that call one another twice each, 60 deep: 2^60 calls
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (func $a (param i32)
    (if (local.get 0)
      (then
        (call $b (i32.sub (local.get 0) (i32.const 1)))
        (call $b (i32.sub (local.get 0) (i32.const 1))))))
  (func $b (param i32)
    (if (local.get 0)
      (then
        (call $a (i32.sub (local.get 0) (i32.const 1)))
        (call $a (i32.sub (local.get 0) (i32.const 1))))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $a (i32.const 60))
    (i32.const 0)))
