;; does: receives 131,000 empty buffers, for ever
;; wants: call trap "out of fuel"
(module
  (import "wasi_snapshot_preview1" "sock_recv" (func $sock_recv (param i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (drop (call $sock_recv (i32.const 0) (i32.const 0) (i32.const 131000) (i32.const 0) (i32.const 0) (i32.const 0)))
      (br $l))
    (i32.const 0)))
