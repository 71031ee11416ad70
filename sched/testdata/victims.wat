;; A scheduler guest that names victims. The first four bytes of its configuration choose which: with 0,
;; all Pods of the node. With the others it does more or less than it may.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_by_name" (func $node_by_name (param i32 i32) (result i64)))
  (import "k8s.io/scheduler" "node_pods" (func $node_pods (param i64 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "nominated_pods" (func $nominated_pods (param i64 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result_victims" (func $result_victims (param i32 i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "n2")
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 4))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x4000000))
  (func $does (param i32) (result i32) (i32.eq (i32.load (i32.const 0)) (local.get 0)))
  (func (export "potentialvictims") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $n i32)
    (local.set $n (call $node_pods (local.get $node) (i32.const 1024) (i32.const 60000)))
    ;; The first one twice.
    (if (call $does (i32.const 1)) (then
      (i64.store (i32.add (i32.const 1024) (local.get $n)) (i64.load (i32.const 1024)))
      (local.set $n (i32.add (local.get $n) (i32.const 8)))))
    ;; The Pod to schedule.
    (if (call $does (i32.const 2)) (then
      (i64.store (i32.add (i32.const 1024) (local.get $n)) (local.get $pod))
      (local.set $n (i32.add (local.get $n) (i32.const 8)))))
    ;; The node.
    (if (call $does (i32.const 3)) (then
      (i64.store (i32.add (i32.const 1024) (local.get $n)) (local.get $node))
      (local.set $n (i32.add (local.get $n) (i32.const 8)))))
    ;; A part of a ref.
    (if (call $does (i32.const 4)) (then (local.set $n (i32.sub (local.get $n) (i32.const 1)))))
    ;; For ever.
    (if (call $does (i32.const 5)) (then
      (loop $again
        (drop (call $nominated_pods (local.get $node) (i32.const 1024) (i32.const 60000)))
        (br $again))))
    (if (call $does (i32.const 6)) (then unreachable))
    (if (call $does (i32.const 7)) (then (return (i32.const 2))))
    ;; Those of the node n2.
    (if (call $does (i32.const 8)) (then
      (local.set $n (call $node_pods (call $node_by_name (i32.const 64) (i32.const 2)) (i32.const 1024) (i32.const 60000)))))
    ;; None.
    (if (call $does (i32.const 9)) (then (return (i32.const 0))))
    ;; A list, and an empty one after it.
    (if (call $does (i32.const 10)) (then
      (call $result_victims (i32.const 1024) (local.get $n))
      (local.set $n (i32.const 0))))
    (call $result_victims (i32.const 1024) (local.get $n))
    (i32.const 0)))
