;; does: loops for ever when it is configured
;; wants: load trap "out of fuel"
;; wants with fuel without end: load trap "timeout of"
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x0100000000000080))
  (func (export "configure") (result i32) (loop $l (br $l)) (i32.const 0))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
