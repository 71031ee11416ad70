;; A guest of another ABI. It grows its memory by as many pages as it is told, and returns the
;; number of its calls since the start or a reset.
(module
  (memory (export "memory") 1 1024)
  (func (export "grow") (param $pages i32) (result i32)
    (drop (memory.grow (local.get $pages)))
    (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
    (i32.load (i32.const 0))))
