;; An admission guest that converts by its configuration, whatever the object is: an object
;; is what the conversion makes, an array a patch, and anything else says how it goes wrong.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $reason (param i32 i32)))
  (import "k8s.io/admission" "mutated_object" (func $mutated_object (param i32 i32)))
  (import "k8s.io/admission" "patch" (func $patch (param i32 i32)))
  (import "k8s.io/admission" "result" (func $result (param i32 i32)))
  (import "k8s.io/admission" "desired_api_version" (func $desired (param i32 i32) (result i32)))
  (import "k8s.io/api" "get_object" (func $get (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 40 40)
  (data (i32.const 16) "spec.when is in no version")
  (data (i32.const 64) "v1/pods\00shop\00web")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x400000000))
  (func (export "convert") (result i64)
    (local $n i32) (local $first i32)
    (local.set $n (call $config (i32.const 1024) (i32.const 2000000)))
    (local.set $first (i32.load8_u (i32.const 1024)))
    (if (i32.eq (local.get $first) (i32.const 123)) ;; {
      (then (call $mutated_object (i32.const 1024) (local.get $n)) (return (i64.const 0))))
    (if (i32.eq (local.get $first) (i32.const 91)) ;; [
      (then (call $patch (i32.const 1024) (local.get $n)) (return (i64.const 0))))
    ;; A text: its second byte is after the quote.
    (local.set $first (i32.load8_u (i32.const 1025)))
    (if (i32.eq (local.get $first) (i32.const 114)) ;; r: refuses, with a reason.
      (then (call $reason (i32.const 16) (i32.const 26)) (return (i64.const 1))))
    (if (i32.eq (local.get $first) (i32.const 101)) ;; e: refuses, without one.
      (then (return (i64.const 1))))
    (if (i32.eq (local.get $first) (i32.const 118)) ;; v: a verdict that there is not.
      (then (return (i64.const 9))))
    (if (i32.eq (local.get $first) (i32.const 116)) ;; t: traps.
      (then (unreachable)))
    (if (i32.eq (local.get $first) (i32.const 103)) ;; g: gets an object.
      (then (drop (call $get (i32.const 64) (i32.const 16) (i32.const 1024) (i32.const 1000)))))
    (if (i32.eq (local.get $first) (i32.const 119)) ;; w: has a result.
      (then (call $result (i32.const 16) (i32.const 0))))
    (if (i32.eq (local.get $first) (i32.const 100)) ;; d: refuses, with the desired version.
      (then (call $reason (i32.const 1024) (call $desired (i32.const 1024) (i32.const 1000))) (return (i64.const 2))))
    (if (i32.eq (local.get $first) (i32.const 108)) ;; l: loops.
      (then (loop $l (br $l))))
    ;; Anything else: nothing changes.
    (i64.const 0)))
