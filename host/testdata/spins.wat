;; A guest that takes its time, in as many ways as the low half of the pod's ref
;; counts. It counts its calls in memory and in a global: a guest that begins
;; anew has forgotten them.
(module
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1 1024)
  (global $calls (mut i32) (i32.const 0))
  (func $a (param i32) (if (local.get 0) (then (call $b (i32.sub (local.get 0) (i32.const 1))))))
  (func $b (param i32) (if (local.get 0) (then (call $a (i32.sub (local.get 0) (i32.const 1))))))
  ;; 2^n calls.
  (func $tree (param $n i32)
    (if (local.get $n)
      (then
        (call $tree (i32.sub (local.get $n) (i32.const 1)))
        (call $tree (i32.sub (local.get $n) (i32.const 1))))))
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func $spin (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $how i32) (local $n i64)
    (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
    (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
    (local.set $how (i32.wrap_i64 (local.get $pod)))
    (local.set $n (local.get $node))
    ;; An endless loop.
    (if (i32.eq (local.get $how) (i32.const 1)) (then (loop $l (br $l))))
    ;; A recursion that ends after longer than anybody waits, and is not deep.
    (if (i32.eq (local.get $how) (i32.const 2)) (then (call $tree (i32.const 60))))
    ;; A mutual recursion that is as deep as the node counts.
    (if (i32.eq (local.get $how) (i32.const 3)) (then (call $a (i32.wrap_i64 (local.get $node)))))
    ;; An endless loop of host calls.
    (if (i32.eq (local.get $how) (i32.const 4)) (then (loop $l (call $log (i32.const -4) (i32.const 0) (i32.const 0)) (br $l))))
    ;; An endless loop that fills memory.
    (if (i32.eq (local.get $how) (i32.const 5)) (then (loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $l))))
    ;; As many rounds as the node counts.
    (if (i32.eq (local.get $how) (i32.const 6)) (then
      (loop $l
        (local.set $n (i64.sub (local.get $n) (i64.const 1)))
        (br_if $l (i64.gt_s (local.get $n) (i64.const 0))))))
    ;; An endless loop that grows memory.
    (if (i32.eq (local.get $how) (i32.const 7)) (then (loop $l (drop (memory.grow (i32.const 1))) (br $l))))
    ;; Grows by a page and traps.
    (if (i32.eq (local.get $how) (i32.const 8)) (then (drop (memory.grow (i32.const 1))) unreachable))
    ;; Traps.
    (if (i32.eq (local.get $how) (i32.const 9)) (then unreachable))
    ;; As many host calls as the node counts.
    (if (i32.eq (local.get $how) (i32.const 10)) (then
      (loop $l
        (call $log (i32.const -4) (i32.const 0) (i32.const 0))
        (local.set $n (i64.sub (local.get $n) (i64.const 1)))
        (br_if $l (i64.gt_s (local.get $n) (i64.const 0))))))
    ;; The calls so far, by both counts.
    (i32.or (i32.shl (global.get $calls) (i32.const 16)) (i32.load (i32.const 0)))))
