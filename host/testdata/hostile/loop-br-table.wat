;; does: goes round in a state machine, as a compiler of standard Go writes each function
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $state i32)
    (loop $l
      (block $two
        (block $one
          (block $zero (br_table $zero $one $two (local.get $state)))
          (local.set $state (i32.const 1))
          (br $l))
        (local.set $state (i32.const 2))
        (br $l))
      (local.set $state (i32.const 0))
      (br $l))
    (i32.const 0)))
