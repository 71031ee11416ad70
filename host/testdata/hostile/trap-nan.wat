;; does: makes an integer of what is no number
;; wants: call trap "invalid conversion to integer"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (drop (i32.trunc_f64_s (f64.div (f64.const 0) (f64.const 0))))
    (i32.const 0)))
