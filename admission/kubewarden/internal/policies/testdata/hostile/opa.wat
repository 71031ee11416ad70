;; A module with the exports of a policy in Rego, which is none: it lies to the host by
;; the digit in its settings {"n":"0"}. Values are addresses of what they are as text,
;; and 8 is one whose text is made up each time.
(module
  (import "env" "memory" (memory 2))
  (import "env" "opa_abort" (func $abort (param i32)))
  (import "env" "opa_println" (func $println (param i32)))
  (import "env" "opa_builtin1" (func $builtin (param i32 i32 i32) (result i32)))
  (data (i32.const 16) "{\22urlquery.encode\22:0,\22crypto.sha256\22:1}\00")
  (data (i32.const 80) "{\22p/main\22:0}\00")
  (data (i32.const 112) "\22a\22\00")
  (data (i32.const 128) "[{\22result\22:true}]\00")
  (global $lie (mut i32) (i32.const 0))
  (global $heap (mut i32) (i32.const 1024))
  (func (export "builtins") (result i32) (i32.const 16))
  (func (export "entrypoints") (result i32) (i32.const 80))
  (func (export "opa_heap_ptr_get") (result i32) (global.get $heap))
  (func (export "opa_heap_ptr_set") (param i32) (global.set $heap (local.get 0)))
  (func (export "opa_malloc") (param $size i32) (result i32)
    ;; 3: memory that is not there.
    (if (i32.eq (global.get $lie) (i32.const 3)) (then (return (i32.const -16))))
    (global.get $heap)
    (global.set $heap (i32.add (global.get $heap) (local.get $size))))
  (func (export "opa_json_parse") (param $text i32) (param $len i32) (result i32) (local.get $text))
  (func (export "opa_value_parse") (param $text i32) (param $len i32) (result i32) (i32.const 112))
  (func $dump (export "opa_value_dump") (param $value i32) (result i32)
    (if (i32.ne (local.get $value) (i32.const 8)) (then (return (local.get $value))))
    (block $6 (block $5 (block $2 (block $1 (block $0
      (br_table $0 $1 $2 $0 $0 $5 $6 $0 (global.get $lie)))
      ;; 0: asks for a builtin to say what its argument is.
      (return (call $builtin (i32.const 0) (i32.const 0) (i32.const 8))))
      ;; 1: a text up to the end of the memory and beyond.
      (memory.fill (i32.const 65536) (i32.const 97) (i32.const 65536))
      (return (i32.const 65536)))
      ;; 2: a text behind the memory.
      (return (i32.const -1)))
      ;; 5: brackets without end.
      (memory.fill (i32.const 65536) (i32.const 91) (i32.const 65535))
      (return (i32.const 65536)))
    ;; 6: a number of very many digits.
    (memory.fill (i32.const 65536) (i32.const 57) (i32.const 65535))
    (i32.const 65536))
  (func (export "opa_eval") (param $_ i32) (param $entrypoint i32) (param $data i32) (param $input i32) (param $len i32) (param $end i32) (param $format i32) (result i32)
    (global.set $lie (i32.sub (i32.load8_u offset=6 (local.get $data)) (i32.const 48)))
    (block $9 (block $8 (block $7 (block $4 (block $ask
      (br_table $ask $ask $ask $ask $4 $ask $ask $7 $8 $9 (global.get $lie)))
      (drop (call $builtin (i32.const 0) (i32.const 0) (select (i32.const 112) (i32.const 8) (i32.eq (global.get $lie) (i32.const 3)))))
      (return (i32.const 128)))
      ;; 4: a builtin that there is not.
      (drop (call $builtin (i32.const 99) (i32.const 0) (i32.const 112)))
      (return (i32.const 128)))
      ;; 7: a builtin again and again.
      (loop $again
        (global.set $heap (i32.const 4096))
        (drop (call $builtin (i32.const 1) (i32.const 0) (i32.const 112)))
        (br $again))
      (unreachable))
      ;; 8: a long farewell.
      (memory.fill (i32.const 65536) (i32.const 97) (i32.const 65535))
      (call $abort (i32.const 65536))
      (return (i32.const 128)))
    ;; 9: short lines, very many of them.
    (local.set $len (i32.const 100000))
    (loop $more
      (call $println (i32.const 112))
      (br_if $more (local.tee $len (i32.sub (local.get $len) (i32.const 1)))))
    (i32.const 128)))
