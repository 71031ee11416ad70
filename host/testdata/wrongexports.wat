;; The marker names filter, score and prefilter: the first has the wrong type,
;; the second is missing.
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x490))
  (func (export "filter") (param i32) (result i32) (i32.const 0))
  (func (export "prefilter") (param i64 i64) (result i32) (i32.const 0)))
