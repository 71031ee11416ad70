;; does: hands k8s.io/scheduler.result_node_names bytes that do not lie in its memory, in four ways
;; wants: call violation "call k8s.io/scheduler.result_node_names: "
(module
  (import "k8s.io/scheduler" "result_node_names" (func $f (param i32 i32)))
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (block $wraps (block $whole (block $begins (block $ends
      (br_table $ends $begins $whole $wraps (i32.and (i32.wrap_i64 (local.get $node)) (i32.const 3))))
      ;; Ends beyond its memory.
      (call $f (i32.const 65530) (i32.const 100))
      (return (i32.const 0)))
      ;; Begins beyond it.
      (call $f (i32.const 65537) (i32.const 1))
      (return (i32.const 0)))
      ;; Is as large as the address space.
      (call $f (i32.const 0) (i32.const -1))
      (return (i32.const 0)))
    ;; Ends behind the greatest address.
    (call $f (i32.const -8) (i32.const 16))
    (i32.const 0)))
