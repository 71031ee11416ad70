package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// TestStubCache holds that what comes from a file is what was written, and that any other
// file is as good as none.
func TestStubCache(t *testing.T) {
	cache, err := newStubCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	key, other := stubKeyOf("a", rewriteOptions, true), stubKeyOf("a", rewriteOptions, false)
	want := &stub{[]byte("\x00asm and more"), aboutStub{&wasmbin.Info{Functions: 7, Starts: true}, 2 * pageSize}, bytes.Repeat([]byte("data"), pageSize/4)}
	for _, k := range []stubKey{key, other} {
		if err := cache.write(k, want); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		got, content, err := cache.read(key)
		if err != nil {
			t.Fatal(err)
		}
		defer content.close()
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(stub{})); diff != "" {
			t.Errorf("stub (-want +got):\n%s", diff)
		}
	}
	check()
	read := func(k stubKey) []byte {
		content, err := os.ReadFile(cache.path(k))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	intact := read(key)
	flipped := func(at int) []byte {
		b := bytes.Clone(intact)
		b[at] ^= 1
		return b
	}
	for name, content := range map[string][]byte{
		"empty":                           {},
		"shorter than its header":         intact[:20],
		"cut off":                         intact[:len(intact)-1],
		"longer":                          append(bytes.Clone(intact), 0),
		"with another sum":                flipped(0),
		"with another length":             flipped(sha256.Size + 3),
		"with another length of the stub": flipped(sha256.Size + 7),
		"with another info":               flipped(stubHeader + 2),
		"with another padding":            flipped(len(intact) - pageSize - 1),
		"with other data":                 flipped(len(intact) - 1),
		"of another key, right by itself": read(other),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(cache.path(key), content, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, _, err := cache.read(key); err == nil {
				t.Errorf("read %v", got)
			}
			if err := cache.write(key, want); err != nil {
				t.Fatal(err)
			}
			check()
		})
	}
	t.Run("a directory", func(t *testing.T) {
		if err := os.Remove(cache.path(key)); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(cache.path(key), 0o700); err != nil {
			t.Fatal(err)
		}
		if got, _, err := cache.read(key); err == nil {
			t.Errorf("read %v", got)
		}
	})
}

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

// TestWarmLoads loads a module whose cache is as it should be or not, and calls it: what
// answers is never a stub.
func TestWarmLoads(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
	for _, test := range []struct {
		name string
		// break_ does something to the cache, which has the file of machine code and the stub.
		damage func(t *testing.T, dir, code, stub string)
		// kept reports whether the file of machine code is not written again.
		kept bool
	}{
		{name: "whole", damage: func(*testing.T, string, string, string) {}, kept: true},
		{name: "without the machine code", damage: func(t *testing.T, _, code, _ string) { removeAll(t, code) }},
		{name: "without the checksum", damage: func(t *testing.T, _, code, _ string) { removeAll(t, code+sumSuffix) }},
		{name: "without the stub", damage: func(t *testing.T, _, _, stub string) { removeAll(t, stub) }},
		{name: "with the machine code that wazero made of the stub", damage: func(t *testing.T, dir, code, stub string) {
			removeAll(t, code)
			compileStub(t, dir, stub)
			if _, err := os.Stat(code); err != nil {
				t.Fatalf("wazero has not compiled the stub: %v", err)
			}
		}},
		{name: "with the machine code for another processor", damage: func(t *testing.T, dir, code, stub string) {
			for _, other := range (codeCache{dir: dir}).files(readFile(t, stub)) {
				if other != code {
					for _, suffix := range []string{"", sumSuffix} {
						if err := os.Rename(code+suffix, other+suffix); err != nil {
							t.Fatal(err)
						}
					}
					return
				}
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := RuntimeConfig{CacheDir: dir}
			loadCached(t, cfg, "noop")
			code := machineCode(t, dir)
			stubs := filesIn(t, dir, stubsDir)
			if len(stubs) != 1 {
				t.Fatalf("the cache has the stubs %v, want one", stubs)
			}
			before, err := os.Stat(code)
			if err != nil {
				t.Fatal(err)
			}
			test.damage(t, dir, code, stubs[0])
			for range 2 {
				loadCached(t, cfg, "noop")
			}
			after, err := os.Stat(code)
			if err != nil {
				t.Fatal(err)
			}
			if kept := os.SameFile(before, after) && before.ModTime().Equal(after.ModTime()); kept != test.kept {
				t.Errorf("the machine code was kept is %v, want %v", kept, test.kept)
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
		p, err := rt.Load(t.Context(), Config{Name: "traps", Source: File("testdata/traps.wasm")}, Adapter{Kind: abi.KindScheduler})
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

func removeAll(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
}

// readFile returns the module in a file of the stub of noop.
func readFile(t *testing.T, name string) []byte {
	t.Helper()
	s, content, err := stubCache{filepath.Dir(name)}.read(keyOfFile(t, name))
	if err != nil {
		t.Fatal(err)
	}
	content.close()
	return s.module
}

// keyOfFile returns the key that a file of the stubs is named after.
func keyOfFile(t *testing.T, name string) stubKey {
	t.Helper()
	for _, goPass := range []bool{true, false} {
		c := &compiled{key: compiledKeyOf(t, "noop")}
		if key := stubKeyOf(c.key.digest, c.rewriting(), goPass); strings.HasSuffix(name, (stubCache{}).path(key)) {
			return key
		}
	}
	t.Fatalf("%s is not the stub of noop", name)
	return stubKey{}
}

// compileStub has wazero compile a stub, as it does if the file of machine code has just been
// removed by another process.
func compileStub(t *testing.T, dir, stub string) {
	t.Helper()
	module := readFile(t, stub)
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))
	_, err = rt.CompileModule(ctx, module)
	if err = errors.Join(err, rt.Close(ctx), cache.Close(ctx)); err != nil {
		t.Fatal(err)
	}
}

// compiledKeyOf returns the key of a module of testdata without limits of its own.
func compiledKeyOf(t *testing.T, name string) (key compiledKey) {
	t.Helper()
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	_, err = rt.Load(t.Context(), Config{Name: name, Source: File("testdata/" + name + ".wasm")}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	for key = range rt.compiled {
	}
	return key
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
