;; An admission guest that answers by the first character of the object, which
;; the tests send as a bare number: most answers break a rule of the ABI.
(module
  (import "k8s.io/admission" "object" (func $object (param i32 i32) (result i32)))
  (import "k8s.io/admission" "result" (func $result (param i32 i32)))
  (memory (export "memory") 1 1)
  ;; A Result whose reason is cut off.
  (data (i32.const 16) "\0a\09cut")
  ;; A Result with the reason "Teapot" and the field that no version defines.
  (data (i32.const 32) "\0a\06Teapot\fa\06\01x")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x100000000))
  (func $recurse (param i32) (result i32)
    (i32.add (i32.const 1) (call $recurse (local.get 0))))
  (func (export "validate") (result i64)
    (drop (call $object (i32.const 0) (i32.const 16)))
    (block $9 (block $8 (block $7 (block $6 (block $5 (block $4 (block $3 (block $2 (block $1 (block $0
      (br_table $0 $1 $2 $3 $4 $5 $6 $7 $8 $9 $0 (i32.sub (i32.load8_u (i32.const 0)) (i32.const 48))))
      ;; 0, or anything else: allow.
      (return (i64.const 0)))
      ;; 1: could not decide, without a reason.
      (return (i64.const 1)))
      ;; 2: deny, without a reason.
      (return (i64.const 2)))
      ;; 3: a verdict that there is not.
      (return (i64.const 7)))
      ;; 4: a negative verdict.
      (return (i64.const -1)))
      ;; 5: trap.
      (unreachable))
      ;; 6: a malformed result.
      (call $result (i32.const 16) (i32.const 5))
      (return (i64.const 0)))
      ;; 7: a result that lies outside of the memory.
      (call $result (i32.const 65530) (i32.const 100))
      (return (i64.const 0)))
      ;; 8: deny with 200 and a reason.
      (call $result (i32.const 32) (i32.const 12))
      (return (i64.const 0xc800000002)))
    ;; 9: recursion without an end.
    (i64.extend_i32_u (call $recurse (i32.const 0)))))
