;; A scheduler guest that keeps Pods out of the queue until there is a ConfigMap shop/first, and
;; whose Filter looks it up as well.
(module
  (import "k8s.io/api" "get_object" (func $get (param i32 i32 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result_cluster_events" (func $events (param i32 i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "v1/configmaps\00shop\00first")
  (data (i32.const 32) "no ConfigMap")
  ;; Additions of Nodes, with a hint.
  (data (i32.const 48) "\04\00\00\00\01\00\00\80")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x8d))
  ;; 0 if there is the ConfigMap, otherwise UnschedulableAndUnresolvable.
  (func $look (result i32)
    (if (call $get (i32.const 0) (i32.const 24) (i32.const 1024) (i32.const 1024)) (then (return (i32.const 0))))
    (call $status_reason (i32.const 32) (i32.const 12))
    (i32.const 3))
  (func (export "preenqueue") (param i64) (result i32) (call $look))
  (func (export "eventstoregister") (result i32) (call $events (i32.const 48) (i32.const 8)) (i32.const 0))
  ;; A Pod is worth another try once there is the ConfigMap.
  (func (export "queueinghint") (param i32 i64 i64 i64) (result i64)
    (i64.shl (i64.extend_i32_u (i32.eqz (call $look))) (i64.const 32)))
  (func (export "filter") (param i64 i64 i64) (result i32) (call $look)))
