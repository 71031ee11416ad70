;; A filter that calls a function in the form in which Go's compiler writes them: blocks by
;; number, and variables at addresses that are added up. It returns 42.
(module
  (global $sp (mut i32) (i32.const 4096))
  (memory (export "memory") 1 1)
  (func (export "kubewasm_abi_v1") (result i64) (i64.const 128))
  (func (export "filter") (param i64 i64 i64) (result i32)
    (drop (call $go (i32.const 0)))
    (i32.load (i32.add (global.get $sp) (i32.const 24))))
  (func $go (param $number i32) (result i32)
    (local $sp_copy i32)
    global.get $sp
    local.set $sp_copy
    loop $dispatch
      block $2
        block $1
          block $0
            local.get $number
            br_table $0 $1 $2 $0
          end
          local.get $sp_copy
          i64.extend_i32_u
          i64.const 8
          i64.add
          i32.wrap_i64
          i64.const 40
          i64.store
          i32.const 2
          local.set $number
          br $dispatch
        end
        unreachable
      end
      local.get $sp_copy
      i64.extend_i32_u
      i64.const 24
      i64.add
      i32.wrap_i64
      local.get $sp_copy
      i64.extend_i32_u
      i64.const 8
      i64.add
      i32.wrap_i64
      i64.load
      i64.const 2
      i64.add
      i64.store
      i32.const 1
      return
    end
    unreachable))
