;; A Stellar plugin that writes a verdict of half a megabyte: field errors, which are
;; small in JSON and large in Go.
(module
  (import "env" "write_output" (func $write (param i32 i32) (result i32)))
  (memory (export "memory") 16)
  (data (i32.const 0) "{\22allowed\22:false,\22errors\22:[{},")
  (func (export "validate") (result i32)
    (local $i i32)
    ;; Each step copies "{}," once more, and the end closes the list.
    (local.set $i (i32.const 27))
    (loop $more
      (memory.copy (local.get $i) (i32.const 27) (i32.const 3))
      (br_if $more (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 3))) (i32.const 524280))))
    (i32.store8 (i32.sub (local.get $i) (i32.const 1)) (i32.const 93))
    (i32.store8 (local.get $i) (i32.const 125))
    (call $write (i32.const 0) (i32.add (local.get $i) (i32.const 1)))))
