;; A guest that has each Pod wait for a second in Permit, and has nothing else.
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x4000))
  (func (export "permit") (param i64 i64) (result i64) (i64.const 0x3e800000004))
)
