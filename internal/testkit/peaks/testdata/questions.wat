;; A scheduler guest that asks about waiting Pods, by another question of 8 MiB each time.
(module
  (import "k8s.io/scheduler" "waiting_pod" (func $waiting_pod (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 160)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 128)) ;; filter
  (func (export "filter") (param i64 i64 i64) (result i32) (local $n i32)
    (local.set $n (i32.const 500))
    (loop $next
      (i32.store (i32.const 0) (local.get $n))
      (drop (call $waiting_pod (i32.const 0) (i32.const 8388608) (i32.const 0) (i32.const 0)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (br_if $next (local.get $n)))
    (i32.const 0)))
