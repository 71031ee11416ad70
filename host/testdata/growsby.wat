;; A guest that grows its memory by as many pages as the node counts, and returns the number
;; of its calls since the start or a reset.
(module
  (memory (export "memory") 1 1024)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (drop (memory.grow (i32.wrap_i64 (local.get $node))))
    (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
    (i32.load (i32.const 0))))
