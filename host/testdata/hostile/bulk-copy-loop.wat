;; does: copies 3 MiB over itself, upwards and downwards by turns
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 64)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (memory.copy (i32.const 5) (i32.const 0) (i32.const 3145728))
      (memory.copy (i32.const 0) (i32.const 5) (i32.const 3145728))
      (br $l))
    unreachable))
