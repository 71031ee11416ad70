;; An admission guest whose configuration is what it says about every object: after
;; "p" a patch, after "m" the mutated object.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "k8s.io/admission" "patch" (func $patch (param i32 i32)))
  (import "k8s.io/admission" "mutated_object" (func $mutated_object (param i32 i32)))
  (memory (export "memory") 160 160)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x200000000))
  (func (export "mutate") (result i64)
    (local $n i32)
    (local.set $n (i32.sub (call $config (i32.const 0) (i32.const 0xa00000)) (i32.const 1)))
    (if (i32.eq (i32.load8_u (i32.const 0)) (i32.const 112))
      (then (call $patch (i32.const 1) (local.get $n)))
      (else (call $mutated_object (i32.const 1) (local.get $n))))
    (i64.const 0)))
