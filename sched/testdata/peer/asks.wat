;; A guest of kube-scheduler-wasm-extension that asks when it starts what it should log
;; and what its arguments are. Filter answers with both and its configuration between
;; them, and logs a line of each severity that there is and of one that there is not.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "k8s.io/klog" "severity" (func $severity (result i32)))
  (import "k8s.io/klog" "log" (func $log (param i32 i32 i32)))
  (import "k8s.io/klog" "logs" (func $logs (param i32 i32 i32 i32 i32)))
  (import "k8s.io/scheduler" "get_config" (func $get_config (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result.status_reason" (func $status_reason (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "line 0\0a")
  (data (i32.const 32) "key\00value\00odd\00")
  (global $asked (mut i32) (i32.const 0))

  (func (export "_start")
    (global.set $asked (call $severity))
    ;; The number of the arguments is at 0, of their bytes at 4, the bytes at 1024.
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (drop (call $args_get (i32.const 512) (i32.const 1024))))

  (func $line (param $severity i32)
    (i32.store8 (i32.const 21) (i32.add (i32.const 48) (local.get $severity)))
    (call $log (local.get $severity) (i32.const 16) (i32.const 7))
    (call $logs (local.get $severity) (i32.const 16) (i32.const 6) (i32.const 32) (i32.const 14)))

  (func (export "filter") (result i32)
    (local $n i32)
    (call $line (i32.const 0))
    (call $line (i32.const 1))
    (call $line (i32.const 2))
    (call $line (i32.const 3))
    (call $line (i32.const -1))
    (i32.store8 (i32.const 4096) (i32.add (i32.const 48) (global.get $asked)))
    (i32.store8 (i32.const 4097) (i32.const 32))
    (local.set $n (i32.add (i32.const 4098) (call $get_config (i32.const 4098) (i32.const 1024))))
    (i32.store8 (local.get $n) (i32.const 32))
    (local.set $n (i32.add (local.get $n) (i32.const 1)))
    (memory.copy (local.get $n) (i32.const 1024) (i32.load (i32.const 4)))
    (call $status_reason (i32.const 4096)
      (i32.sub (i32.add (local.get $n) (i32.load (i32.const 4))) (i32.const 4097)))
    (i32.const 2)))
