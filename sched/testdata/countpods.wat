;; A scheduler guest that counts Pods by what its configuration says: whether terminating ones
;; count, "0" or "1", what it does, and the question. PreFilter is unschedulable and has a digit for
;; each node as its reason.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "k8s.io/scheduler" "node_refs" (func $node_refs (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "count_pods" (func $count_pods (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 3)
  (global $length (mut i32) (i32.const 0))
  (func (export "_initialize") (global.set $length (call $config (i32.const 0) (i32.const 16384))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 16))
  (func $does (param i32) (result i32) (i32.eq (i32.load8_u (i32.const 1)) (local.get 0)))
  (func (export "prefilter") (param $cycle i64) (param $pod i64) (result i32)
    (local $bytes i32) (local $i i32) (local $buf i32) (local $answer i32)
    (local.set $bytes (call $node_refs (i32.const 131072) (i32.const 65536)))
    (local.set $buf (i32.const 65536))
    ;; o: half a ref less. u: the first is of a slot that nobody has. b: an answer beyond the memory.
    ;; n: no nodes. t: again and again.
    (if (call $does (i32.const 0x6f)) (then (local.set $bytes (i32.sub (local.get $bytes) (i32.const 4)))))
    (if (call $does (i32.const 0x75)) (then (i64.store (i32.const 131072) (i64.const 0x1fffffffe))))
    (if (call $does (i32.const 0x62)) (then (local.set $buf (i32.const 196600))))
    (if (call $does (i32.const 0x6e)) (then (local.set $bytes (i32.const 0))))
    (loop $again
      (local.set $answer (call $count_pods
        (i32.sub (i32.load8_u (i32.const 0)) (i32.const 0x30)) (i32.const 131072) (local.get $bytes)
        (i32.const 2) (i32.sub (global.get $length) (i32.const 2))
        (local.get $buf) (i32.const 32768)))
      (br_if $again (call $does (i32.const 0x74))))
    (loop $digits
      (if (i32.lt_u (local.get $i) (i32.shr_u (local.get $answer) (i32.const 2))) (then
        (i32.store8 (i32.add (i32.const 32768) (local.get $i))
          (i32.add (i32.const 0x30) (i32.load (i32.add (local.get $buf) (i32.shl (local.get $i) (i32.const 2))))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $digits))))
    (call $status_reason (i32.const 32768) (local.get $i))
    (i32.const 2)))
