;; does: divides the smallest number by -1
;; wants: call trap "integer overflow"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (drop (i32.div_s (i32.const 0x80000000) (i32.sub (i32.wrap_i64 (local.get $cycle)) (i32.const 1))))
    (i32.const 0)))
