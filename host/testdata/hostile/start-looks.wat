;; does: traps in its start section if its memory holds anything but its data, and leaves something there
;; wants: call result 9
(module
  (memory (export "memory") 2)
  (data (i32.const 16) "\05")
  (func $start
    (if (i32.ne (i32.load (i32.const 16)) (i32.const 5)) (then unreachable))
    (if (i32.load (i32.const 70000)) (then unreachable))
    (i32.store (i32.const 16) (i32.const 6))
    (i32.store (i32.const 70000) (i32.const 9)))
  (start $start)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.load (i32.const 70000))))
