;; does: reads 131,000 empty buffers from a place of a file, for ever
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (import "wasi_snapshot_preview1" "fd_pread" (func $fd_pread (param i32 i32 i32 i64 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (drop (call $fd_pread (i32.const 0) (i32.const 0) (i32.const 131000) (i64.const 0) (i32.const 0)))
      (br $l))
    (i32.const 0)))
