;; does: initialises its memory from a segment for ever
;; wants: call trap "out of fuel"
;; wants with fuel without end: call trap "timeout of"
(module
  (memory (export "memory") 1)
  (data $d "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (loop $l
      (memory.init $d (i32.const 0) (i32.const 0) (i32.const 64))
      (br $l))
    (i32.const 0)))
