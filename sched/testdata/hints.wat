;; A scheduler guest with a hint: a Pod is tried again if its label zone is that of the new Node.
;; The configuration's first byte has the hint do more: "n" reads the name of the Pod, "r" a ref
;; that is no argument of the call, "l" logs, "f" fails.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (import "k8s.io/api" "object_part" (func $object_part (param i64 i32 i64 i32 i32) (result i32)))
  (import "k8s.io/api" "object_entry" (func $object_entry (param i64 i32 i32 i32 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result_cluster_events" (func $result_cluster_events (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "zone")
  ;; Two events of Nodes: Add and UpdateNodeLabel, each with the hint.
  (data (i32.const 80) "\04\00\00\00\01\00\00\80\04\00\00\00\08\00\00\80")
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 1))))
  ;; eventstoregister, queueinghint, prefilter and filter.
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 156))
  (func $does (param i32) (result i32) (i32.eq (i32.load8_u (i32.const 0)) (local.get 0)))
  (func (export "eventstoregister") (result i32)
    (call $result_cluster_events (i32.const 80) (i32.const 16))
    (i32.const 0))
  ;; The label zone in 64 bytes at $to.
  (func $zone (param $ref i64) (param $to i32)
    (memory.fill (local.get $to) (i32.const 0) (i32.const 64))
    (drop (call $object_entry (local.get $ref) (i32.const 11) (i32.const 64) (i32.const 4) (local.get $to) (i32.const 64))))
  (func (export "queueinghint") (param $event i32) (param $pod i64) (param $old i64) (param $new i64) (result i64)
    (call $zone (local.get $pod) (i32.const 1024))
    (call $zone (local.get $new) (i32.const 1088))
    (if (call $does (i32.const 0x6e)) (then
      (drop (call $object_part (local.get $pod) (i32.const 1) (i64.const 2) (i32.const 2048) (i32.const 256)))))
    (if (call $does (i32.const 0x72)) (then
      (drop (call $object_part (i64.load (i32.const 16)) (i32.const 1) (i64.const 8) (i32.const 2048) (i32.const 256)))))
    (if (call $does (i32.const 0x6c)) (then (call $log (i32.const 0) (i32.const 64) (i32.const 4))))
    (if (call $does (i32.const 0x66)) (then (return (i64.const 1))))
    (if (i64.eq (i64.load (i32.const 1024)) (i64.load (i32.const 1088))) (then (return (i64.const 0x100000000))))
    (i64.const 0))
  ;; The Pod of the cycle is the ref that "r" reads.
  (func (export "prefilter") (param $cycle i64) (param $pod i64) (result i32)
    (i64.store (i32.const 16) (local.get $pod))
    (i32.const 0))
  (func (export "filter") (param i64 i64 i64) (result i32) (i32.const 2)))
