;; A guest for another kind of component.
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x100000000))
  (func (export "validate") (result i64) (i64.const 0)))
