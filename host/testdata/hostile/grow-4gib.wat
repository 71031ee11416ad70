;; does: asks for 4 GiB of memory at once, and returns 1 if it was refused
;; wants: call result 1
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.eq (memory.grow (i32.const 65535)) (i32.const -1))))
