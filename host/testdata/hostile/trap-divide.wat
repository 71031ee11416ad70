;; does: divides by zero
;; wants: call trap "integer divide by zero"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (drop (i32.div_u (i32.const 1) (i32.wrap_i64 (local.get $cycle))))
    (i32.const 0)))
