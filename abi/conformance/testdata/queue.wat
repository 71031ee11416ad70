;; The queue guest of the conformance suite: see doc.go.
(module
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "k8s.io/api" "object" (func $object (param i64 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result_cluster_events" (func $result_cluster_events (param i32 i32)))
  (import "k8s.io/scheduler" "result_pods" (func $result_pods (param i32 i32)))
  (import "k8s.io/scheduler" "result_sign_fragments" (func $result_sign_fragments (param i32 i32)))
  (memory (export "memory") 1)
  (global $heap i32 (i32.const 2048))
  ;; Where the next object is read to: $fetch moves it, an export puts it back.
  (global $free (mut i32) (i32.const 2048))
  (data (i32.const 0) "hold")
  (data (i32.const 8) "twice")
  (data (i32.const 16) "first\00second")
  (data (i32.const 32) "order")
  (data (i32.const 40) "zone")
  (data (i32.const 48) "after")
  (data (i32.const 56) "puzzled")
  (data (i32.const 64) "no hint")
  (data (i32.const 72) "unlike")
  (data (i32.const 80) "unlike any other")
  (data (i32.const 96) "\22\00labels\00")
  (data (i32.const 108) "before")
  (data (i32.const 116) "everyone")
  ;; Node: UpdateNodeLabel and Add, with a hint; AssignedPod: Delete, with a hint;
  ;; PersistentVolumeClaim: Add; Pod: Add, with a hint for all Pods.
  (data (i32.const 128) "\04\00\00\00\09\00\00\80\01\00\00\00\02\00\00\80\06\00\00\00\01\00\00\00\00\00\00\00\01\00\00\40")
  (data (i32.const 176) "\00default\00always\00")
  (data (i32.const 256) "held: ")
  (data (i32.const 512) "zone\00\22")
  (data (i32.const 768) "default\00")

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

  ;; room makes the memory from $free on at least n bytes long.
  (func $room (param $n i32)
    (local $want i32)
    (local.set $want (i32.sub
      (i32.shr_u (i32.add (i32.add (global.get $free) (local.get $n)) (i32.const 65535)) (i32.const 16))
      (memory.size)))
    (if (i32.gt_s (local.get $want) (i32.const 0))
      (then (if (i32.eq (memory.grow (local.get $want)) (i32.const -1)) (then unreachable)))))

  (func (export "kubewasm_abi_v1") (result i64)
    ;; preenqueue (0), queuesort (1), eventstoregister (2), queueinghint (3), signpod (19),
    ;; prequeueinghint (25).
    (i64.const 0x208000f))

  ;; begin makes room again for objects, in each exported function that reads any.
  (func $begin (global.set $free (global.get $heap)))

  ;; fetch reads an object behind those that were read before and returns its
  ;; metadata.
  (func $fetch (param $ref i64) (result i32 i32)
    (local $n i32) (local $p i32)
    (local.set $n (call $object (local.get $ref) (i32.const 0) (i32.const 0)))
    (call $room (local.get $n))
    (local.set $p (global.get $free))
    (drop (call $object (local.get $ref) (local.get $p) (local.get $n)))
    (global.set $free (i32.add (local.get $p) (local.get $n)))
    (call $field (local.get $p) (global.get $free) (i32.const 1))
    (local.set $n) (local.tee $p)
    (i32.add (local.get $p) (local.get $n)))

  ;; label returns a label of metadata: whether it is there, and its value.
  (func $label (param $p i32) (param $end i32) (param $key i32) (param $keylen i32) (result i32 i32 i32)
    (call $lookup (local.get $p) (local.get $end) (i32.const 11) (local.get $key) (local.get $keylen))
    drop)

  (func (export "preenqueue") (param $pod i64) (result i32)
    (local $value i32) (local $n i32)
    (call $begin)
    (call $fetch (local.get $pod))
    (call $label (i32.const 0) (i32.const 4))
    (local.set $n) (local.set $value)
    (if (i32.eqz) (then (return (i32.const 0))))
    (if (call $equal (local.get $value) (local.get $n) (i32.const 8) (i32.const 5))
      (then (call $status_reason (i32.const 16) (i32.const 12)))
      (else
        (if (i32.gt_u (local.get $n) (i32.const 63)) (then unreachable))
        (memory.copy (i32.const 262) (local.get $value) (local.get $n))
        (call $status_reason (i32.const 256) (i32.add (i32.const 6) (local.get $n)))))
    (i32.const 3))

  ;; compare compares two strings: below 0 if the first is smaller, above 0 if the
  ;; second is.
  (func $compare (param $a i32) (param $an i32) (param $b i32) (param $bn i32) (result i32)
    (local $i i32) (local $difference i32)
    (block $ended
      (loop $more
        (br_if $ended (i32.ge_u (local.get $i) (local.get $an)))
        (br_if $ended (i32.ge_u (local.get $i) (local.get $bn)))
        (local.set $difference (i32.sub
          (i32.load8_u (i32.add (local.get $a) (local.get $i)))
          (i32.load8_u (i32.add (local.get $b) (local.get $i)))))
        (if (local.get $difference) (then (return (local.get $difference))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $more)))
    (i32.sub (local.get $an) (local.get $bn)))

  (func (export "queuesort") (param $first i64) (param $second i64) (param $first_time i64) (param $second_time i64)
      (param $first_attempt i64) (param $second_attempt i64) (param $first_attempts i64) (param $second_attempts i64) (result i32)
    (local $a i32) (local $an i32) (local $b i32) (local $bn i32) (local $order i32)
    (call $begin)
    (call $fetch (local.get $first))
    (call $label (i32.const 32) (i32.const 5))
    (local.set $an) (local.set $a) drop
    (call $fetch (local.get $second))
    (call $label (i32.const 32) (i32.const 5))
    (local.set $bn) (local.set $b) drop
    (local.set $order (call $compare (local.get $a) (local.get $an) (local.get $b) (local.get $bn)))
    (if (local.get $order) (then (return (local.get $order))))
    ;; The one that was tried less often is first, then the one that was to be tried first, then the
    ;; one that came later.
    (local.set $order (i32.sub
      (i64.gt_s (local.get $first_attempts) (local.get $second_attempts))
      (i64.lt_s (local.get $first_attempts) (local.get $second_attempts))))
    (if (local.get $order) (then (return (local.get $order))))
    (local.set $order (i32.sub
      (i64.gt_s (local.get $first_attempt) (local.get $second_attempt))
      (i64.lt_s (local.get $first_attempt) (local.get $second_attempt))))
    (if (local.get $order) (then (return (local.get $order))))
    (i32.sub
      (i64.lt_s (local.get $first_time) (local.get $second_time))
      (i64.gt_s (local.get $first_time) (local.get $second_time))))

  (func (export "eventstoregister") (result i32)
    (call $result_cluster_events (i32.const 128) (i32.const 32))
    (i32.const 0))

  (func (export "queueinghint") (param $event i32) (param $pod i64) (param $old i64) (param $new i64) (result i64)
    (local $p i32) (local $end i32) (local $want i32) (local $n i32)
    (call $begin)
    (call $fetch (local.get $pod))
    (local.set $end) (local.set $p)
    (call $label (local.get $p) (local.get $end) (i32.const 56) (i32.const 7))
    drop drop
    (if
      (then
        (call $status_reason (i32.const 64) (i32.const 7))
        (return (i64.const 1))))
    (if (result i32) (local.get $event)
      (then
        (call $label (local.get $p) (local.get $end) (i32.const 48) (i32.const 5))
        (local.set $n) (local.set $want) drop
        (call $fetch (local.get $old))
        (call $field (i32.const 1)) ;; The name.
        (call $equal (local.get $want) (local.get $n)))
      (else
        (call $label (local.get $p) (local.get $end) (i32.const 40) (i32.const 4))
        (local.set $n) (local.set $want) drop
        (i32.and
          (call $in_zone (local.get $new) (local.get $want) (local.get $n))
          (i32.or
            (i64.eqz (local.get $old))
            (i32.eqz (call $in_zone (local.get $old) (local.get $want) (local.get $n)))))))
    i64.extend_i32_u
    (i64.shl (i64.const 32)))

  (func (export "prequeueinghint") (param $event i32) (param $old i64) (param $new i64) (result i32)
    (local $p i32) (local $end i32) (local $value i32) (local $n i32)
    (call $begin)
    (call $fetch (local.get $new))
    (local.set $end) (local.set $p)
    (call $label (local.get $p) (local.get $end) (i32.const 56) (i32.const 7))
    drop drop
    (if
      (then
        (call $status_reason (i32.const 64) (i32.const 7))
        (return (i32.const 1))))
    (call $label (local.get $p) (local.get $end) (i32.const 116) (i32.const 8))
    drop drop
    (if (then (return (i32.const 0))))
    (call $label (local.get $p) (local.get $end) (i32.const 108) (i32.const 6))
    (local.set $n) (local.set $value)
    (if
      (then
        (if (i32.gt_u (local.get $n) (i32.const 63)) (then unreachable))
        (memory.copy (i32.const 776) (local.get $value) (local.get $n))
        (local.set $end (i32.add (i32.const 776) (local.get $n)))
        (memory.copy (local.get $end) (i32.const 176) (i32.const 16))
        (call $result_pods (i32.const 768) (i32.sub (i32.add (local.get $end) (i32.const 16)) (i32.const 768))))
      (else (call $result_pods (i32.const 768) (i32.const 0))))
    (i32.const 0))

  ;; in_zone says whether a Node has that value of the label "zone". The ref 0 is no
  ;; Node.
  (func $in_zone (param $node i64) (param $want i32) (param $n i32) (result i32)
    (local $value i32) (local $length i32)
    (if (i64.eqz (local.get $node)) (then (return (i32.const 0))))
    (call $fetch (local.get $node))
    (call $label (i32.const 40) (i32.const 4))
    (local.set $length) (local.set $value) drop
    (call $equal (local.get $value) (local.get $length) (local.get $want) (local.get $n)))

  ;; decimal writes a number below 1000 at p and returns where it ends.
  (func $decimal (param $p i32) (param $n i32) (result i32)
    (if (i32.ge_u (local.get $n) (i32.const 1000)) (then unreachable))
    (if (i32.ge_u (local.get $n) (i32.const 100))
      (then
        (i32.store8 (local.get $p) (i32.add (i32.const 48) (i32.div_u (local.get $n) (i32.const 100))))
        (local.set $p (i32.add (local.get $p) (i32.const 1)))))
    (if (i32.ge_u (local.get $n) (i32.const 10))
      (then
        (i32.store8 (local.get $p) (i32.add (i32.const 48) (i32.rem_u (i32.div_u (local.get $n) (i32.const 10)) (i32.const 10))))
        (local.set $p (i32.add (local.get $p) (i32.const 1)))))
    (i32.store8 (local.get $p) (i32.add (i32.const 48) (i32.rem_u (local.get $n) (i32.const 10))))
    (i32.add (local.get $p) (i32.const 1)))

  (func (export "signpod") (param $pod i64) (result i32)
    (local $p i32) (local $end i32) (local $value i32) (local $n i32) (local $labels i32)
    (call $begin)
    (call $fetch (local.get $pod))
    (local.set $end) (local.set $p)
    (call $label (local.get $p) (local.get $end) (i32.const 72) (i32.const 6))
    drop drop
    (if
      (then
        (call $status_reason (i32.const 80) (i32.const 16))
        (return (i32.const 2))))
    (call $lookup (local.get $p) (local.get $end) (i32.const 11) (i32.const 40) (i32.const 4))
    (local.set $labels) (local.set $n) (local.set $value) drop
    (if (i32.gt_u (local.get $n) (i32.const 63)) (then unreachable))
    (memory.copy (i32.const 518) (local.get $value) (local.get $n))
    (local.set $end (i32.add (i32.const 518) (local.get $n)))
    (memory.copy (local.get $end) (i32.const 96) (i32.const 9))
    (local.set $end (call $decimal (i32.add (local.get $end) (i32.const 9)) (local.get $labels)))
    (i32.store8 (local.get $end) (i32.const 0))
    (call $result_sign_fragments (i32.const 512) (i32.sub (i32.add (local.get $end) (i32.const 1)) (i32.const 512)))
    (i32.const 0))
)
