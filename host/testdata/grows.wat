;; A guest that grows its memory page by page until it cannot, and returns the
;; number of pages that it got.
(module
  (memory (export "memory") 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param i64 i64 i64) (result i32)
    (loop $more
      (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (memory.size)))
