;; A guest whose functions have names as rustc mangles them: filter calls one with the legacy
;; mangling, which calls one with v0's, which traps.
(module $zone.wasm
  (memory (export "memory") 1 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 0x80))
  (func $_RNvXs_C4zoneNtB4_4ZoneNtNtC8kubewasm5sched6Filter6filter (result i32) (unreachable))
  (func $_ZN4zone4Zone5check17h0123456789abcdefE.llvm.42 (param i64) (result i32)
    (call $_RNvXs_C4zoneNtB4_4ZoneNtNtC8kubewasm5sched6Filter6filter))
  (func $_ZN4zone6filterE (export "filter") (param i64 i64 i64) (result i32)
    (call $_ZN4zone4Zone5check17h0123456789abcdefE.llvm.42 (local.get 0))))
