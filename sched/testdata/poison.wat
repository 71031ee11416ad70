;; A scheduler guest that misbehaves in one function. Its configuration:
;;   bytes 0..8    the mask of the functions that it implements
;;   bytes 8..12   the function in which it misbehaves
;;   bytes 12..16  how: 0 it loops, 1 it traps, 2 it recurses, 3 its memory grows, 4 it works for
;;                 long and answers
;;   bytes 16..24  the cluster event that it registers for
;;   bytes 24..28  the status that its Filter returns, if it returns
;;   bytes 28..32  the same of its PreFilter, Success if they are left out
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result_cluster_events" (func $events (param i32 i32)))
  (memory (export "memory") 1)
  (func (export "_initialize") (drop (call $config (i32.const 0) (i32.const 32))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.load (i32.const 0)))
  (func $recurse (param i64) (result i64)
    (i64.add (i64.const 1) (call $recurse (i64.add (local.get 0) (i64.const 1)))))
  (func $act (param $function i32) (local $n i32)
    (if (i32.ne (local.get $function) (i32.load (i32.const 8))) (then (return)))
    (if (i32.eq (i32.load (i32.const 12)) (i32.const 0)) (then (loop $forever (br $forever))))
    (if (i32.eq (i32.load (i32.const 12)) (i32.const 1)) (then unreachable))
    (if (i32.eq (i32.load (i32.const 12)) (i32.const 2)) (then (drop (call $recurse (i64.const 0)))))
    (if (i32.eq (i32.load (i32.const 12)) (i32.const 3)) (then
      (loop $more
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable))
        (br $more))))
    (if (i32.eq (i32.load (i32.const 12)) (i32.const 4)) (then
      (local.set $n (i32.const 100000))
      (loop $next
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br_if $next (local.get $n))))))
  (func (export "preenqueue") (param i64) (result i32) (call $act (i32.const 0)) (i32.const 0))
  (func (export "queuesort") (param i64 i64 i64 i64) (result i32) (call $act (i32.const 1)) (i32.const 0))
  (func (export "eventstoregister") (result i32) (call $events (i32.const 16) (i32.const 8)) (i32.const 0))
  (func (export "queueinghint") (param i32 i64 i64 i64) (result i64) (call $act (i32.const 3)) (i64.const 0))
  (func (export "prefilter") (param i64 i64) (result i32) (call $act (i32.const 4)) (i32.load (i32.const 28)))
  (func (export "removepod") (param i64 i64 i64 i64) (result i32) (call $act (i32.const 6)) (i32.const 0))
  (func (export "filter") (param i64 i64 i64) (result i32) (call $act (i32.const 7)) (i32.load (i32.const 24)))
  (func (export "score") (param i64 i64 i64) (result i64) (call $act (i32.const 10)) (i64.const 0))
  (func (export "reserve") (param i64 i64) (result i32) (call $act (i32.const 12)) (i32.const 0))
  (func (export "unreserve") (param i64 i64) (call $act (i32.const 13)))
  (func (export "permit") (param i64 i64) (result i64) (call $act (i32.const 14)) (i64.const 0))
  (func (export "postbind") (param i64 i64) (call $act (i32.const 18)))
  (func (export "prequeueinghint") (param i32 i64 i64) (result i32) (call $act (i32.const 25)) (i32.const 0)))
