;; A scheduler guest whose filter and score depend on the label rank of the Pod, a digit, and on that
;; of the node, two digits below 31, so that no two nodes have the same score. The configuration's
;; first byte has them depend on more: "n" on the name of the Pod, "u" on what runs on the node, "p" on the first
;; Pod that there was.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "k8s.io/api" "object_part" (func $object_part (param i64 i32 i64 i32 i32) (result i32)))
  (import "k8s.io/api" "object_entry" (func $object_entry (param i64 i32 i32 i32 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_info" (func $node_info (param i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "rank")
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 1))))
  ;; prefilter, filter and score.
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x490))
  (func $does (param i32) (result i32) (i32.eq (i32.load8_u (i32.const 0)) (local.get 0)))
  ;; The sum of the $n bytes at 4096.
  (func $sum (param $n i32) (result i32) (local $sum i32)
    (block $end (loop $next
      (br_if $end (i32.eqz (local.get $n)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (local.set $sum (i32.add (local.get $sum) (i32.load8_u offset=4096 (local.get $n))))
      (br $next)))
    (local.get $sum))
  ;; The digit of the Pod and, with "n", of the bytes of its name.
  (func $podrank (param $pod i64) (result i32) (local $rank i32)
    (if (call $does (i32.const 0x70)) (then (local.set $pod (i64.load (i32.const 32)))))
    (drop (call $object_entry (local.get $pod) (i32.const 11) (i32.const 64) (i32.const 4) (i32.const 1024) (i32.const 64)))
    (local.set $rank (i32.sub (i32.load8_u (i32.const 1024)) (i32.const 48)))
    (if (call $does (i32.const 0x6e)) (then
      (local.set $rank (i32.rem_u (i32.add (local.get $rank)
        (call $sum (call $object_part (local.get $pod) (i32.const 1) (i64.const 2) (i32.const 4096) (i32.const 4096)))) (i32.const 10)))))
    (local.get $rank))
  (func $noderank (param $node i64) (result i32)
    (drop (call $object_entry (local.get $node) (i32.const 11) (i32.const 64) (i32.const 4) (i32.const 1024) (i32.const 64)))
    (i32.add (i32.mul (i32.sub (i32.load8_u (i32.const 1024)) (i32.const 48)) (i32.const 10))
      (i32.sub (i32.load8_u (i32.const 1025)) (i32.const 48))))
  (func (export "prefilter") (param $cycle i64) (param $pod i64) (result i32)
    (if (i64.eqz (i64.load (i32.const 32))) (then (i64.store (i32.const 32) (local.get $pod))))
    (i32.const 0))
  ;; A node is unschedulable for a Pod whose digit is its last.
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.shl (i32.eq (call $podrank (local.get $pod)) (i32.rem_u (call $noderank (local.get $node)) (i32.const 10))) (i32.const 1)))
  (func (export "score") (param $cycle i64) (param $pod i64) (param $node i64) (result i64) (local $score i32)
    (local.set $score (i32.mul (i32.const 3) (i32.rem_u
      (i32.add (call $noderank (local.get $node)) (i32.mul (call $podrank (local.get $pod)) (i32.const 13))) (i32.const 31))))
    (if (call $does (i32.const 0x75)) (then
      (local.set $score (i32.add (local.get $score)
        (i32.rem_u (call $sum (call $node_info (local.get $node) (i32.const 4096) (i32.const 4096))) (i32.const 3))))))
    (i64.shl (i64.extend_i32_u (local.get $score)) (i64.const 32))))
