;; does: implements something else the second time that it is asked, which it never is, as others are copies of the first
;; wants: call result 0
(module
  (memory (export "memory") 1)
  (global $asked (mut i64) (i64.const 0))
  (func (export "kubewasm_abi_v1") (result i64)
    (i64.add (i64.const 0x80) (i64.mul (global.get $asked) (i64.const 0x400)))
    (global.set $asked (i64.const 1)))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 0)))
