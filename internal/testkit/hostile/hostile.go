// Package hostile is a host that answers a guest with any bytes, for tests of the readers of
// messages and objects in each language.
package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// Host answers a guest with any bytes.
type Host struct {
	// answer is what each host function answers that hands out bytes, and config what the
	// function config does.
	answer, config []byte
	// said are the bytes that the guest handed over last.
	said []byte
}

// Try lets an exported function of the guest in a file read what message returns, as often as
// times says. The test fails if a call traps, or if what the guest answers depends on anything
// but the message. The order of its bytes is free, since a guest in Go writes maps in any.
func Try(t *testing.T, file, function, config string, times int, message func(n int) []byte) {
	t.Helper()
	h := &Host{config: []byte(config)}
	call := h.instance(t, file, function)
	r := rand.New(rand.NewPCG(1, 2))
	for n := range times {
		m := message(n)
		h.answer = m
		code, err := call()
		if err != nil {
			t.Fatalf("message %q: %v", m, err)
		}
		said := h.said
		h.answer = bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(500)) // Other bytes in the same memory.
		if _, err := call(); err != nil {
			t.Fatalf("message %q: %v", h.answer, err)
		}
		h.answer = m
		again, err := call()
		if err != nil || again != code || !bytes.Equal(h.said, said) {
			t.Fatalf("message %q: got %d %q, then %d %q, %v", m, code, said, again, h.said, err)
		}
	}
}

// instance returns the exported function of a guest, run without limits.
func (h *Host) instance(t *testing.T, file, function string) func() (uint64, error) {
	t.Helper()
	ctx := t.Context()
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true))
	t.Cleanup(func() { rt.Close(context.Background()) })
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]wazero.HostModuleBuilder{}
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	for _, f := range compiled.ImportedFunctions() {
		in, name, _ := f.Import()
		if in == wasi_snapshot_preview1.ModuleName {
			continue
		}
		if modules[in] == nil {
			modules[in] = rt.NewHostModuleBuilder(in)
		}
		params, results := f.ParamTypes(), f.ResultTypes()
		call := func(_ context.Context, m api.Module, stack []uint64) {
			last := len(params) - 2
			switch {
			case len(results) == 0 && len(params) == 2: // It takes bytes.
				said, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
				if !ok {
					panic("bytes beyond the memory")
				}
				h.said = bytes.Clone(said)
				slices.Sort(h.said)
			case len(results) == 1 && results[0] == api.ValueTypeI32 && last >= 0: // It hands bytes out.
				answer := h.answer
				if name == "config" {
					answer = h.config
				}
				if buf, limit := uint32(stack[last]), uint32(stack[last+1]); uint32(len(answer)) <= limit {
					if !m.Memory().Write(buf, answer) {
						panic("a buffer beyond the memory")
					}
				}
				stack[0] = uint64(len(answer))
			case len(results) == 1:
				stack[0] = 0
			}
		}
		modules[in].NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(call), params, results).Export(name)
	}
	for _, m := range modules {
		if _, err := m.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	instance, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithStartFunctions("_initialize"))
	if err != nil {
		t.Fatal(err)
	}
	if configure := instance.ExportedFunction("configure"); configure != nil {
		if results, err := configure.Call(ctx); err != nil || results[0] != 0 {
			t.Fatalf("configure: %v, %v", results, err)
		}
	}
	exported := instance.ExportedFunction(function)
	return func() (uint64, error) {
		h.said = nil
		// A call without end fails with its message.
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		results, err := exported.Call(bounded)
		if err != nil {
			return 0, err
		}
		return results[0], nil
	}
}

// Mutated returns a message with some bytes changed, cut off or repeated.
func Mutated(r *rand.Rand, message []byte) []byte {
	b := bytes.Clone(message)
	for range 1 + r.IntN(4) {
		if len(b) == 0 {
			return b
		}
		i := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b[i] = byte(r.Uint32())
		case 1:
			b[i] ^= 1 << r.IntN(8)
		case 2:
			b = b[:i]
		case 3:
			b = append(b[:i:i], append(bytes.Repeat([]byte{byte(r.Uint32())}, r.IntN(12)), b[i:]...)...)
		case 4:
			b = append(b, b[i:]...)
		}
	}
	return b
}

// Deep returns a message that has itself in field 11 as often.
func Deep(times int) []byte {
	var b []byte
	for range times {
		b = append(binary.AppendUvarint([]byte{11<<3 | 2}, uint64(len(b))), b...)
		if len(b) > 1<<20 {
			break
		}
	}
	return b
}
