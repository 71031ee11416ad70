;; does: writes 1,024 buffers that are all of its memory each, for ever
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $i i32)
    (loop $f
      (i32.store offset=4 (local.get $i) (i32.const 1048576))
      (br_if $f (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 8))) (i32.const 8192))))
    (loop $l
      (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1024) (i32.const 8192)))
      (br $l))
    (i32.const 0)))
