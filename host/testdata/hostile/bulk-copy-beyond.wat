;; does: copies 3 MiB of which the last byte is beyond its memory
;; wants: call trap "out of bounds memory access"
(module
  (memory (export "memory") 64)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (memory.copy (i32.const 1048577) (i32.const 0) (i32.const 3145728))
    (i32.const 0)))
