;; does: writes 131,000 empty buffers to a place of a file, for ever
;; wants: call trap "out of fuel"
(module
  (import "wasi_snapshot_preview1" "fd_pwrite" (func $fd_pwrite (param i32 i32 i32 i64 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (drop (call $fd_pwrite (i32.const 1) (i32.const 0) (i32.const 131000) (i64.const 0) (i32.const 0)))
      (br $l))
    (i32.const 0)))
