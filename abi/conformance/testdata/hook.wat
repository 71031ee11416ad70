;; The hook guest of the conformance suite: see doc.go.
(module
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "k8s.io/hooks" "request" (func $request (param i32 i32) (result i32)))
  (import "k8s.io/hooks" "decision" (func $decision (param i32 i32)))
  (memory (export "memory") 1)
  (global $heap i32 (i32.const 1024))
  (data (i32.const 0) "tier")
  (data (i32.const 16) "batch")
  (data (i32.const 32) "idle")
  (data (i32.const 48) "wrong")
  (data (i32.const 56) "node")
  (data (i32.const 64) "tier is wrong")
  ;; resources (1), 3 bytes: cpu_shares (1) = 128.
  (data (i32.const 96) "\0a\03\08\80\01")
  ;; resources (1), 13 bytes: cpu_shares (1) = 2, cfs_quota_us (2) = -1.
  (data (i32.const 112) "\0a\0d\08\02\10\ff\ff\ff\ff\ff\ff\ff\ff\ff\01")

  ;; varint reads a number at p: where it ends, 0 if nowhere, and its value.
  (func $varint (param $p i32) (param $end i32) (result i32 i64)
    (local $shift i64) (local $v i64) (local $b i64)
    (loop $more
      (if (i32.or (i32.ge_u (local.get $p) (local.get $end)) (i64.ge_u (local.get $shift) (i64.const 64)))
        (then (return (i32.const 0) (i64.const 0))))
      (local.set $b (i64.load8_u (local.get $p)))
      (local.set $p (i32.add (local.get $p) (i32.const 1)))
      (local.set $v (i64.or (local.get $v)
        (i64.shl (i64.and (local.get $b) (i64.const 127)) (local.get $shift))))
      (local.set $shift (i64.add (local.get $shift) (i64.const 7)))
      (br_if $more (i64.ge_u (local.get $b) (i64.const 128))))
    (local.get $p) (local.get $v))

  ;; next reads a field of a message: where the next begins, the number, 0 at the
  ;; end, and its bytes with their length, if it has any.
  (func $next (param $p i32) (param $end i32) (result i32 i32 i32 i32)
    (local $key i64) (local $n i64) (local $type i32) (local $number i32)
    (call $varint (local.get $p) (local.get $end))
    (local.set $key) (local.set $p)
    (if (i32.eqz (local.get $p)) (then (return (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))))
    (local.set $type (i32.and (i32.wrap_i64 (local.get $key)) (i32.const 7)))
    (local.set $number (i32.wrap_i64 (i64.shr_u (local.get $key) (i64.const 3))))
    (if (i32.eq (local.get $type) (i32.const 1)) (then (local.set $n (i64.const 8))))
    (if (i32.eq (local.get $type) (i32.const 5)) (then (local.set $n (i64.const 4))))
    (if (i32.or (i32.eqz (local.get $type)) (i32.eq (local.get $type) (i32.const 2)))
      (then
        (call $varint (local.get $p) (local.get $end))
        (local.set $n) (local.set $p)
        (if (i32.eqz (local.get $p)) (then (return (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))))
        (if (i32.eqz (local.get $type))
          (then (return (local.get $p) (local.get $number) (i32.const 0) (i32.const 0))))))
    (if (i32.or (i64.gt_u (local.get $n) (i64.extend_i32_u (i32.sub (local.get $end) (local.get $p))))
                (i32.and (i32.ge_u (local.get $type) (i32.const 3)) (i32.ne (local.get $type) (i32.const 5))))
      (then (return (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))))
    (i32.add (local.get $p) (i32.wrap_i64 (local.get $n)))
    (local.get $number) (local.get $p) (i32.wrap_i64 (local.get $n)))

  ;; field finds the last field of that number: its bytes and their length.
  (func $field (param $p i32) (param $end i32) (param $want i32) (result i32 i32)
    (local $number i32) (local $at i32) (local $n i32) (local $found i32) (local $length i32)
    (block $done
      (loop $more
        (call $next (local.get $p) (local.get $end))
        (local.set $n) (local.set $at) (local.set $number) (local.set $p)
        (br_if $done (i32.eqz (local.get $p)))
        (if (i32.eq (local.get $number) (local.get $want))
          (then (local.set $found (local.get $at)) (local.set $length (local.get $n))))
        (br $more)))
    (local.get $found) (local.get $length))

  ;; equal compares two strings.
  (func $equal (param $a i32) (param $an i32) (param $b i32) (param $bn i32) (result i32)
    (if (i32.ne (local.get $an) (local.get $bn)) (then (return (i32.const 0))))
    (loop $more
      (if (local.get $an)
        (then
          (local.set $an (i32.sub (local.get $an) (i32.const 1)))
          (br_if $more (i32.eq
            (i32.load8_u (i32.add (local.get $a) (local.get $an)))
            (i32.load8_u (i32.add (local.get $b) (local.get $an)))))
          (return (i32.const 0)))))
    (i32.const 1))

  ;; lookup finds a key in the map that is the field of that number: whether it is
  ;; there, its value with the length, and how many entries there are.
  (func $lookup (param $p i32) (param $end i32) (param $want i32) (param $key i32) (param $keylen i32)
      (result i32 i32 i32 i32)
    (local $number i32) (local $at i32) (local $n i32)
    (local $found i32) (local $value i32) (local $length i32) (local $entries i32)
    (block $done
      (loop $more
        (call $next (local.get $p) (local.get $end))
        (local.set $n) (local.set $at) (local.set $number) (local.set $p)
        (br_if $done (i32.eqz (local.get $p)))
        (br_if $more (i32.ne (local.get $number) (local.get $want)))
        (local.set $entries (i32.add (local.get $entries) (i32.const 1)))
        (call $field (local.get $at) (i32.add (local.get $at) (local.get $n)) (i32.const 1))
        (if (call $equal (local.get $key) (local.get $keylen))
          (then
            (local.set $found (i32.const 1))
            (call $field (local.get $at) (i32.add (local.get $at) (local.get $n)) (i32.const 2))
            (local.set $length) (local.set $value)))
        (br $more)))
    (local.get $found) (local.get $value) (local.get $length) (local.get $entries))

  ;; room makes the memory from $heap on at least n bytes long.
  (func $room (param $n i32)
    (local $want i32)
    (local.set $want (i32.sub
      (i32.shr_u (i32.add (i32.add (global.get $heap) (local.get $n)) (i32.const 65535)) (i32.const 16))
      (memory.size)))
    (if (i32.gt_s (local.get $want) (i32.const 0))
      (then (if (i32.eq (memory.grow (local.get $want)) (i32.const -1)) (then unreachable)))))

  (func (export "kubewasm_abi_v1") (result i64) (i64.shl (i64.const 1) (i64.const 48)))

  (func (export "hook") (result i32)
    (local $n i32) (local $at i32) (local $length i32)
    (local.set $n (call $request (global.get $heap) (i32.const 64)))
    (if (i32.gt_u (local.get $n) (i32.const 64))
      (then
        (call $room (local.get $n))
        (drop (call $request (global.get $heap) (local.get $n)))))
    (call $lookup (global.get $heap) (i32.add (global.get $heap) (local.get $n)) (i32.const 5) (i32.const 0) (i32.const 4))
    drop (local.set $length) (local.set $at) drop
    (if (call $equal (local.get $at) (local.get $length) (i32.const 56) (i32.const 4))
      (then
        (call $lookup (global.get $heap) (i32.add (global.get $heap) (local.get $n)) (i32.const 14) (i32.const 0) (i32.const 4))
        drop (local.set $length) (local.set $at) drop))
    (if (call $equal (local.get $at) (local.get $length) (i32.const 16) (i32.const 5))
      (then (call $decision (i32.const 96) (i32.const 5))))
    (if (call $equal (local.get $at) (local.get $length) (i32.const 32) (i32.const 4))
      (then (call $decision (i32.const 112) (i32.const 15))))
    (if (call $equal (local.get $at) (local.get $length) (i32.const 48) (i32.const 5))
      (then
        (call $status_reason (i32.const 64) (i32.const 13))
        (return (i32.const 1))))
    (i32.const 0))
)
