;; The scheduler guest of the conformance suite: see doc.go.
;;
;; From 65536 on there are 4096 entries for Nodes by slot, then 4096 for cycles, of
;; 256 bytes: the version, the number of labels, whether it traps, the length of
;; the value and, of 64 bytes, the value; whether it is closed, and in the same way
;; the key of the last taint.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (import "k8s.io/api" "object" (func $object (param i64 i32 i32) (result i32)))
  (import "k8s.io/api" "object_entry" (func $object_entry (param i64 i32 i32 i32 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_scores" (func $node_scores (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "node_names" (func $node_names (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result_scores" (func $result_scores (param i32 i32)))
  (import "k8s.io/scheduler" "result_node_names" (func $result_node_names (param i32 i32)))
  (memory (export "memory") 34)
  (global $heap i32 (i32.const 2162688))
  (global $nodes i32 (i32.const 65536))
  (global $cycles i32 (i32.const 1114112))
  ;; The label that is configured is $labellen bytes at 522.
  (global $labellen (mut i32) (i32.const 0))
  (data (i32.const 0) "{\22label\22:\22")
  (data (i32.const 16) "\22}")
  (data (i32.const 32) "want {\22label\22:\22\e2\80\a6\22}")
  (data (i32.const 64) "configured\00label\00")
  (data (i32.const 128) "skip")
  (data (i32.const 136) "only")
  (data (i32.const 144) "trap")
  (data (i32.const 152) "closed")
  (data (i32.const 168) "closed: ")
  (data (i32.const 176) "tainted: ")
  (data (i32.const 256) "the Pod has no ")
  (data (i32.const 1024) "want ")
  (data (i32.const 160) ", got ")

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

  (func (export "kubewasm_abi_v1") (result i64)
    ;; prefilter (4), filter (7), score (10), normalizescore (11), configure (56).
    (i64.or (i64.const 0xc90) (i64.shl (i64.const 1) (i64.const 56))))

  (func (export "configure") (result i32)
    (local $n i32)
    (local.set $n (call $config (i32.const 512) (i32.const 64)))
    (if (i32.or (i32.lt_u (local.get $n) (i32.const 13)) (i32.gt_u (local.get $n) (i32.const 44)))
      (then (return (call $refuse))))
    (if (i32.eqz (call $equal (i32.const 512) (i32.const 10) (i32.const 0) (i32.const 10)))
      (then (return (call $refuse))))
    (if (i32.eqz (call $equal (i32.add (i32.const 510) (local.get $n)) (i32.const 2) (i32.const 16) (i32.const 2)))
      (then (return (call $refuse))))
    (global.set $labellen (i32.sub (local.get $n) (i32.const 12)))
    (memory.copy (i32.const 81) (i32.const 522) (global.get $labellen))
    (call $log (i32.const 0) (i32.const 64) (i32.add (i32.const 17) (global.get $labellen)))
    (i32.const 0))

  (func $refuse (result i32)
    (call $status_reason (i32.const 32) (i32.const 20))
    (i32.const 1))

  ;; fetch reads an object: where it begins and ends.
  (func $fetch (param $ref i64) (result i32 i32)
    (local $n i32)
    (local.set $n (call $object (local.get $ref) (i32.const 0) (i32.const 0)))
    (call $room (local.get $n))
    (drop (call $object (local.get $ref) (global.get $heap) (local.get $n)))
    (global.get $heap)
    (i32.add (global.get $heap) (local.get $n)))

  ;; message is field for a message: where it begins and ends.
  (func $message (param $p i32) (param $end i32) (param $want i32) (result i32 i32)
    (local $n i32) (local $at i32)
    (call $field (local.get $p) (local.get $end) (local.get $want))
    (local.set $n) (local.tee $at)
    (i32.add (local.get $at) (local.get $n)))

  ;; closed asks for what stands under "closed" in a map of the metadata: how long
  ;; it is, -1 if it is not there.
  (func $closed (param $ref i64) (param $map i32) (param $buf i32) (param $limit i32) (result i32)
    (call $object_entry (local.get $ref) (local.get $map) (i32.const 152) (i32.const 6)
      (local.get $buf) (local.get $limit)))

  ;; entry returns the entry of a ref in a table, and version its version.
  (func $entry (param $table i32) (param $ref i64) (result i32)
    (if (i32.ge_u (i32.wrap_i64 (local.get $ref)) (i32.const 4096)) (then unreachable))
    (i32.add (local.get $table) (i32.shl (i32.wrap_i64 (local.get $ref)) (i32.const 8))))
  (func $version (param $ref i64) (result i32)
    (i32.wrap_i64 (i64.shr_u (local.get $ref) (i64.const 32))))

  ;; keep puts a text behind its length.
  (func $keep (param $to i32) (param $at i32) (param $n i32)
    (if (i32.gt_u (local.get $n) (i32.const 64)) (then unreachable))
    (i32.store (local.get $to) (local.get $n))
    (memory.copy (i32.add (local.get $to) (i32.const 4)) (local.get $at) (local.get $n)))

  (func (export "prefilter") (param $cycle i64) (param $pod i64) (result i32)
    (local $p i32) (local $end i32) (local $at i32) (local $n i32) (local $found i32) (local $entry i32)
    (call $message (call $fetch (local.get $pod)) (i32.const 1))
    (local.set $end) (local.set $p)
    (call $lookup (local.get $p) (local.get $end) (i32.const 11) (i32.const 128) (i32.const 4))
    drop drop drop
    (if (then (return (i32.const 5))))
    (call $lookup (local.get $p) (local.get $end) (i32.const 11) (i32.const 522) (global.get $labellen))
    drop (local.set $n) (local.set $at) (local.set $found)
    (if (i32.eqz (local.get $found))
      (then
        (memory.copy (i32.const 271) (i32.const 522) (global.get $labellen))
        (call $status_reason (i32.const 256) (i32.add (i32.const 15) (global.get $labellen)))
        (return (i32.const 3))))
    (local.set $entry (call $entry (global.get $cycles) (local.get $cycle)))
    (i32.store (local.get $entry) (call $version (local.get $cycle)))
    (call $keep (i32.add (local.get $entry) (i32.const 12)) (local.get $at) (local.get $n))
    (call $lookup (local.get $p) (local.get $end) (i32.const 11) (i32.const 136) (i32.const 4))
    drop (local.set $n) (local.set $at)
    (if
      (then ;; The name, and a NUL after it.
        (memory.copy (i32.const 2048) (local.get $at) (local.get $n))
        (i32.store8 offset=2048 (local.get $n) (i32.const 0))
        (call $result_node_names (i32.const 2048) (i32.add (local.get $n) (i32.const 1)))))
    (i32.const 0))

  ;; look returns the entry of a Node whose current version was read.
  (func $look (param $node i64) (result i32)
    (local $entry i32) (local $p i32) (local $end i32) (local $at i32) (local $n i32)
    (local $object i32) (local $behind i32)
    (local.set $entry (call $entry (global.get $nodes) (local.get $node)))
    (if (i32.eq (i32.load (local.get $entry)) (call $version (local.get $node)))
      (then (return (local.get $entry))))
    (call $fetch (local.get $node))
    (local.set $behind) (local.tee $object)
    (call $message (local.get $behind) (i32.const 1))
    (local.set $end) (local.set $p)
    (call $lookup (local.get $p) (local.get $end) (i32.const 11) (i32.const 144) (i32.const 4))
    (local.set $n) drop drop (local.set $at)
    (i32.store offset=4 (local.get $entry) (local.get $n))
    (i32.store offset=8 (local.get $entry) (local.get $at))
    (call $lookup (local.get $p) (local.get $end) (i32.const 11) (i32.const 522) (global.get $labellen))
    drop (local.set $n) (local.set $at) drop
    (call $keep (i32.add (local.get $entry) (i32.const 12)) (local.get $at) (local.get $n))
    ;; The last taint is in field 5 of the spec, its key is field 1.
    (call $message (local.get $object) (local.get $behind) (i32.const 2))
    (call $message (i32.const 5))
    (call $field (i32.const 1))
    (local.set $n) (local.set $at)
    (call $keep (i32.add (local.get $entry) (i32.const 84)) (local.get $at) (local.get $n))
    (i32.store offset=80 (local.get $entry)
      (i32.ne (call $closed (local.get $node) (i32.const 12) (i32.const 0) (i32.const 0)) (i32.const -1)))
    ;; No map is in field 13.
    (if (i32.ne (call $closed (local.get $node) (i32.const 13) (i32.const 0) (i32.const 0)) (i32.const -1))
      (then unreachable))
    (i32.store (local.get $entry) (call $version (local.get $node)))
    (local.get $entry))

  ;; wanted returns the entry of a cycle that prefilter has seen.
  (func $wanted (param $cycle i64) (result i32)
    (local $entry i32)
    (local.set $entry (call $entry (global.get $cycles) (local.get $cycle)))
    (if (i32.ne (i32.load (local.get $entry)) (call $version (local.get $cycle))) (then unreachable))
    (local.get $entry))

  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $want i32) (local $got i32) (local $n i32) (local $m i32)
    (local.set $got (call $look (local.get $node)))
    (if (i32.load offset=8 (local.get $got)) (then unreachable))
    (local.set $want (call $wanted (local.get $cycle)))
    (if (i32.load offset=80 (local.get $got))
      (then
        (local.set $n (call $closed (local.get $node) (i32.const 12) (i32.const 0) (i32.const 0)))
        (call $room (i32.add (local.get $n) (i32.const 8)))
        (memory.copy (global.get $heap) (i32.const 168) (i32.const 8))
        (drop (call $closed (local.get $node) (i32.const 12)
          (i32.add (global.get $heap) (i32.const 8)) (local.get $n)))
        (call $status_reason (global.get $heap) (i32.add (local.get $n) (i32.const 8)))
        (return (i32.const 2))))
    (local.set $n (i32.load offset=84 (local.get $got)))
    (if (local.get $n)
      (then
        (call $room (i32.add (local.get $n) (i32.const 9)))
        (memory.copy (global.get $heap) (i32.const 176) (i32.const 9))
        (memory.copy (i32.add (global.get $heap) (i32.const 9)) (i32.add (local.get $got) (i32.const 88)) (local.get $n))
        (call $status_reason (global.get $heap) (i32.add (local.get $n) (i32.const 9)))
        (return (i32.const 3))))
    (local.set $n (i32.load offset=12 (local.get $want)))
    (local.set $m (i32.load offset=12 (local.get $got)))
    (if (call $equal
          (i32.add (local.get $want) (i32.const 16)) (local.get $n)
          (i32.add (local.get $got) (i32.const 16)) (local.get $m))
      (then (return (i32.const 0))))
    (memory.copy (i32.const 1029) (i32.add (local.get $want) (i32.const 16)) (local.get $n))
    (memory.copy (i32.add (i32.const 1029) (local.get $n)) (i32.const 160) (i32.const 6))
    (memory.copy (i32.add (i32.const 1035) (local.get $n)) (i32.add (local.get $got) (i32.const 16)) (local.get $m))
    (call $status_reason (i32.const 1024) (i32.add (i32.add (i32.const 11) (local.get $n)) (local.get $m)))
    (i32.const 2))

  (func (export "score") (param $cycle i64) (param $pod i64) (param $node i64) (result i64)
    (i64.shl
      (i64.extend_i32_u (i32.mul (i32.const 10) (i32.load offset=4 (call $look (local.get $node)))))
      (i64.const 32)))

  (func (export "normalizescore") (param $cycle i64) (param $pod i64) (result i32)
    (local $want i32) (local $n i32) (local $m i32) (local $i i32) (local $name i32) (local $end i32) (local $score i32)
    (local.set $want (call $wanted (local.get $cycle)))
    (local.set $n (call $node_scores (i32.const 0) (i32.const 0)))
    (local.set $m (call $node_names (i32.const 0) (i32.const 0)))
    (call $room (i32.add (local.get $n) (local.get $m)))
    (drop (call $node_scores (global.get $heap) (local.get $n)))
    (local.set $name (i32.add (global.get $heap) (local.get $n)))
    (drop (call $node_names (local.get $name) (local.get $m)))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (local.set $end (local.get $name))
        (block $ended
          (loop $letter
            (br_if $ended (i32.eqz (i32.load8_u (local.get $end))))
            (local.set $end (i32.add (local.get $end) (i32.const 1)))
            (br $letter)))
        (local.set $score (i32.add (global.get $heap) (local.get $i)))
        (i64.store (local.get $score) (i64.sub (i64.const 100) (i64.load (local.get $score))))
        (if (call $equal
              (local.get $name) (i32.sub (local.get $end) (local.get $name))
              (i32.add (local.get $want) (i32.const 16)) (i32.load offset=12 (local.get $want)))
          (then (i64.store (local.get $score) (i64.const 100))))
        (local.set $name (i32.add (local.get $end) (i32.const 1)))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br $next)))
    (call $result_scores (global.get $heap) (local.get $n))
    (i32.const 0))
)
