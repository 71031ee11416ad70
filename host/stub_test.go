package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// TestStubs holds that a stub is valid, tells modules apart and has no code.
func TestStubs(t *testing.T) {
	files, err := filepath.Glob("testdata/*.wasm")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	seen := map[string]string{}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			module, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			out, info, err := rewrite(module, rewriteOptions, true)
			if err != nil {
				t.Skip(err) // Another test says why.
			}
			s, err := newStub(out, info)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(s.module); err != nil {
				t.Error(err)
			}
			if before, ok := seen[string(s.module)]; ok {
				t.Errorf("the stub is that of %s", before)
			}
			seen[string(s.module)] = file
			m, err := wasmbin.Decode(s.module)
			if err != nil {
				t.Fatal(err)
			}
			for i, code := range m.Codes[:min(len(m.Codes), info.Functions)] {
				if !slices.Equal(code.Body, []byte{0x00, 0x0b}) {
					t.Errorf("function %d has the body %x", i, code.Body)
				}
			}
		})
	}
}

// TestTrapsOfStubs holds that a trap says the same whether wazero has the module or its stub.
func TestTrapsOfStubs(t *testing.T) {
	dir := t.TempDir()
	var texts []string
	for _, cache := range []string{"", dir, dir} {
		rt, err := NewRuntime(RuntimeConfig{CacheDir: cache})
		if err != nil {
			t.Fatal(err)
		}
		p, err := rt.Load(t.Context(), Config{Name: "traps", Module: ModuleConfig{File: "testdata/traps.wasm"}}, Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = inst.Call(t.Context(), abi.Filter, 0, 3, 0)
		inst.Release()
		trap := (*TrapError)(nil)
		if !errors.As(err, &trap) || trap.Stack == "" {
			t.Fatalf("got %v, want a trap with a stack", err)
		}
		texts = append(texts, trap.Error()+trap.Stack)
		if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{texts[0], texts[0], texts[0]}, texts); diff != "" {
		t.Errorf("traps without a cache, with a new one, and with a warm one (-want +got)\n%s", diff)
	}
}

func TestConstant(t *testing.T) {
	for _, test := range []struct {
		name string
		expr []byte
		want uint32
		ok   bool
	}{
		{"zero", []byte{0x41, 0x00, 0x0b}, 0, true},
		{"of one byte", []byte{0x41, 0x3f, 0x0b}, 63, true},
		{"of two bytes", []byte{0x41, 0x80, 0x01, 0x0b}, 128, true},
		{"with zeros in front", []byte{0x41, 0x80, 0x80, 0x00, 0x0b}, 0, true},
		{"beyond 2 GiB", []byte{0x41, 0x80, 0x80, 0x80, 0x80, 0x78, 0x0b}, 1 << 31, true},
		{"minus one", []byte{0x41, 0x7f, 0x0b}, 1<<32 - 1, true},
		{"a global", []byte{0x23, 0x00, 0x0b}, 0, false},
		{"an i64", []byte{0x42, 0x00, 0x0b}, 0, false},
		{"a sum", []byte{0x41, 0x01, 0x41, 0x01, 0x6a, 0x0b}, 0, false},
		{"without an end", []byte{0x41, 0x80}, 0, false},
		{"that goes on", []byte{0x41, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 0x0b}, 0, false},
		{"empty", nil, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, ok := constant(test.expr); got != test.want || ok != test.ok {
				t.Errorf("constant returns %d, %v, want %d, %v", got, ok, test.want, test.ok)
			}
		})
	}
}
