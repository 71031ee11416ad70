;; does: loops for ever in the second arm of an if
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (i64.eq (local.get $cycle) (i64.const -1))
      (then (return (i32.const 1)))
      (else (loop $l (br_if $l (i32.eqz (i32.const 0))))))
    (i32.const 0)))
