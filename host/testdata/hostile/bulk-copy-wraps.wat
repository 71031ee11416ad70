;; does: copies 4 GiB less one byte from where that ends beyond 32 bits
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "out of bounds memory access"
(module
  (memory (export "memory") 64)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (memory.copy (i32.const 2) (i32.const 3) (i32.const -1))
    (i32.const 0)))
