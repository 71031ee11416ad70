package host

import (
	"context"
	"errors"
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
)

// loadCached loads a module of testdata in a new runtime, as a new process does, and calls it.
func loadCached(t *testing.T, cfg RuntimeConfig, name string) {
	t.Helper()
	rt, err := NewRuntime(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := rt.Load(t.Context(), Config{Name: name, Source: File("testdata/" + name + ".wasm")}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = inst.Call(t.Context(), abi.Filter, 0, 0, 0)
	inst.Release()
	if err = errors.Join(err, rt.Close(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
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

// machineCode returns the only file of wazero in a cache. It skips the test where wazero has
// its interpreter only.
func machineCode(t *testing.T, dir string) string {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
	files := slices.DeleteFunc(filesIn(t, dir, "wazero-"), func(name string) bool { return strings.HasSuffix(name, sumSuffix) })
	if len(files) != 1 {
		t.Fatalf("the cache has the machine code %v, want one file", files)
	}
	return files[0]
}

func TestCodeCacheKnowsTheFiles(t *testing.T) {
	dir := t.TempDir()
	loadCached(t, RuntimeConfig{CacheDir: dir}, "noop")
	name := machineCode(t, dir)
	if _, err := os.Stat(name + sumSuffix); err != nil {
		t.Errorf("the names of wazero's files have changed: %v", err)
	}
	// What is used again is young again.
	files := filesIn(t, dir, "")
	old := time.Now().Add(-time.Hour)
	for _, name := range files {
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	loadCached(t, RuntimeConfig{CacheDir: dir}, "noop")
	if diff := cmp.Diff(files, filesIn(t, dir, "")); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || time.Since(info.ModTime()) > time.Minute {
			t.Errorf("%s was used, and is from %v: %v", name, info.ModTime(), err)
		}
	}
}

func TestCodeCacheIsBounded(t *testing.T) {
	for _, interpreter := range []bool{false, true} {
		t.Run(fmt.Sprintf("interpreter %v", interpreter), func(t *testing.T) { testCodeCacheIsBounded(t, interpreter) })
	}
}

func testCodeCacheIsBounded(t *testing.T, interpreter bool) {
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
	other := filepath.Join(dir, "wazero-v0.0.1-s390x-plan9")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "0123"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(other, "0123"), old, old); err != nil {
		t.Fatal(err)
	}
	loadCached(t, RuntimeConfig{CacheDir: dir, Interpreter: interpreter}, "noop")
	bound := size() - 1 // The files of noop, without those of another version.
	for _, name := range []string{"deep", "grows", "noop"} {
		loadCached(t, RuntimeConfig{CacheDir: dir, CacheBytes: bound, Interpreter: interpreter}, name)
		if got := size(); got > bound {
			t.Errorf("the cache has %d bytes, want at most %d", got, bound)
		}
	}
	if _, err := os.Stat(filepath.Join(other, "0123")); err == nil {
		t.Error("the machine code of another version is still there")
	}
	loadCached(t, RuntimeConfig{CacheDir: filepath.Join(dir, "only"), Interpreter: interpreter}, "noop")
	for _, name := range filesIn(t, filepath.Join(dir, "only"), "") {
		used := strings.Replace(name, "only"+string(filepath.Separator), "", 1)
		if _, err := os.Stat(used); err != nil {
			t.Errorf("what was used last is gone: %v", err)
		}
	}
}

func TestCodeCacheUsesNothingThatWasChanged(t *testing.T) {
	dir := t.TempDir()
	cfg := RuntimeConfig{CacheDir: dir}
	loadCached(t, cfg, "noop")
	name := machineCode(t, dir)
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		data := slices.Clone(want)
		data[at] ^= 0x40
		return data
	}
	header := len("WAZEVO") + 1 + int(want[len("WAZEVO")])
	for what, data := range map[string][]byte{
		"an empty file": {}, "half a file": want[:len(want)/2], "other magic": flipped(0), "a thousand million functions": flipped(header + 3),
		"another offset of a function": flipped(header + 4), "other code": flipped(len(want) / 2), "other tables": flipped(len(want) - 1),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		loadCached(t, cfg, "noop")
		if got, err := os.ReadFile(name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: it was not written again: %v", what, err)
		}
	}
	if err := os.WriteFile(name+sumSuffix, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	loadCached(t, cfg, "noop")
}

// TestCodeCacheCannotBeWritten removes the directories of the cache: each write fails, as on a
// full disk.
func TestCodeCacheCannotBeWritten(t *testing.T) {
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
		p, err := rt.Load(t.Context(), Config{Name: "noop", Source: File("testdata/noop.wasm")}, Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
