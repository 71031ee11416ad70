;; A guest of the first design of kube-scheduler-wasm-extension: the Pod and the
;; Node of the call are what k8s.io/api.pod and k8s.io/api.node answer. A node fits
;; if it has more bytes than the Pod.
(module
  (import "k8s.io/api" "pod" (func $pod (param i32 i32) (result i32)))
  (import "k8s.io/api" "node" (func $node (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "status_reason" (func $status_reason (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "the Pod is larger than the node")
  (func (export "filter") (result i32)
    (if (i32.gt_u (call $node (i32.const 0) (i32.const 0)) (call $pod (i32.const 0) (i32.const 0)))
      (then (return (i32.const 0))))
    (call $status_reason (i32.const 0) (i32.const 31))
    (i32.const 3)))
