;; does: refuses its configuration and does not say why
;; wants: load error "no reason given"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x0100000000000080))
  (func (export "configure") (result i32) (i32.const 1))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
