;; does: loops for ever in _start
;; wants: load trap "out of fuel"
;; wants with fuel without end: load trap "timeout of"
(module
  (memory (export "memory") 1)
  (func (export "_start") (loop $l (br $l)))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
