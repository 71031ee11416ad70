;; does: grows its memory in its start section, to its maximum in _initialize, and traps at the second node
;; wants: call trap "unreachable"
(module
  (memory (export "memory") 1 3)
  (func $start
    (if (i32.ne (memory.grow (i32.const 1)) (i32.const 1)) (then unreachable))
    (if (i32.load (i32.const 0)) (then unreachable))
    (i32.store (i32.const 0) (i32.const 7)))
  (start $start)
  (func (export "_initialize")
    (if (i32.ne (memory.grow (i32.const 1)) (i32.const 2)) (then unreachable))
    (i32.store (i32.const 131072) (i32.const 8)))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (i32.ne (i32.load (i32.const 0)) (i32.const 7)) (then (return (i32.const 1))))
    (if (i32.ne (i32.load (i32.const 131072)) (i32.const 8)) (then (return (i32.const 2))))
    unreachable))
