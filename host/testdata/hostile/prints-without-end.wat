;; does: prints a mebibyte to standard error and traps
;; wants: call trap "unreachable"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $n i32)
    (i32.store (i32.const 4) (i32.const 65536))
    (local.set $n (i32.const 16))
    (loop $l
      (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
      (br_if $l (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
    unreachable
    (i32.const 0)))
