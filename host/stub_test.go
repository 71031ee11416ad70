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
	stub, info := []byte("\x00asm and more"), &wasmbin.Info{Functions: 7, Starts: true}
	for _, k := range []stubKey{key, other} {
		if err := cache.write(k, stub, info); err != nil {
			t.Fatal(err)
		}
	}
	got, gotInfo, err := cache.read(key)
	if err != nil || !bytes.Equal(got, stub) {
		t.Errorf("read %q, error %v", got, err)
	}
	if diff := cmp.Diff(info, gotInfo); diff != "" {
		t.Errorf("info (-want +got):\n%s", diff)
	}
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
		"with another info":               flipped(stubHeader + 2),
		"with another stub":               flipped(len(intact) - 1),
		"of another key, right by itself": read(other),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(cache.path(key), content, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, _, err := cache.read(key); err == nil {
				t.Errorf("read %q", got)
			}
			if err := cache.write(key, stub, info); err != nil {
				t.Fatal(err)
			}
			if got, _, err := cache.read(key); err != nil || !bytes.Equal(got, stub) {
				t.Errorf("after it was written again: read %q, error %v", got, err)
			}
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
			t.Errorf("read %q", got)
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
			stub, err := stubOf(out)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate(stub); err != nil {
				t.Error(err)
			}
			if before, ok := seen[string(stub)]; ok {
				t.Errorf("the stub is that of %s", before)
			}
			seen[string(stub)] = file
			m, err := wasmbin.Decode(stub)
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
			content, _, err := stubCache{filepath.Dir(stub)}.read(keyOfFile(t, stub))
			if err != nil {
				t.Fatal(err)
			}
			for _, other := range (codeCache{dir: dir}).files(content) {
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

func removeAll(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
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
	content, _, err := stubCache{filepath.Dir(stub)}.read(keyOfFile(t, stub))
	if err != nil {
		t.Fatal(err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCompilationCache(cache))
	_, err = rt.CompileModule(ctx, content)
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
