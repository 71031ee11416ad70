;; The admission guest of the conformance suite: see doc.go.
(module
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "k8s.io/admission" "request" (func $request (param i32 i32) (result i32)))
  (import "k8s.io/admission" "object" (func $object (param i32 i32) (result i32)))
  (import "k8s.io/admission" "old_object" (func $old_object (param i32 i32) (result i32)))
  (import "k8s.io/admission" "options" (func $options (param i32 i32) (result i32)))
  (import "k8s.io/admission" "object_proto" (func $object_proto (param i32 i32) (result i32)))
  (import "k8s.io/admission" "old_object_proto" (func $old_object_proto (param i32 i32) (result i32)))
  (import "k8s.io/admission" "result" (func $result (param i32 i32)))
  (import "k8s.io/admission" "patch" (func $patch (param i32 i32)))
  (import "k8s.io/admission" "mutated_object" (func $mutated_object (param i32 i32)))
  (import "k8s.io/admission" "desired_api_version" (func $desired_api_version (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (global $heap i32 (i32.const 1024))
  (data (i32.const 0) "trap")
  (data (i32.const 560) "example.com/trap")
  (data (i32.const 576) "example.com/v1")
  (data (i32.const 592) "example.com/v2")
  (data (i32.const 608) "bad version")
  (data (i32.const 624) "[{\22op\22:\22replace\22,\22path\22:\22/apiVersion\22,\22value\22:\22example.com/v1\22}]")
  (data (i32.const 704) "{\22apiVersion\22:\22example.com/v2\22,\22kind\22:\22Widget\22,\22metadata\22:{\22name\22:\22w\22},\22spec\22:{\22size\22:2}}")
  (data (i32.const 8) "fail")
  (data (i32.const 16) "no data")
  (data (i32.const 24) "bad")
  (data (i32.const 32) "bad name")
  (data (i32.const 40) "busy")
  (data (i32.const 48) "field")
  (data (i32.const 56) "warn")
  (data (i32.const 64) "empty")
  (data (i32.const 72) "no object")
  (data (i32.const 480) "same")
  (data (i32.const 488) "unchanged")
  (data (i32.const 500) "relabelled")
  (data (i32.const 512) "app")
  (data (i32.const 520) "options")
  (data (i32.const 528) ", is ")
  (data (i32.const 544) "was ")
  (data (i32.const 256) "patch")
  (data (i32.const 264) "whole")
  (data (i32.const 272) "[{\22op\22:\22add\22,\22path\22:\22/metadata/annotations\22,\22value\22:{\22k\22:\22v\22}}]")
  (data (i32.const 384) "{\22apiVersion\22:\22v1\22,\22kind\22:\22Pod\22,\22metadata\22:{\22name\22:\22whole\22,\22labels\22:{\22k\22:\22v\22}}}")
  ;; warnings (3); auditAnnotations (4): key (1), value (2).
  (data (i32.const 96) "\1a\07careful\22\06\0a\01k\12\01v")
  ;; fieldErrors (2), 51 bytes: field (1), type (2), message (3), badValue (4).
  (data (i32.const 128) "\12\33\0a\0dmetadata.name\12\11FieldValueInvalid\1a\06is odd\22\07\22field\22")

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

  ;; lookup finds a key in the map that is the field of that number: its value with
  ;; the length.
  (func $lookup (param $p i32) (param $end i32) (param $want i32) (param $key i32) (param $keylen i32) (result i32 i32)
    (local $number i32) (local $at i32) (local $n i32) (local $value i32) (local $length i32)
    (block $done
      (loop $more
        (call $next (local.get $p) (local.get $end))
        (local.set $n) (local.set $at) (local.set $number) (local.set $p)
        (br_if $done (i32.eqz (local.get $p)))
        (br_if $more (i32.ne (local.get $number) (local.get $want)))
        (call $field (local.get $at) (i32.add (local.get $at) (local.get $n)) (i32.const 1))
        (if (call $equal (local.get $key) (local.get $keylen))
          (then
            (call $field (local.get $at) (i32.add (local.get $at) (local.get $n)) (i32.const 2))
            (local.set $length) (local.set $value)))
        (br $more)))
    (local.get $value) (local.get $length))

  ;; room makes the memory from $heap on at least n bytes long.
  (func $room (param $n i32)
    (local $want i32)
    (local.set $want (i32.sub
      (i32.shr_u (i32.add (i32.add (global.get $heap) (local.get $n)) (i32.const 65535)) (i32.const 16))
      (memory.size)))
    (if (i32.gt_s (local.get $want) (i32.const 0))
      (then (if (i32.eq (memory.grow (local.get $want)) (i32.const -1)) (then unreachable)))))

  (func (export "kubewasm_abi_v1") (result i64) (i64.shl (i64.const 7) (i64.const 32)))

  ;; requested returns the name of the request and its length.
  (func $requested (result i32 i32)
    (local $n i32)
    (local.set $n (call $request (i32.const 0) (i32.const 0)))
    (call $room (local.get $n))
    (drop (call $request (global.get $heap) (local.get $n)))
    (call $field (global.get $heap) (i32.add (global.get $heap) (local.get $n)) (i32.const 5)))

  ;; same compares the old object with the object.
  (func $same (result i32)
    (local $n i32) (local $m i32)
    (local.set $n (call $object (i32.const 0) (i32.const 0)))
    (local.set $m (call $old_object (i32.const 0) (i32.const 0)))
    (call $room (i32.add (local.get $n) (local.get $m)))
    (drop (call $object (global.get $heap) (local.get $n)))
    (drop (call $old_object (i32.add (global.get $heap) (local.get $n)) (local.get $m)))
    (call $equal (global.get $heap) (local.get $n) (i32.add (global.get $heap) (local.get $n)) (local.get $m)))

  ;; app appends the label "app" of the object in the n bytes from $heap on to the
  ;; text that ends at to, and returns where it ends then.
  (func $app (param $n i32) (param $to i32) (result i32)
    (local $p i32) (local $length i32)
    (call $field (global.get $heap) (i32.add (global.get $heap) (local.get $n)) (i32.const 1))
    (local.set $length) (local.set $p)
    (call $lookup (local.get $p) (i32.add (local.get $p) (local.get $length)) (i32.const 11) (i32.const 512) (i32.const 3))
    (local.set $length) (local.set $p)
    (if (i32.gt_u (local.get $length) (i32.const 63)) (then unreachable))
    (memory.copy (local.get $to) (local.get $p) (local.get $length))
    (i32.add (local.get $to) (local.get $length)))

  ;; relabelled says what the label was and is.
  (func $relabelled
    (local $n i32) (local $end i32)
    (local.set $n (call $old_object_proto (i32.const 0) (i32.const 0)))
    (call $room (local.get $n))
    (drop (call $old_object_proto (global.get $heap) (local.get $n)))
    (local.set $end (call $app (local.get $n) (i32.const 548)))
    (memory.copy (local.get $end) (i32.const 528) (i32.const 5))
    (local.set $n (call $object_proto (i32.const 0) (i32.const 0)))
    (call $room (local.get $n))
    (drop (call $object_proto (global.get $heap) (local.get $n)))
    (local.set $end (call $app (local.get $n) (i32.add (local.get $end) (i32.const 5))))
    (call $status_reason (i32.const 544) (i32.sub (local.get $end) (i32.const 544))))

  (func (export "mutate") (result i64)
    (local $name i32) (local $length i32)
    (call $requested)
    (local.set $length) (local.set $name)
    (if (call $equal (local.get $name) (local.get $length) (i32.const 24) (i32.const 3))
      (then
        (call $status_reason (i32.const 32) (i32.const 8))
        (return (i64.const 2))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 256) (i32.const 5))
      (then (call $patch (i32.const 272) (i32.const 63))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 264) (i32.const 5))
      (then (call $mutated_object (i32.const 384) (i32.const 79))))
    (i64.const 0))

  (func (export "validate") (result i64)
    (local $n i32) (local $name i32) (local $length i32)
    (call $requested)
    (local.set $length) (local.set $name)
    (if (call $equal (local.get $name) (local.get $length) (i32.const 0) (i32.const 4))
      (then unreachable))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 8) (i32.const 4))
      (then
        (call $status_reason (i32.const 16) (i32.const 7))
        (return (i64.const 1))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 24) (i32.const 3))
      (then
        (call $status_reason (i32.const 32) (i32.const 8))
        (return (i64.const 2))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 40) (i32.const 4))
      (then (return (i64.or (i64.shl (i64.const 409) (i64.const 32)) (i64.const 2)))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 48) (i32.const 5))
      (then
        (call $result (i32.const 128) (i32.const 53))
        (return (i64.const 2))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 56) (i32.const 4))
      (then
        (call $result (i32.const 96) (i32.const 17))
        (return (i64.const 0))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 480) (i32.const 4))
      (then
        (if (i32.eqz (call $same)) (then (return (i64.const 0))))
        (call $status_reason (i32.const 488) (i32.const 9))
        (return (i64.const 2))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 500) (i32.const 10))
      (then
        (call $relabelled)
        (return (i64.const 2))))
    (if (call $equal (local.get $name) (local.get $length) (i32.const 520) (i32.const 7))
      (then
        (local.set $n (call $options (i32.const 0) (i32.const 0)))
        (call $room (local.get $n))
        (drop (call $options (global.get $heap) (local.get $n)))
        (call $status_reason (global.get $heap) (local.get $n))
        (return (i64.const 2))))
    (local.set $n (call $object (i32.const 0) (i32.const 0)))
    (if (i32.and (i32.eqz (local.get $n)) (call $equal (local.get $name) (local.get $length) (i32.const 64) (i32.const 5)))
      (then
        (call $status_reason (i32.const 72) (i32.const 9))
        (return (i64.const 2))))
    (if (i32.gt_u (local.get $n) (i32.const 100000))
      (then (return (i64.or (i64.shl (i64.const 413) (i64.const 32)) (i64.const 2)))))
    (i64.const 0))

  (func (export "convert") (result i64)
    (local $n i32)
    (local.set $n (call $desired_api_version (i32.const 0) (i32.const 0)))
    (call $room (local.get $n))
    (drop (call $desired_api_version (global.get $heap) (local.get $n)))
    (if (call $equal (global.get $heap) (local.get $n) (i32.const 560) (i32.const 16)) (then unreachable))
    (if (call $equal (global.get $heap) (local.get $n) (i32.const 576) (i32.const 14))
      (then (call $patch (i32.const 624) (i32.const 64)) (return (i64.const 0))))
    (if (call $equal (global.get $heap) (local.get $n) (i32.const 592) (i32.const 14))
      (then (call $mutated_object (i32.const 704) (i32.const 89)) (return (i64.const 0))))
    (call $status_reason (i32.const 608) (i32.const 11))
    (i64.const 1)))
