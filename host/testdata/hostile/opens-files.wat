;; does: opens /etc/passwd below each of the first 64 descriptors, and returns how often it could
;; wants: call result 0
(module
  (import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "etc/passwd")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $fd i32) (local $opened i32)
    (local.set $fd (i32.const 64))
    (loop $l
      (local.set $opened (i32.add (local.get $opened) (i32.eqz
        (call $path_open (local.get $fd) (i32.const 0) (i32.const 0) (i32.const 10)
          (i32.const 0) (i64.const -1) (i64.const -1) (i32.const 0) (i32.const 32)))))
      (br_if $l (local.tee $fd (i32.sub (local.get $fd) (i32.const 1)))))
    (local.get $opened)))
