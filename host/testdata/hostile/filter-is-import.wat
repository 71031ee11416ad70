;; does: exports a function of the host as its filter
;; wants: load error "want (i64, i64, i64[, i64]) -> i32"
(module
  (import "kubewasm" "status_reason" (func $reason (param i32 i32)))
  (export "filter" (func $reason))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80)))
