;; does: removes a path of a mebibyte, for ever
;; wants: call trap "out of fuel"
(module
  (import "wasi_snapshot_preview1" "path_unlink_file" (func $path_unlink_file (param i32 i32 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (memory.fill (i32.const 0) (i32.const 47) (i32.const 1048000))
    (loop $l
      (drop (call $path_unlink_file (i32.const 1) (i32.const 0) (i32.const 1048000)))
      (br $l))
    (i32.const 0)))
