package gowasm_test

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/kubewasm/kubewasm/internal/gowasm"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// asm concatenates instructions: ints are opcodes or single bytes of immediates.
func asm(parts ...any) (out []byte) {
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			out = append(out, byte(p))
		case []byte:
			out = append(out, p...)
		}
	}
	return out
}

func number(op byte, v int64) []byte {
	out := []byte{op}
	for v < -64 || v > 63 {
		out, v = append(out, byte(v)|0x80), v>>7
	}
	return append(out, byte(v&0x7f))
}

func i32c(v int32) []byte { return number(wasmbin.OpI32Const, int64(v)) }
func i64c(v int64) []byte { return number(wasmbin.OpI64Const, v) }
func get(i int) []byte    { return []byte{wasmbin.OpLocalGet, byte(i)} }
func set(i int) []byte    { return []byte{wasmbin.OpLocalSet, byte(i)} }

// memarg is a load or a store with an offset.
func memarg(op int, offset uint64) []byte {
	return binary.AppendUvarint([]byte{byte(op), 0}, offset)
}

const sp = 1 // The local with the copy of the stack pointer.

// begin is how a function of Go begins, and move how it moves the stack pointer.
var begin = asm(wasmbin.OpGlobalGet, 0, set(sp))

func move(op int, bytes int32) []byte {
	return asm(get(sp), i32c(bytes), op, wasmbin.OpLocalTee, sp, wasmbin.OpGlobalSet, 0)
}

// added is an address of the stack with an offset, as Go's compiler adds it up.
func added(offset int64) []byte {
	return asm(get(sp), wasmbin.OpI64ExtendI32U, i64c(offset), wasmbin.OpI64Add, wasmbin.OpI32WrapI64)
}

var (
	i32, i64 = wasmbin.I32, wasmbin.I64
	ofGo     = wasmbin.FuncType{Params: []wasmbin.ValType{i32}, Results: []wasmbin.ValType{i32}}
)

// code is a function with locals of one type each.
func code(locals []wasmbin.ValType, body ...any) wasmbin.Code {
	c := wasmbin.Code{LocalGroups: uint32(len(locals)), NumLocals: uint64(len(locals)), Body: append(asm(body...), wasmbin.OpEnd)}
	for _, l := range locals {
		c.Locals = append(c.Locals, 1, byte(l))
	}
	return c
}

// moduleOf is a module with functions of a type, named f0 and so on, a page of memory, and
// globals of which the first is the stack pointer.
func moduleOf(t wasmbin.FuncType, codes ...wasmbin.Code) []byte {
	m := wasmbin.Module{
		Types:    []wasmbin.RecGroup{{Types: []wasmbin.FuncType{t}}},
		Memories: []wasmbin.Limits{{Min: 1}},
		Exports:  []wasmbin.Export{{Name: "memory", Kind: wasmbin.ExternMemory}, {Name: "sp", Kind: wasmbin.ExternGlobal}},
	}
	m.Globals = []wasmbin.Global{{GlobalType: wasmbin.GlobalType{Type: i32, Mutable: true}, Init: asm(i32c(4096), wasmbin.OpEnd)}}
	for i, c := range codes {
		m.Functions, m.Codes = append(m.Functions, 0), append(m.Codes, c)
		m.Exports = append(m.Exports, wasmbin.Export{Name: "f" + string(rune('0'+i)), Kind: wasmbin.ExternFunc, Index: uint32(i)})
	}
	return m.Encode()
}

// rewrite meters a module with the pass or without.
func rewrite(t testing.TB, bin []byte, on bool) ([]byte, *wasmbin.Info) {
	t.Helper()
	opts := wasmbin.Options{Meter: true, Fuel: 1 << 50, MaxMemoryPages: 1024}
	if on {
		opts.Pass = gowasm.Optimize
	}
	out, info, err := wasmbin.Rewrite(bin, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out, info
}

var engines = map[string]func() wazero.RuntimeConfig{
	"compiler": wazero.NewRuntimeConfigCompiler, "interpreter": wazero.NewRuntimeConfigInterpreter,
}

// instance starts a metered module.
func instance(t testing.TB, config wazero.RuntimeConfig, bin []byte) api.Module {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, config)
	t.Cleanup(func() { _ = r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	_, err := r.NewHostModuleBuilder(wasmbin.YieldModule).NewFunctionBuilder().
		WithFunc(func() { panic("out of fuel") }).Export(wasmbin.YieldName).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := r.InstantiateWithConfig(ctx, bin, wazero.NewModuleConfig().WithStartFunctions("_initialize").WithArgs("guest"))
	if err != nil {
		t.Fatal(err)
	}
	return mod
}

// fuelOf is the fuel that an instance has left.
func fuelOf(mod api.Module) int64 {
	return int64(mod.ExportedGlobal(wasmbin.FuelGlobal).Get())
}

// optimized returns what the pass makes of a function, which must be as long as Optimize
// leaves what it was given.
func optimized(t testing.TB, typ wasmbin.FuncType, c wasmbin.Code) []byte {
	t.Helper()
	before := slices.Clone(c.Body)
	out := gowasm.Optimize(typ, &c)
	if !slices.Equal(before, c.Body) {
		t.Error("the pass wrote into the body that it was given")
	}
	return out
}
