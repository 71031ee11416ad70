;; does: moves 3 MiB up and down over itself and finds them as they were
;; wants: call result 0
(module
  (memory (export "memory") 64)
  (func $fails (result i32)
    (i32.store (i32.const 0) (i32.const 1))
    (i32.store (i32.const 1048576) (i32.const 2))
    (i32.store (i32.const 3145724) (i32.const 3))
    (memory.copy (i32.const 100000) (i32.const 0) (i32.const 3145728))
    (memory.copy (i32.const 0) (i32.const 100000) (i32.const 3145728))
    (i32.or (i32.ne (i32.load (i32.const 0)) (i32.const 1))
      (i32.or (i32.ne (i32.load (i32.const 1048576)) (i32.const 2))
        (i32.ne (i32.load (i32.const 3145724)) (i32.const 3)))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (call $fails)))
