;; A guest that calls itself as often as the number of the node says, and traps if
;; that is the greatest number. It returns how many calls there were since it began,
;; by a word of its memory, and a hundred times that, by a global.
(module
  (memory (export "memory") 1)
  (global $calls (mut i32) (i32.const 0))
  (func $deep (param $n i32)
    (if (local.get $n) (then (call $deep (i32.sub (local.get $n) (i32.const 1))))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 1)))
    (if (i64.eq (local.get $node) (i64.const 0xffffffff)) (then unreachable))
    (call $deep (i32.wrap_i64 (local.get $node)))
    (i32.add (i32.load (i32.const 8)) (i32.mul (global.get $calls) (i32.const 100)))))
