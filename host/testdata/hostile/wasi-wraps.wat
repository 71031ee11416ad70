;; does: writes buffers whose list wraps around the end of memory; each call must fail with EFAULT (21) or EINVAL (28), and returns 1
;; wants: call result 1
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.store (i32.const 64) (i32.const -8))
    (i32.store (i32.const 68) (i32.const 16))
    (i32.and
      (i32.and
        (i32.eq (i32.const 28) (call $fd_write (i32.const 1) (i32.const 0) (i32.const 536870913) (i32.const 128)))
        (i32.eq (i32.const 21) (call $fd_write (i32.const 1) (i32.const -8) (i32.const 2) (i32.const 128))))
      (i32.and
        (i32.eq (i32.const 21) (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 128)))
        (i32.eq (i32.const 21) (call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const -2)))))))
