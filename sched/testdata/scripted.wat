;; A scheduler guest that does what its configuration says:
;;   bytes 0..8    the mask of the functions that it implements
;;   bytes 8..12   the status code that every function returns
;;   bytes 12..16  what it does before (see the functions)
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "k8s.io/api" "object" (func $object (param i64 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_scores" (func $node_scores (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_names" (func $node_names (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result_node_names" (func $result_node_names (param i32 i32)))
  (import "k8s.io/scheduler" "result_scores" (func $result_scores (param i32 i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "because")
  (data (i32.const 128) "n1\00n2\00")
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 16))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.load (i32.const 0)))
  (func $does (param i32) (result i32)
    (i32.eq (i32.load (i32.const 12)) (local.get 0)))
  (func $answer (result i32)
    (call $status_reason (i32.const 64) (i32.const 7))
    (i32.load (i32.const 8)))

  (func (export "prefilter") (param $cycle i64) (param $pod i64) (result i32)
    (if (call $does (i32.const 1)) (then unreachable))
    (if (call $does (i32.const 2)) (then (call $result_node_names (i32.const 128) (i32.const 6))))
    (if (call $does (i32.const 3)) (then (call $result_node_names (i32.const 128) (i32.const 5))))
    (if (call $does (i32.const 4)) (then (call $result_node_names (i32.const 0) (i32.const 0))))
    (call $answer))

  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (call $does (i32.const 10)) (then unreachable))
    (if (call $does (i32.const 11)) (then (call $result_scores (i32.const 0) (i32.const 0))))
    (if (call $does (i32.const 12)) (then (call $result_node_names (i32.const 0) (i32.const 0))))
    (if (call $does (i32.const 13)) (then (drop (call $node_scores (i32.const 0) (i32.const 0)))))
    (if (call $does (i32.const 14)) (then (drop (call $node_names (i32.const 0) (i32.const 0)))))
    (if (call $does (i32.const 15)) (then (drop (call $object (i64.const 0) (i32.const 0) (i32.const 0)))))
    ;; The version after the node's.
    (if (call $does (i32.const 16)) (then (drop (call $object
      (i64.add (local.get $node) (i64.const 0x100000000)) (i32.const 0) (i32.const 0)))))
    ;; A slot that nobody has.
    (if (call $does (i32.const 17)) (then (drop (call $object
      (i64.const 0x1ffffffff) (i32.const 0) (i32.const 0)))))
    ;; The node and the pod, whole.
    (if (call $does (i32.const 18)) (then
      (drop (call $object (local.get $node) (i32.const 1024) (i32.const 65536)))
      (drop (call $object (local.get $pod) (i32.const 1024) (i32.const 65536)))))
    (call $answer))

  (func (export "score") (param $cycle i64) (param $pod i64) (param $node i64) (result i64)
    ;; Minus the slot of the node.
    (i64.or
      (i64.shl (i64.sub (i64.const 0) (i64.extend_i32_u (i32.wrap_i64 (local.get $node)))) (i64.const 32))
      (i64.extend_i32_u (call $answer))))

  (func (export "normalizescore") (param $cycle i64) (param $pod i64) (result i32)
    (local $n i32) (local $i i32)
    (if (call $does (i32.const 20)) (then unreachable))
    (if (call $does (i32.const 21)) (then (call $result_scores (i32.const 0) (i32.const 8))))
    ;; Each score by 2, and the first byte of the i-th name added.
    (if (call $does (i32.const 22)) (then
      (local.set $n (call $node_scores (i32.const 1024) (i32.const 65536)))
      (drop (call $node_names (i32.const 70000) (i32.const 60000)))
      (loop $next
        (i64.store (i32.add (i32.const 1024) (local.get $i))
          (i64.mul (i64.load (i32.add (i32.const 1024) (local.get $i))) (i64.const 2)))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br_if $next (i32.lt_u (local.get $i) (local.get $n))))
      (call $result_scores (i32.const 1024) (local.get $n))))
    (call $answer))

  ;; The others do nothing but answer.
  (func (export "preenqueue") (param i64) (result i32) (call $answer))
  (func (export "queuesort") (param i64) (param i64) (param i64) (param i64) (result i32) (call $answer))
  (func (export "eventstoregister")  (result i32) (call $answer))
  (func (export "prequeueinghint") (param i32) (param i64) (param i64) (result i32) (call $answer))
  (func (export "queueinghint") (param i32) (param i64) (param i64) (param i64) (result i64) (i64.extend_i32_u (call $answer)))
  (func (export "addpod") (param i64) (param i64) (param i64) (param i64) (result i32) (call $answer))
  (func (export "removepod") (param i64) (param i64) (param i64) (param i64) (result i32) (call $answer))
  (func (export "postfilter") (param i64) (param i64) (result i64) (i64.extend_i32_u (call $answer)))
  (func (export "prescore") (param i64) (param i64) (result i32) (call $answer))
  (func (export "reserve") (param i64) (param i64) (result i32) (call $answer))
  (func (export "unreserve") (param i64) (param i64) )
  (func (export "permit") (param i64) (param i64) (result i64) (i64.extend_i32_u (call $answer)))
  (func (export "prebindpreflight") (param i64) (param i64) (result i64) (i64.extend_i32_u (call $answer)))
  (func (export "prebind") (param i64) (param i64) (result i32) (call $answer))
  (func (export "bind") (param i64) (param i64) (result i32) (call $answer))
  (func (export "postbind") (param i64) (param i64) )
  (func (export "signpod") (param i64) (result i32) (call $answer))
  (func (export "podgrouppostfilter") (param i64) (result i32) (call $answer))
  (func (export "generateplacements") (param i64) (result i32) (call $answer))
  (func (export "scoreplacement") (param i64) (result i64) (i64.extend_i32_u (call $answer)))
  (func (export "normalizeplacementscore") (param i64) (result i32) (call $answer))
  (func (export "clonecycle") (param i64) (param i64) (result i32)
    (if (call $does (i32.const 30)) (then
      (call $status_reason (i32.const 64) (i32.const 7))
      (return (i32.const 1))))
    (call $answer)))
