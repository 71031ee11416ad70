;; A policy of Kubewarden that speaks waPC, whose verdict is written by the test. The
;; operations are told apart by the lengths of their names.
(module
  (import "wapc" "__guest_response" (func $response (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\22v1\22")
  (data (i32.const 16) "{\22valid\22:true}")
  (data (i32.const 64) "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@")
  (func (export "__guest_call") (param $name i32) (param i32) (result i32)
    (if (i32.eq (local.get $name) (i32.const 16)) (then (call $response (i32.const 0) (i32.const 4))))
    (if (i32.eq (local.get $name) (i32.const 17)) (then (call $response (i32.const 16) (i32.const 14))))
    (if (i32.eq (local.get $name) (i32.const 8)) (then (call $response (i32.const 64) (i32.const 600))))
    (i32.const 1)))
