;; The marker is of the wrong type, and so is _initialize.
(module
  (memory (export "memory") 1)
  (func (export "_initialize") (param i32))
  (func (export "kubewasm_abi_v1") (result i32) (i32.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
