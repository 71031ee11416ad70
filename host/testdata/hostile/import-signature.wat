;; does: imports a function of the host with another signature
;; wants: load error "import kubewasm.config is (i64) -> i64, want (i32, i32) -> i32"
(module
  (import "kubewasm" "config" (func (param i64) (result i64)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
