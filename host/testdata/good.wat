;; A scheduler guest that uses the whole of the common contract: it reads its
;; configuration, logs, gives a reason and answers by the node's ref.
(module
  (import "kubewasm" "config" (func $config (param i32 i32) (result i32)))
  (import "kubewasm" "status_reason" (func $status_reason (param i32 i32)))
  (import "kubewasm" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1 4)
  (data (i32.const 0) "node is odd")
  (data (i32.const 16) "filtering")
  (global $initialized (mut i32) (i32.const 0))
  (func (export "_initialize") (global.set $initialized (i32.const 1)))
  (func (export "kubewasm_abi_v1") (result i64)
    ;; Only an instance that was started implements filter (bit 7) and
    ;; configure (bit 56).
    (if (result i64) (global.get $initialized)
      (then (i64.const 0x0100000000000080))
      (else (i64.const 0))))
  (func (export "configure") (result i32)
    ;; A configuration of more than 64 bytes is refused, with itself as reason.
    (local $n i32)
    (local.set $n (call $config (i32.const 1024) (i32.const 64)))
    (if (i32.gt_u (local.get $n) (i32.const 64))
      (then
        (drop (call $config (i32.const 1024) (local.get $n)))
        (call $status_reason (i32.const 1024) (local.get $n))
        (return (i32.const 1))))
    (i32.const 0))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (if (i64.eqz (i64.and (local.get $node) (i64.const 1)))
      (then (return (i32.const 0))))
    (call $log (i32.const 4) (i32.const 16) (i32.const 9))
    (call $status_reason (i32.const 0) (i32.const 11))
    (i32.const 2)))
