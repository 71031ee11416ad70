;; does: does not export the filter that it says it implements
;; wants: load error "is missing, want (i64, i64, i64[, i64]) -> i32"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80)))
