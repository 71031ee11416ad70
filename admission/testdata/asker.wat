(; Asker asks what the options of the request say, byte for byte, and denies with the answer
   as the reason. The first byte says how, the question follows. "g" is get_object and "l"
   list_objects; "w" list_objects with a buffer that is not wholly in the memory, "p" with a
   question that is not; "o" asks for ever, each time about what is behind another object. ;)
(module
  (import "k8s.io/admission" "options" (func $options (param i32 i32) (result i32)))
  (import "k8s.io/api" "get_object" (func $get (param i32 i32 i32 i32) (result i32)))
  (import "k8s.io/api" "list_objects" (func $list (param i32 i32 i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (memory (export "memory") 64)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x100000000))
  (func (export "validate") (result i64)
    (local $n i32) (local $function i32) (local $answer i32)
    (local.set $n (i32.sub (call $options (i32.const 0) (i32.const 0x100000)) (i32.const 1)))
    (local.set $function (i32.load8_u (i32.const 0)))
    (if (i32.eq (local.get $function) (i32.const 0x67)) ;; g
      (then (local.set $answer (call $get (i32.const 1) (local.get $n) (i32.const 0x100000) (i32.const 0x300000)))))
    (if (i32.eq (local.get $function) (i32.const 0x6c)) ;; l
      (then (local.set $answer (call $list (i32.const 1) (local.get $n) (i32.const 0x100000) (i32.const 0x300000)))))
    (if (i32.eq (local.get $function) (i32.const 0x77)) ;; w
      (then (local.set $answer (call $list (i32.const 1) (local.get $n) (i32.const 0x3ffff0) (i32.const 0x11)))))
    (if (i32.eq (local.get $function) (i32.const 0x70)) ;; p
      (then (local.set $answer (call $list (i32.const 0x3ffff0) (i32.const 0x11) (i32.const 0) (i32.const 0)))))
    (if (i32.eq (local.get $function) (i32.const 0x6f)) ;; o
      (then (loop $again
        ;; The last byte of the question changes, so that each is another.
        (i32.store8 (local.get $n) (i32.or (i32.add (i32.load8_u (local.get $n)) (i32.const 1)) (i32.const 0x40)))
        (drop (call $list (i32.const 1) (local.get $n) (i32.const 0) (i32.const 0)))
        (br $again))))
    (call $status_reason (i32.const 0x100000) (local.get $answer))
    (i64.const 2)))
