;; The guest of signed.wat, whose score depends on more than the Pod and the node: "o" on what runs on
;; all nodes, as prefilter finds it, "r" on how many Pods it has reserved nodes for. It remembers both in
;; the one instance that it needs.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "k8s.io/api" "object_part" (func $object_part (param i64 i32 i64 i32 i32) (result i32)))
  (import "k8s.io/api" "object_entry" (func $object_entry (param i64 i32 i32 i32 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_info" (func $node_info (param i64 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_refs" (func $node_refs (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 64) "rank")
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 1))))
  (global $more (mut i32) (i32.const 0))
  ;; prefilter, filter, score and reserve.
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x1490))
  (func $does (param i32) (result i32) (i32.eq (i32.load8_u (i32.const 0)) (local.get 0)))
  ;; The sum of the $n bytes at 4096.
  (func $sum (param $n i32) (result i32) (local $sum i32)
    (block $end (loop $next
      (br_if $end (i32.eqz (local.get $n)))
      (local.set $n (i32.sub (local.get $n) (i32.const 1)))
      (local.set $sum (i32.add (local.get $sum) (i32.load8_u offset=4096 (local.get $n))))
      (br $next)))
    (local.get $sum))
  (func $podrank (param $pod i64) (result i32)
    (drop (call $object_entry (local.get $pod) (i32.const 11) (i32.const 64) (i32.const 4) (i32.const 1024) (i32.const 64)))
    (i32.rem_u (i32.add (i32.sub (i32.load8_u (i32.const 1024)) (i32.const 48)) (global.get $more)) (i32.const 10)))
  (func $noderank (param $node i64) (result i32)
    (drop (call $object_entry (local.get $node) (i32.const 11) (i32.const 64) (i32.const 4) (i32.const 1024) (i32.const 64)))
    (i32.add (i32.mul (i32.sub (i32.load8_u (i32.const 1024)) (i32.const 48)) (i32.const 10))
      (i32.sub (i32.load8_u (i32.const 1025)) (i32.const 48))))
  (func (export "prefilter") (param $cycle i64) (param $pod i64) (result i32) (local $at i32)
    (if (call $does (i32.const 0x6f)) (then
      (global.set $more (i32.const 0))
      (local.set $at (call $node_refs (i32.const 16384) (i32.const 16384)))
      (block $end (loop $next
        (br_if $end (i32.eqz (local.get $at)))
        (local.set $at (i32.sub (local.get $at) (i32.const 8)))
        (global.set $more (i32.add (global.get $more)
          (call $sum (call $node_info (i64.load offset=16384 (local.get $at)) (i32.const 4096) (i32.const 4096)))))
        (br $next)))))
    (i32.const 0))
  (func (export "reserve") (param $cycle i64) (param $pod i64) (result i32)
    (if (call $does (i32.const 0x72)) (then (global.set $more (i32.add (global.get $more) (i32.const 1)))))
    (i32.const 0))
  ;; A node is unschedulable for a Pod whose digit is its last.
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (i32.shl (i32.eq (call $podrank (local.get $pod)) (i32.rem_u (call $noderank (local.get $node)) (i32.const 10))) (i32.const 1)))
  (func (export "score") (param $cycle i64) (param $pod i64) (param $node i64) (result i64) (local $score i32)
    (local.set $score (i32.mul (i32.const 3) (i32.rem_u
      (i32.add (call $noderank (local.get $node)) (i32.mul (call $podrank (local.get $pod)) (i32.const 13))) (i32.const 31))))
    (i64.shl (i64.extend_i32_u (local.get $score)) (i64.const 32))))
