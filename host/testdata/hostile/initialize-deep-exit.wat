;; does: recurses in _initialize and exits there with success, from the depth
;; wants: call result 0
(module
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
  (func $f (param i32)
    (if (local.get 0) (then (call $f (i32.sub (local.get 0) (i32.const 1)))) (else (call $exit (i32.const 0)))))
  (func (export "_initialize") (call $f (i32.const 10000)))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.const 0)))
