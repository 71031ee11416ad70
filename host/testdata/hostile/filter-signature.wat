;; does: exports a filter that takes and returns something else
;; wants: load error "is (f64) -> i64, want (i64, i64, i64[, i64]) -> i32"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param f64) (result i64) (i64.const 0)))
