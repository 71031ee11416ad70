;; does: begins with a memory of 4 GiB
;; wants: load error "65536"
(module
  (memory (export "memory") 65536)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
