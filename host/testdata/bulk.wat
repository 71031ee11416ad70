;; A guest that moves up to 256 MiB with one instruction. The cycle says how: 0 fills,
;; 1 copies downwards, 2 copies upwards over what is read; the number of the node says
;; how many bytes. It returns the number of bytes of value 1 among the last of each MiB.
(module
  (memory (export "memory") 4096)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func (export "filter") (param $cycle i64) (param $pod i64) (param $node i64) (result i32)
    (local $n i32) (local $at i32) (local $count i32)
    (local.set $n (i32.wrap_i64 (local.get $node)))
    (if (i64.eqz (local.get $cycle))
      (then (memory.fill (i32.const 0) (i32.const 1) (local.get $n))))
    (if (i64.eq (local.get $cycle) (i64.const 1))
      (then (memory.copy (i32.const 0) (i32.const 65536) (local.get $n))))
    (if (i64.eq (local.get $cycle) (i64.const 2))
      (then (memory.copy (i32.const 65536) (i32.const 0) (local.get $n))))
    (local.set $at (i32.const 1048575))
    (loop $next
      (local.set $count (i32.add (local.get $count) (i32.load8_u (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 1048576)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 268435456))))
    (local.get $count)))
