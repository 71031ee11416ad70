;; does: grows its memory in its start section, and traps there if it cannot
;; wants: call result 7
(module
  (memory (export "memory") 1)
  (func $start
    (if (i32.ne (memory.grow (i32.const 2)) (i32.const 1)) (then unreachable))
    (i32.store (i32.const 131072) (i32.const 7)))
  (start $start)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.load (i32.const 131072))))
