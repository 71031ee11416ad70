;; does: gives a reason of 64 KiB of bytes that are no UTF-8, which is cut
;; wants: call result 2
(module
  (import "kubewasm" "status_reason" (func $reason (param i32 i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (memory.fill (i32.const 0) (i32.const 0xff) (i32.const 65536))
    (call $reason (i32.const 0) (i32.const 65536))
    (i32.const 2)))
