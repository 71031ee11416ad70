;; does: asks once for random numbers in all of its memory, for which it has not the fuel
;; wants: call trap "out of fuel"
(module
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (memory (export "memory") 16)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $random_get (i32.const 0) (i32.const 1048576))))
