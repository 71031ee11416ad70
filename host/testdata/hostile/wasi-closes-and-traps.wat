;; does: traps when it has closed its streams; returns 1 if it finds one closed
;; wants: call trap "unreachable"
(module
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_renumber" (func $fd_renumber (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $fd_fdstat_get (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $fd i32)
    (loop $l
      (if (call $fd_fdstat_get (local.get $fd) (i32.const 0)) (then (return (i32.const 1))))
      (drop (call $fd_renumber (local.get $fd) (i32.const 0)))
      (drop (call $fd_close (local.get $fd)))
      (br_if $l (i32.lt_u (local.tee $fd (i32.add (local.get $fd) (i32.const 1))) (i32.const 3))))
    unreachable))
