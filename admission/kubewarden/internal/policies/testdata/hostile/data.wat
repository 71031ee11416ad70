;; A module with the exports of a policy in Rego whose data can be changed, which is none: it
;; lies to the host by the digit in its settings {"n":"0"}, which it sees as the beginning of
;; its data. Values are addresses of what they are as text.
(module
  (import "env" "memory" (memory 2))
  (import "env" "opa_abort" (func $abort (param i32)))
  (data (i32.const 16) "{}\00")
  (data (i32.const 80) "{\22p/main\22:0}\00")
  (data (i32.const 128) "[{\22result\22:true}]\00")
  (global $lie (mut i32) (i32.const 9))
  (global $heap (mut i32) (i32.const 1024))
  (func (export "builtins") (result i32) (i32.const 16))
  (func (export "entrypoints") (result i32) (i32.const 80))
  (func $is (param $n i32) (result i32) (i32.eq (global.get $lie) (local.get $n)))
  (func (export "opa_heap_ptr_get") (result i32)
    ;; 4: a heap at the end of all memory. 5: one below its beginning.
    (if (call $is (i32.const 4)) (then (return (i32.const -1))))
    (if (call $is (i32.const 5)) (then (return (i32.const 0))))
    (global.get $heap))
  (func (export "opa_heap_ptr_set") (param i32) (global.set $heap (local.get 0)))
  (func (export "opa_malloc") (param $size i32) (result i32)
    ;; 0: memory that is not there.
    (if (call $is (i32.const 0)) (then (return (i32.const -16))))
    (global.get $heap)
    (global.set $heap (i32.add (global.get $heap) (local.get $size))))
  (func (export "opa_json_parse") (param $text i32) (param $len i32) (result i32)
    ;; The settings, which begin with {"n".
    (if (i32.eq (i32.load (local.get $text)) (i32.const 0x226e227b))
      (then (global.set $lie (i32.sub (i32.load8_u offset=6 (local.get $text)) (i32.const 48)))
            (return (local.get $text))))
    ;; 1: takes no objects.
    (select (i32.const 0) (local.get $text)
      (i32.and (call $is (i32.const 1)) (i32.eq (i32.load8_u (local.get $text)) (i32.const 123)))))
  (func (export "opa_value_parse") (param $text i32) (param $len i32) (result i32) (local.get $text))
  (func (export "opa_value_dump") (param $value i32) (result i32) (local.get $value))
  (func (export "opa_value_add_path") (param $data i32) (param $path i32) (param $value i32) (result i32)
    ;; 2: does not change. 3: changes without end.
    (if (call $is (i32.const 3)) (then (loop $again (br $again))))
    (select (i32.const 5) (i32.const 0) (call $is (i32.const 2))))
  (func (export "opa_value_remove_path") (param $data i32) (param $path i32) (result i32)
    ;; 6: falls when something is removed.
    (if (call $is (i32.const 6)) (then (unreachable)))
    (i32.const 0))
  (func (export "opa_value_free") (param i32))
  (func (export "opa_heap_blocks_stash")
    ;; 7: gives up when blocks are kept.
    (if (call $is (i32.const 7)) (then (call $abort (i32.const 80)))))
  (func (export "opa_heap_blocks_restore"))
  (func (export "opa_heap_stash_clear"))
  (func (export "opa_eval") (param $_ i32) (param $entrypoint i32) (param $data i32) (param $input i32) (param $len i32) (param $end i32) (param $format i32) (result i32)
    (i32.const 128)))
