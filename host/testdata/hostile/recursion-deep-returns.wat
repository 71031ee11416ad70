;; does: recurses as deep as its fuel allows, and returns
;; wants: call result 0
(module
  (memory (export "memory") 1)
  (func $f (param i32) (if (local.get 0) (then (call $f (i32.sub (local.get 0) (i32.const 1))))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $f (i32.const 30000))
    (i32.const 0)))
