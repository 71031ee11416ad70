;; does: begins with a table of four billion elements
;; wants: load error "table"
(module
  (memory (export "memory") 1)
  (table 4294967295 funcref)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
