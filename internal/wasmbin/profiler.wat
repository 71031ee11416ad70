;; The call tree of a profile. A guest that is rewritten with Options.Profile imports the
;; functions. Each instance of it has a module of this kind beside it, with a memory of its
;; own, so that the memory of the guest stays as it is.
;;
;; A node is a call path: a function that is called from another node. It is a number, and
;; takes 32 bytes:
;;
;;	 0  i64  the fuel that the function used on this path, without that of others
;;	 8  i64  the bytes by which it let its memory grow
;;	16  i32  the node of its caller
;;	20  i32  the index of the function, imports included
;;	24  i32  the next node in the same bucket, 0 for none
;;	28  i32  the length of the path; the highest bit is set for a loop that resumes
;;	         functions of Go
;;
;; Node 0 is the host, whose calls begin paths. Node 1 stands for the paths for which there
;; is no room: functions are called from it. The memory begins with 65,536 buckets of 4 bytes,
;; which find a node by its caller and its function. The frames follow, see $frame: 524,288 of
;; 8 bytes. The nodes are after them.
(module
  (memory (export "memory") 76)
  ;; cur is the node of the function that runs. last is the fuel that was left when $spend
  ;; saw it last; the host moves it when it changes the fuel.
  (global $cur (export "cur") (mut i32) (i32.const 0))
  (global $last (export "last") (mut i64) (i64.const 0))
  ;; count is the number of nodes. Beyond limit, paths are cut to their last function. Paths
  ;; longer than depth lose functions in their middle.
  (global $count (export "count") (mut i32) (i32.const 2))
  (global $limit (export "limit") (mut i32) (i32.const 262144))
  (global $depth (export "depth") (mut i32) (i32.const 256))

  (func $node (param $n i32) (result i32)
    (i32.add (i32.const 0x440000) (i32.shl (local.get $n) (i32.const 5))))

  ;; spend charges the running function for the fuel that was used since the last event.
  (func $spend (export "spend") (param $fuel i64)
    (local $at i32)
    (local.set $at (call $node (global.get $cur)))
    (i64.store (local.get $at)
      (i64.add (i64.load (local.get $at)) (i64.sub (global.get $last) (local.get $fuel))))
    (global.set $last (local.get $fuel)))

  ;; child returns the node of a function that is called from a node.
  (func $child (export "child") (param $parent i32) (param $func i32) (result i32)
    (local $bucket i32) (local $n i32) (local $at i32)
    (local.set $bucket
      (i32.mul
        (i32.xor
          (i32.mul (local.get $parent) (i32.const 0x9E3779B1))
          (i32.mul (local.get $func) (i32.const 0x85EBCA77)))
        (i32.const 0x9E3779B1)))
    (local.set $bucket (i32.shl (i32.shr_u (local.get $bucket) (i32.const 16)) (i32.const 2)))
    (local.set $n (i32.load (local.get $bucket)))
    (block $missing
      (loop $next
        (br_if $missing (i32.eqz (local.get $n)))
        (local.set $at (call $node (local.get $n)))
        (if (i32.and
              (i32.eq (i32.load offset=16 (local.get $at)) (local.get $parent))
              (i32.eq (i32.load offset=20 (local.get $at)) (local.get $func)))
          (then (return (local.get $n))))
        (local.set $n (i32.load offset=24 (local.get $at)))
        (br $next)))
    ;; A path that is too long goes on beside the function that it would go on from.
    (local.set $at (call $node (local.get $parent)))
    (if (i32.ge_u
          (i32.and (i32.load offset=28 (local.get $at)) (i32.const 0x7fffffff))
          (global.get $depth))
      (then (return (call $child (i32.load offset=16 (local.get $at)) (local.get $func)))))
    (if (i32.and
          (i32.ge_u (global.get $count) (global.get $limit))
          (i32.ne (local.get $parent) (i32.const 1)))
      (then (return (call $child (i32.const 1) (local.get $func)))))
    (if (i32.gt_u
          (call $node (i32.add (global.get $count) (i32.const 1)))
          (i32.shl (memory.size) (i32.const 16)))
      (then
        (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1))
          (then (return (local.get $parent))))))
    (local.set $n (global.get $count))
    (global.set $count (i32.add (local.get $n) (i32.const 1)))
    (i32.store offset=28 (call $node (local.get $n))
      (i32.add
        (i32.and (i32.load offset=28 (local.get $at)) (i32.const 0x7fffffff))
        (i32.const 1)))
    (local.set $at (call $node (local.get $n)))
    (i32.store offset=16 (local.get $at) (local.get $parent))
    (i32.store offset=20 (local.get $at) (local.get $func))
    (i32.store offset=24 (local.get $at) (i32.load (local.get $bucket)))
    (i32.store (local.get $bucket) (local.get $n))
    (local.get $n))

  ;; current returns the node of the function that runs.
  (func $current (export "current") (result i32) (global.get $cur))

  ;; enter begins a function, and returns the node that leave goes back to.
  (func $enter (export "enter") (param $func i32) (param $fuel i64) (result i32)
    (local $from i32)
    (call $spend (local.get $fuel))
    (local.set $from (global.get $cur))
    (global.set $cur (call $child (local.get $from) (local.get $func)))
    (local.get $from))

  ;; enter_loop is enter for a loop that resumes functions of Go.
  (func $enter_loop (export "enter_loop") (param $func i32) (param $fuel i64) (result i32)
    (local $from i32) (local $at i32)
    (local.set $from (call $enter (local.get $func) (local.get $fuel)))
    (local.set $at (call $node (global.get $cur)))
    (i32.store offset=28 (local.get $at)
      (i32.or (i32.load offset=28 (local.get $at)) (i32.const 0x80000000)))
    (local.get $from))

  ;; leave ends a function, or goes back to one that catches an exception.
  (func $leave (export "leave") (param $to i32) (param $fuel i64)
    (call $spend (local.get $fuel))
    (global.set $cur (local.get $to)))

  ;; grew counts the pages of a memory.grow that returned result, and returns that.
  (func $grew (export "grew") (param $result i32) (param $pages i32) (result i32)
    (local $at i32)
    (if (i32.ne (local.get $result) (i32.const -1))
      (then
        (local.set $at (call $node (global.get $cur)))
        (i64.store offset=8 (local.get $at)
          (i64.add (i64.load offset=8 (local.get $at))
            (i64.shl (i64.extend_i32_u (local.get $pages)) (i64.const 16))))))
    (local.get $result))

  ;; frame returns the entry for the call that lies at a depth of the stack of a goroutine. The
  ;; depth is how far below the upper end of the stack the return address lies, which stays the
  ;; same when the stack is moved. There is room for the upper 128 KiB of 32 stacks, which
  ;; others may take over:
  ;;
  ;;	 0  i32  the goroutine
  ;;	 4  i32  the node of the function that was called there last
  (func $frame (param $g i32) (param $depth i32) (result i32)
    (i32.add (i32.const 0x40000)
      (i32.or
        (i32.shl
          (i32.shr_u (i32.mul (local.get $g) (i32.const 0x9E3779B1)) (i32.const 27))
          (i32.const 17))
        (i32.and (local.get $depth) (i32.const 0x1fff8)))))

  ;; called returns the node of the call at a depth, 0 if it is not known.
  (func $called (param $g i32) (param $depth i32) (result i32)
    (local $at i32)
    (local.set $at (call $frame (local.get $g) (local.get $depth)))
    (if (i32.eq (i32.load (local.get $at)) (local.get $g))
      (then (return (i32.load offset=4 (local.get $at)))))
    (i32.const 0))

  ;; enter_go is enter for a function of Go, at the block pc_b. A loop resumes functions of a
  ;; goroutine that has waited, or whose stack has moved: the innermost at its beginning, or
  ;; each where it had called the next one. They go on in the node that they had.
  (func $enter_go (export "enter_go")
    (param $func i32) (param $fuel i64) (param $pc_b i32) (param $g i32) (param $depth i32) (result i32)
    (local $from i32) (local $n i32) (local $at i32)
    (call $spend (local.get $fuel))
    (local.set $from (global.get $cur))
    (if (local.get $pc_b)
      (then
        ;; The return address of the call lies below the function's own frame.
        (local.set $n (i32.load offset=16 (call $node
          (call $called (local.get $g) (i32.add (local.get $depth) (i32.const 8))))))
        (if (i32.or
              (i32.eqz (local.get $n))
              (i32.ne (i32.load offset=20 (call $node (local.get $n))) (local.get $func)))
          (then (local.set $n (call $child (local.get $from) (local.get $func))))))
      (else
        (if (i32.lt_s (i32.load offset=28 (call $node (local.get $from))) (i32.const 0))
          (then
            (local.set $n (call $called (local.get $g) (local.get $depth)))
            (if (i32.ne (i32.load offset=20 (call $node (local.get $n))) (local.get $func))
              (then (local.set $n (i32.const 0))))))
        (if (i32.eqz (local.get $n))
          (then (local.set $n (call $child (local.get $from) (local.get $func)))))
        (local.set $at (call $frame (local.get $g) (local.get $depth)))
        (i32.store (local.get $at) (local.get $g))
        (i32.store offset=4 (local.get $at) (local.get $n))))
    (global.set $cur (local.get $n))
    (local.get $from)))
