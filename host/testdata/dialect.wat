;; A guest of a dialect: it imports its memory, has no marker, is started by two
;; functions, calls the host, which calls it, and exports an optional function.
(module
  (import "env" "memory" (memory 1))
  (import "env" "builtin" (func $builtin (param i32 i32) (result i32)))
  (global $started (mut i32) (i32.const 0))
  (global $heap (mut i32) (i32.const 1024))
  (func (export "first") (global.set $started (i32.const 1)))
  (func (export "second") (global.set $started (i32.mul (global.get $started) (i32.const 10))))
  (func (export "started") (result i32) (global.get $started))
  (func $alloc (export "alloc") (param $size i32) (result i32)
    (global.get $heap)
    (global.set $heap (i32.add (global.get $heap) (local.get $size))))
  ;; The sum of seven numbers, each asked from the host, which asks alloc.
  (func (export "eval") (param i32 i32 i32 i32 i32 i32 i32) (result i32)
    (i32.add (call $builtin (i32.const 1) (local.get 0))
      (i32.add (call $builtin (i32.const 1) (local.get 3))
        (call $builtin (i32.const 1) (local.get 6)))))
  ;; Calls itself through the host as often as it may.
  (func (export "again") (param i32) (result i32)
    (call $builtin (i32.const 2) (i32.add (local.get 0) (i32.const 1))))
  (func (export "spin") (loop $l (br $l)))
  (func (export "trap") (unreachable)))
