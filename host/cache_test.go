package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// loadCached loads a module of testdata in a new runtime, as a new process does, and calls it.
func loadCached(t *testing.T, cfg RuntimeConfig, name string) {
	t.Helper()
	rt, err := NewRuntime(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rt.Load(t.Context(), Config{Name: name, Module: ModuleConfig{File: "testdata/" + name + ".wasm"}}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	callFilter(t, p)
	if err := rt.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// needsCompiler skips a test where wazero interprets.
func needsCompiler(t *testing.T) {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
}

// callFilter calls filter on some instance of a plugin.
func callFilter(t *testing.T, p *Plugin) {
	t.Helper()
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
		t.Error(err)
	}
}

// filesIn returns the files below a directory whose name begins with a prefix.
func filesIn(t *testing.T, dir, prefix string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, name); err == nil && d.Type().IsRegular() && strings.HasPrefix(rel, prefix) {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// moduleFile returns the only file in a cache. It skips the test where wazero has its interpreter
// only.
func moduleFile(t *testing.T, dir string) string {
	t.Helper()
	needsCompiler(t)
	files := filesIn(t, dir, "")
	if len(files) != 1 {
		t.Fatalf("the cache has %v, want one file", files)
	}
	return files[0]
}

// TestEngineCache holds that wazero takes machine code from a file of the cache: it depends on
// wazero's structures, and on how wazero serializes machine code.
func TestEngineCache(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	if cache, files := newEngineCache(); files == nil {
		t.Fatalf("%T has no place for a cache of files", cache)
	}
	dir := t.TempDir()
	loadCached(t, RuntimeConfig{CacheDir: dir}, "noop")
	name := moduleFile(t, dir)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(name, old, old); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	loadCached(t, RuntimeConfig{CacheDir: dir}, "noop")
	after, err := os.Stat(moduleFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("the module was compiled again")
	}
	if time.Since(after.ModTime()) > time.Minute { // What is used again is young again.
		t.Errorf("%s was used, and is from %v", name, after.ModTime())
	}
}

// TestEngineNameHasTheVersion holds it for the binary of a test, which has no versions.
func TestEngineNameHasTheVersion(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(mod), "github.com/tetratelabs/wazero ")
	version, _, _ = strings.Cut(version, "\n")
	if version == "" || !strings.Contains(engineName(), version) {
		t.Errorf("the name is %s, want %s in it", engineName(), version)
	}
}

// TestParseSerialized holds that what wazero serializes is taken apart, and that nothing else
// makes the host panic or read beyond its end.
func TestParseSerialized(t *testing.T) {
	intact := slices.Concat([]byte("WAZEVO\x03dev\x02\x00\x00\x00"), make([]byte, 16), []byte("\x04\x00\x00\x00\x00\x00\x00\x00code and after"))
	got, ok := parseSerialized(intact)
	if !ok || string(got.machine) != "code" || string(got.after) != " and after" || string(got.header) != "WAZEVO\x03dev" || string(got.header)+string(got.before)+"code and after" != string(intact) {
		t.Errorf("parseSerialized returns %q, %v", got, ok)
	}
	const header, count, length = 7, 10, 30
	for name, b := range map[string][]byte{
		"empty":                        {},
		"other magic":                  append([]byte("wazevo"), intact[6:]...),
		"cut off in its version":       intact[:header+1],
		"cut off in its offsets":       intact[:count+10],
		"cut off in its machine code":  intact[:length+10],
		"a thousand million functions": slices.Replace(slices.Clone(intact), count+3, count+4, 0xff),
		"the longest machine code":     slices.Replace(slices.Clone(intact), length, length+8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
	} {
		if got, ok := parseSerialized(b); ok {
			t.Errorf("%s: parseSerialized returns %q", name, got)
		}
	}
}

func TestModuleCacheIsBounded(t *testing.T) {
	for _, engine := range []Engine{"", EngineInterpreter} {
		t.Run(fmt.Sprintf("engine %q", engine), func(t *testing.T) { testModuleCacheIsBounded(t, engine) })
	}
}

func testModuleCacheIsBounded(t *testing.T, engine Engine) {
	dir := t.TempDir()
	size := func() (bytes int64) {
		for _, name := range filesIn(t, dir, "") {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			bytes += info.Size()
		}
		return bytes
	}
	other := filepath.Join(dir, modulesDir, "0123")
	if err := os.Mkdir(filepath.Dir(other), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(other, old, old); err != nil {
		t.Fatal(err)
	}
	loadCached(t, RuntimeConfig{CacheDir: dir, Engine: engine}, "noop")
	bound := size() - 1 // The files of noop, without those of another version.
	for _, name := range []string{"deep", "grows", "noop"} {
		loadCached(t, RuntimeConfig{CacheDir: dir, CacheBytes: bound, Engine: engine}, name)
		if got := size(); got > bound {
			t.Errorf("the cache has %d bytes, want at most %d", got, bound)
		}
	}
	if _, err := os.Stat(other); err == nil {
		t.Error("the module of another version is still there")
	}
	loadCached(t, RuntimeConfig{CacheDir: filepath.Join(dir, "only"), Engine: engine}, "noop")
	for _, name := range filesIn(t, filepath.Join(dir, "only"), "") {
		used := strings.Replace(name, "only"+string(filepath.Separator), "", 1)
		if _, err := os.Stat(used); err != nil {
			t.Errorf("what was used last is gone: %v", err)
		}
	}
}

func TestModuleCacheUsesNothingThatWasChanged(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	dir := t.TempDir()
	cfg := RuntimeConfig{CacheDir: dir}
	loadCached(t, cfg, "noop")
	name := moduleFile(t, dir)
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		data := slices.Clone(want)
		data[at] ^= 0x40
		return data
	}
	length := func(n int) int { return int(binary.LittleEndian.Uint32(want[sha256.Size+4*n:])) }
	serialized := int(headerOfFile) + length(0) + length(1)
	for what, data := range map[string][]byte{
		"an empty file": {}, "half a file": want[:len(want)/2], "a byte more": append(slices.Clone(want), 0),
		"another number of functions": flipped(serialized), "another offset of a function": flipped(serialized + 10),
		"other machine code": flipped(len(want) - 1), "a changed length": flipped(sha256.Size),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		loadCached(t, cfg, "noop")
		if got, err := os.ReadFile(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: it was not written again: %v", what, err)
		}
	}
}

// TestModuleCacheCannotBeWritten removes the directories of the cache: each write fails, as on a
// full disk.
func TestModuleCacheCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	rt, err := NewRuntime(RuntimeConfig{CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		p, err := rt.Load(t.Context(), Config{Name: "noop", Module: ModuleConfig{File: "testdata/noop.wasm"}}, Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestModuleCache holds that what comes from a file is what was written, and that any other file is
// as good as none.
func TestModuleCache(t *testing.T) {
	cache, err := newModuleCache(t.TempDir(), defaultCacheBytes)
	if err != nil {
		t.Fatal(err)
	}
	key, other := moduleKeyOf("a", rewriteOptions, true), moduleKeyOf("a", rewriteOptions, false)
	want := &stub{[]byte("\x00asm and more"), aboutStub{&wasmbin.Info{Functions: 7, Starts: true}, 2 * pageSize}, bytes.Repeat([]byte("data"), pageSize/4)}
	code := serialized{key: engineKey{1, 2}, before: []byte("before"), machine: []byte("machine code"), after: []byte("after")}
	for _, k := range []moduleKey{key, other} {
		if err := cache.write(k, want, code); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		got := readWhole(t, cache, key)
		if diff := cmp.Diff(*want, got.stub, cmp.AllowUnexported(stub{})); diff != "" {
			t.Errorf("stub (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(code, got.code, cmp.AllowUnexported(serialized{})); diff != "" {
			t.Errorf("serialized (-want +got):\n%s", diff)
		}
		if got.dataAt%pageSize != 0 || got.codeAt%pageSize != 0 {
			t.Errorf("data at %d and machine code at %d, want multiples of %d", got.dataAt, got.codeAt, pageSize)
		}
	}
	check()
	read := func(k moduleKey) []byte {
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
	files := map[string][]byte{
		"empty":                           {},
		"shorter than its header":         intact[:20],
		"cut off":                         intact[:len(intact)-1],
		"longer":                          append(bytes.Clone(intact), 0),
		"with another sum":                flipped(0),
		"with another key of the engine":  flipped(int(headerOfFile) - 1),
		"with another info":               flipped(int(headerOfFile) + 2),
		"with another padding":            flipped(len(intact) - len(code.machine) - pageSize - 1),
		"with other data":                 flipped(len(intact) - len(code.machine) - 1),
		"of another key, right by itself": read(other),
	}
	for i := range lengthsInFile {
		for _, at := range []int{0, 3} {
			files[fmt.Sprintf("with another length %d, byte %d", i, at)] = flipped(sha256.Size + 4*i + at)
		}
	}
	for name, content := range files {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(cache.path(key), content, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := cache.read(key); err == nil {
				t.Errorf("read %v", got)
			}
			if err := cache.write(key, want, code); err != nil {
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
		if got, err := cache.read(key); err == nil {
			t.Errorf("read %v", got)
		}
	})
}

// TestEngineHeader holds that a file has nothing of the process that wrote it: the binaries of
// tests and programs, for which wazero has other versions, share files.
func TestEngineHeader(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	dir := t.TempDir()
	loadCached(t, RuntimeConfig{CacheDir: dir}, "noop")
	file, err := os.ReadFile(moduleFile(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	header, err := engineHeader()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(header), "WAZEVO") {
		t.Errorf("the header is %q", header)
	}
	if bytes.Contains(file, header) {
		t.Errorf("%q is in a file of the cache", header)
	}
}

// TestWarmLoads loads a module whose file in the cache is as it should be or not, and calls it:
// what answers is never a stub.
func TestWarmLoads(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, c moduleCache, key moduleKey, m *cachedModule)
		// kept reports whether the file is not written again.
		kept bool
	}{
		{name: "whole", damage: func(*testing.T, moduleCache, moduleKey, *cachedModule) {}, kept: true},
		{name: "removed", damage: func(t *testing.T, c moduleCache, key moduleKey, _ *cachedModule) {
			if err := os.Remove(c.path(key)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "for another processor", damage: func(t *testing.T, c moduleCache, key moduleKey, m *cachedModule) {
			m.code.key[0] ^= 1
			writeModule(t, c, key, m)
		}},
		{name: "not wazero's", damage: func(t *testing.T, c moduleCache, key moduleKey, m *cachedModule) {
			m.code.before[0] ^= 1
			writeModule(t, c, key, m)
		}},
		{name: "with less machine code than wazero expects", damage: func(t *testing.T, c moduleCache, key moduleKey, m *cachedModule) {
			m.code.machine = m.code.machine[:len(m.code.machine)/2]
			writeModule(t, c, key, m)
		}},
		{name: "with other machine code", damage: func(t *testing.T, c moduleCache, key moduleKey, m *cachedModule) {
			m.code.machine[0] ^= 1
			writeModule(t, c, key, m)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := RuntimeConfig{CacheDir: dir}
			loadCached(t, cfg, "noop")
			file := moduleFile(t, dir)
			open, err := os.Open(file) // Or the next file could get its number.
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()
			before, err := open.Stat()
			if err != nil {
				t.Fatal(err)
			}
			cache, key := moduleCache{dir: filepath.Dir(file)}, keyOfFile(t, file)
			m := readWhole(t, cache, key)
			test.damage(t, cache, key, m)
			damaged, err := os.Stat(file)
			for range 2 {
				loadCached(t, cfg, "noop")
			}
			after, statErr := os.Stat(file)
			if statErr != nil {
				t.Fatal(statErr)
			}
			if kept := os.SameFile(before, after); kept != test.kept {
				t.Errorf("the file was kept is %v, want %v", kept, test.kept)
			}
			if err == nil && !test.kept && os.SameFile(damaged, after) {
				t.Error("the damaged file is still there")
			}
		})
	}
}

// readWhole returns a file of the cache with its machine code.
func readWhole(t *testing.T, c moduleCache, key moduleKey) *cachedModule {
	t.Helper()
	m, err := c.read(key)
	if err != nil {
		t.Fatal(err)
	}
	defer m.file.Close()
	m.code.machine = make([]byte, m.codeSize)
	if _, err := m.file.ReadAt(m.code.machine, m.codeAt); err != nil {
		t.Fatal(err)
	}
	return m
}

// writeModule writes the file of a module again.
func writeModule(t *testing.T, c moduleCache, key moduleKey, m *cachedModule) {
	t.Helper()
	if err := c.write(key, &m.stub, m.code); err != nil {
		t.Fatal(err)
	}
}

// keyOfFile returns the key that the file of noop is named after.
func keyOfFile(t *testing.T, name string) moduleKey {
	t.Helper()
	for _, goPass := range []bool{true, false} {
		c := &compiled{key: compiledKeyOf(t, "noop")}
		if key := moduleKeyOf(c.key.digest, c.rewriting(), goPass); strings.HasSuffix(name, filepath.Base(moduleCache{}.path(key))) {
			return key
		}
	}
	t.Fatalf("%s is not the file of noop", name)
	return moduleKey{}
}

// compiledKeyOf returns the key of a module of testdata without limits of its own.
func compiledKeyOf(t *testing.T, name string) (key compiledKey) {
	t.Helper()
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	_, err = rt.Load(t.Context(), Config{Name: name, Module: ModuleConfig{File: "testdata/" + name + ".wasm"}}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	for key = range rt.compiled {
	}
	return key
}
