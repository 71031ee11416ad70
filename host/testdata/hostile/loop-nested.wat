;; does: loops for ever in the innermost of three loops, each of which ends
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $i i32) (local $j i32)
    (loop $a
      (local.set $i (i32.const 100))
      (loop $b
        (local.set $j (i32.const 100))
        (loop $c (br_if $c (local.tee $j (i32.sub (local.get $j) (i32.const 1)))))
        (br_if $b (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
      (br $a))
    (i32.const 0)))
