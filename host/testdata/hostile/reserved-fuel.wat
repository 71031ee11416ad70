;; does: exports a counter of its own by the name of the fuel
;; wants: load error "reserved name"
(module
  (global (export "kubewasm:fuel") (mut i64) (i64.const 0x7fffffffffffffff))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
