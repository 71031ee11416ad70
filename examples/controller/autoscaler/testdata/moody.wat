;; A guest of kubewasm.examples.scaler.v1.Scaler whose answers and failures are those that a
;; metric asks for. The name of the metric is the guest's configuration, its value is
;; 10 * step + mood, and a good answer is 10 * step + version. The version is the digit behind
;; "moody version ", which tests replace.
(module
  (import "kubewasm/service" "response" (func $response (param i32 i32)))
  (import "kubewasm/service" "answer" (func $answer (param i32 i32) (result i32)))
  (import "kubewasm/service" "serve" (func $serve (param i32 i32)))
  (import "kubewasm.examples.scaler.v1.Metrics" "Query" (func $query (param i32 i32) (result i64)))
  (import "kubewasm" "status_reason" (func $reason (param i32 i32)))
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (memory (export "memory") 4)
  (data (i32.const 64) "kubewasm.examples.scaler.v1.Scaler\00")
  (data (i32.const 128) "moody version 1")
  (data (i32.const 160) "in no mood")
  (data (i32.const 192) "\12\08as it is")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x1000000000000000))
  (func (export "services") (call $serve (i32.const 64) (i32.const 35)))

  ;; varint writes n at p and returns the end.
  (func $varint (param $p i32) (param $n i64) (result i32)
    (loop $next
      (if (i64.ge_u (local.get $n) (i64.const 0x80))
        (then
          (i32.store8 (local.get $p) (i32.or (i32.wrap_i64 (local.get $n)) (i32.const 0x80)))
          (local.set $n (i64.shr_u (local.get $n) (i64.const 7)))
          (local.set $p (i32.add (local.get $p) (i32.const 1)))
          (br $next))))
    (i32.store8 (local.get $p) (i32.wrap_i64 (local.get $n)))
    (i32.add (local.get $p) (i32.const 1)))

  (func (export "kubewasm.examples.scaler.v1.Scaler/Replicas") (result i32)
    (local $n i32) (local $result i64) (local $value i32) (local $step i32) (local $mood i32) (local $replicas i64)
    ;; The request has the name in field 1.
    (local.set $n (call $config (i32.const 0x1002) (i32.const 0x70)))
    (i32.store8 (i32.const 0x1000) (i32.const 0x0a))
    (i32.store8 (i32.const 0x1001) (local.get $n))
    (local.set $result (call $query (i32.const 0x1000) (i32.add (local.get $n) (i32.const 2))))
    (local.set $n (call $answer (i32.const 0x1000) (i32.wrap_i64 (i64.shr_u (local.get $result) (i64.const 32)))))
    (if (i32.wrap_i64 (local.get $result))
      (then (call $reason (i32.const 0x1000) (local.get $n)) (return (i32.const 1))))
    ;; The answer has a list of one number in field 1.
    (local.set $value (i32.trunc_f64_s (f64.load (i32.const 0x1002))))
    (local.set $step (i32.div_u (local.get $value) (i32.const 10)))
    (local.set $mood (i32.rem_u (local.get $value) (i32.const 10)))
    (if (i32.eq (local.get $mood) (i32.const 3))
      (then (call $response (i32.const 192) (i32.const 10)) (return (i32.const 0))))
    (if (i32.eq (local.get $mood) (i32.const 4)) (then unreachable))
    (if (i32.eq (local.get $mood) (i32.const 5)) (then (loop $again (br $again))))
    (if (i32.eq (local.get $mood) (i32.const 6))
      (then (call $reason (i32.const 160) (i32.const 10)) (return (i32.const 1))))
    (local.set $replicas (i64.extend_i32_u (i32.add
      (i32.mul (local.get $step) (i32.const 10))
      (i32.sub (i32.load8_u (i32.const 142)) (i32.const 48)))))
    (if (i32.eq (local.get $mood) (i32.const 7))
      (then (local.set $replicas (i64.sub (i64.const 0) (local.get $replicas)))))
    (if (i32.eq (local.get $mood) (i32.const 8))
      (then (local.set $replicas (i64.const 0x7fffffff))))
    (i32.store8 (i32.const 0x2000) (i32.const 0x08))
    (local.set $n (call $varint (i32.const 0x2001) (local.get $replicas)))
    (if (i32.eq (local.get $mood) (i32.const 9))
      (then
        ;; A reason of 60,000 bytes, most of them line feeds, in field 2.
        (i32.store8 (local.get $n) (i32.const 0x12))
        (local.set $n (call $varint (i32.add (local.get $n) (i32.const 1)) (i64.const 60000)))
        (memory.fill (local.get $n) (i32.const 0x0a) (i32.const 60000))
        (memory.fill (local.get $n) (i32.const 0x6d) (i32.const 2000))
        (local.set $n (i32.add (local.get $n) (i32.const 60000)))))
    (call $response (i32.const 0x2000) (i32.sub (local.get $n) (i32.const 0x2000)))
    (i32.const 0)))
