;; A guest of kube-scheduler-wasm-extension that keeps in memory which of its
;; functions ran, a letter for each. PreFilter begins anew, with the first two letters of
;; the Pod's name. Each function but PreFilter and Score answers Unschedulable with the
;; letters as its reason; Score answers how many there are. A node that is called "trap"
;; ends the guest, after it was noted.
(module
  (import "k8s.io/klog" "log" (func $log (param i32 i32 i32)))
  (import "k8s.io/scheduler" "currentPod" (func $current_pod (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "currentNodeName" (func $current_node_name (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result.status_reason" (func $status_reason (param i32 i32)))
  (memory (export "memory") 2)
  ;; The letters are at 1024.
  (global $n (mut i32) (i32.const 0))
  (global $scratch i32 (i32.const 65536))

  (func $add (param $letter i32)
    (i32.store8 (i32.add (i32.const 1024) (global.get $n)) (local.get $letter))
    (global.set $n (i32.add (global.get $n) (i32.const 1))))
  (func $answer (param $letter i32) (result i32)
    (call $add (local.get $letter))
    (call $status_reason (i32.const 1024) (global.get $n))
    (i32.const 2))

  (func (export "prefilter") (result i32)
    (drop (call $current_pod (global.get $scratch) (i32.const 65536)))
    (global.set $n (i32.const 0))
    ;; The name is the first field of the metadata, which are the first of the Pod.
    (call $add (i32.load8_u (i32.add (global.get $scratch) (i32.const 4))))
    (call $add (i32.load8_u (i32.add (global.get $scratch) (i32.const 5))))
    (i32.const 0))
  (func (export "addpod") (result i32) (call $answer (i32.const 43)))
  (func (export "removepod") (result i32) (call $answer (i32.const 45)))
  (func (export "filter") (result i32)
    (i32.store (global.get $scratch) (i32.const 0))
    (drop (call $current_node_name (global.get $scratch) (i32.const 256)))
    (if (i32.eq (i32.load (global.get $scratch)) (i32.const 0x70617274)) (then unreachable))
    (call $answer (i32.const 102)))
  (func (export "score") (result i64)
    (call $add (i32.const 115))
    (i64.shl (i64.extend_i32_u (global.get $n)) (i64.const 32)))
  (func (export "reserve") (result i32) (call $answer (i32.const 114)))
  (func (export "unreserve")
    (call $add (i32.const 117))
    (call $log (i32.const 0) (i32.const 1024) (global.get $n)))
  (func (export "permit") (result i64)
    (i64.shl (i64.extend_i32_u (call $answer (i32.const 119))) (i64.const 32)))
  (func (export "prebind") (result i32) (call $answer (i32.const 98)))
  (func (export "bind") (result i32) (call $answer (i32.const 66)))
  (func (export "postbind")
    (call $add (i32.const 80))
    (call $log (i32.const 0) (i32.const 1024) (global.get $n))))
