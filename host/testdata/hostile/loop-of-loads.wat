;; does: reads its memory round and round
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $at i32)
    (loop $l
      (local.set $at (i32.and (i32.add (local.get $at) (i32.load (local.get $at)) ) (i32.const 0xfff8)))
      (br $l))
    (i32.const 0)))
