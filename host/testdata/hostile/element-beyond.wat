;; does: has an element segment that ends beyond its table, which wazero would leave out
;; wants: load error "element segment out of range"
(module
  (memory (export "memory") 1)
  (table 1 funcref)
  (elem (i32.const 1) $f)
  (func $f)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
