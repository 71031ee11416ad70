;; An admission guest that mutates against the rules, by the digit in the object
;; {"n":"0"}.
(module
  (import "k8s.io/admission" "object" (func $object (param i32 i32) (result i32)))
  (import "k8s.io/admission" "patch" (func $patch (param i32 i32)))
  (import "k8s.io/admission" "mutated_object" (func $mutated_object (param i32 i32)))
  (memory (export "memory") 1 1)
  (data (i32.const 16) "[{\22op\22:")
  (data (i32.const 32) "[{\22op\22:\22remove\22,\22path\22:\22/nowhere\22}]")
  (data (i32.const 128) "[{\22op\22:\22replace\22,\22path\22:\22\22,\22value\22:[]}]")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x300000000))
  (func $act
    (drop (call $object (i32.const 0) (i32.const 9)))
    (block $6 (block $5 (block $4 (block $3 (block $2 (block $1 (block $0
      (br_table $0 $1 $2 $3 $4 $5 $6 $2 (i32.sub (i32.load8_u (i32.const 6)) (i32.const 48))))
      ;; 0: nothing.
      (return))
      ;; 1: no JSON.
      (call $patch (i32.const 16) (i32.const 6))
      (return))
      ;; 2, or no object: a patch that does not apply.
      (call $patch (i32.const 32) (i32.const 35))
      (return))
      ;; 3: a patch that leaves a list.
      (call $patch (i32.const 128) (i32.const 39))
      (return))
      ;; 4: an object that is none.
      (call $mutated_object (i32.const 16) (i32.const 1))
      (return))
      ;; 5: a patch that lies outside of the memory.
      (call $patch (i32.const 65530) (i32.const 100))
      (return))
    ;; 6: a patch, in validate.
    (call $patch (i32.const 32) (i32.const 35)))
  (func (export "validate") (result i64) (call $act) (i64.const 0))
  (func (export "mutate") (result i64) (call $act) (i64.const 0)))
