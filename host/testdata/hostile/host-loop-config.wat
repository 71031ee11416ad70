;; does: asks for its configuration for ever
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (drop (call $config (i32.const 0) (i32.const 65536)))
      (br $l))
    (i32.const 0)))
