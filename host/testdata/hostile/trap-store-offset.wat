;; does: stores at the greatest address with the greatest offset
;; wants: call trap "out of bounds memory access"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.store offset=0xffffffff (i32.const -1) (i32.const 1))
    (i32.const 0)))
