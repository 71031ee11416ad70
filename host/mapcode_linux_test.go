package host

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/tetratelabs/wazero"
	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// mappedCode returns the lines of the process's mappings of executable files below a directory.
func mappedCode(t *testing.T, dir string) (lines []string) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, " r-xp ") && strings.Contains(line, dir) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestMachineCodeIsMapped holds that machine code is in a mapping of a file of the cache, which
// has exactly that: a changed file is written again, and one mapping serves all plugins.
func TestMachineCodeIsMapped(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	needsCompiler(t)
	dir := t.TempDir()
	for _, test := range []struct {
		name   string
		damage func(file string) error
	}{
		{"in a new cache", func(string) error { return nil }},
		{"again", func(string) error { return nil }},
		{"after the file was changed", func(file string) error {
			content, err := os.ReadFile(file)
			if err == nil {
				content[len(content)-1] ^= 1
				err = os.WriteFile(file, content, 0o600)
			}
			return err
		}},
		{"after the file was cut off", func(file string) error { return os.Truncate(file, 1) }},
		{"after the file was removed", os.Remove},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, file := range filesIn(t, dir, "") {
				if err := test.damage(file); err != nil {
					t.Fatal(err)
				}
			}
			rt, err := NewRuntime(RuntimeConfig{CacheDir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(t.Context())
			for _, name := range []string{"one", "two"} {
				p, err := rt.Load(t.Context(), Config{Name: name, Module: ModuleConfig{File: "testdata/noop.wasm"}}, Adapter{Kind: abi.KindScheduler})
				if err != nil {
					t.Fatal(err)
				}
				callFilter(t, p)
			}
			if got := mappedCode(t, dir); len(got) != 1 || strings.Contains(got[0], "(deleted)") {
				t.Errorf("mappings %q, want one", got)
			}
			if got := filesIn(t, dir, ""); len(got) != 1 {
				t.Errorf("files %v, want one", got)
			}
		})
		// The garbage collector closes the mapping.
		for len(mappedCode(t, dir)) != 0 {
			runtime.GC()
		}
	}
}

// TestMappingOfWhatIsNotThere holds that a page of machine code that cannot be read, as on a
// damaged disk, ends the load and not the process.
func TestMappingOfWhatIsNotThere(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	dir := t.TempDir()
	loadCached(t, RuntimeConfig{CacheDir: dir}, "noop")
	file := moduleFile(t, dir)
	cache, key := moduleCache{dir: filepath.Dir(file)}, keyOfFile(t, file)
	c := &compiled{}
	c.cache, c.files = newEngineCache()
	c.wasm = wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfig().WithCompilationCache(c.cache))
	defer c.wasm.Close(t.Context())
	m, err := cache.read(key)
	if err != nil {
		t.Fatal(err)
	}
	defer m.file.Close()
	err = c.load(t.Context(), m.module, func(engineKey) (*cachedModule, error) {
		return m, os.Truncate(file, m.codeAt)
	})
	if err == nil || !strings.Contains(err.Error(), "load machine code") {
		t.Errorf("the error is %v", err)
	}
	loadCached(t, RuntimeConfig{CacheDir: dir}, "noop")
}

// TestNothingIsMappedFromElsewhere holds that a file is read that is not on a local disk.
func TestNothingIsMappedFromElsewhere(t *testing.T) {
	remote, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	code, _ := mapFile(t, os.Getpagesize())
	if mapped, err := mapCode(code, remote, 0); mapped || err != nil {
		t.Errorf("mapped %v, error %v", mapped, err)
	}
}

// mappingsOf returns how many mappings of a file the process has.
func mappingsOf(t *testing.T, file string) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), file)
}

// mapFile maps a new file of a size.
func mapFile(t *testing.T, size int) (mapped []byte, file string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "code"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
	mapped, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mapped) })
	return mapped, f.Name()
}

// needsMadvise skips a test where advice splits no mapping: in qemu, which ignores it.
func needsMadvise(t *testing.T) {
	t.Helper()
	mapped, file := mapFile(t, 2*os.Getpagesize())
	if err := unix.Madvise(mapped[:os.Getpagesize()], unix.MADV_DONTDUMP); err != nil {
		t.Fatal(err)
	}
	if mappingsOf(t, file) != 2 {
		t.Skip("advice splits no mapping here")
	}
}

// TestClosedCodeIsOneMapping holds that the machine code of a module that nothing has any more
// takes one mapping until the garbage collector closes it, which may be long after.
func TestClosedCodeIsOneMapping(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	needsCompiler(t)
	needsMadvise(t)
	guest, err := guestbuild.Build(t.Context(), "testdata/goroutines")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rt, err := NewRuntime(RuntimeConfig{CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	p, err := rt.Load(t.Context(), Config{Name: "p", Module: ModuleConfig{File: guest}}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if got := mappedCode(t, dir); len(got) < 10 {
		t.Errorf("%d mappings, want one for each %d bytes", len(got), pieceBytes)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := mappedCode(t, dir); len(got) != 1 {
		t.Errorf("%d mappings after the end, want one", len(got))
	}
}

// TestSplitLeavesMappings holds that machine code stays in one mapping where the
// process has too few left to split it.
func TestSplitLeavesMappings(t *testing.T) {
	const parts, left = 2000, 1000 // Which other goroutines may need meanwhile.
	needsMadvise(t)
	code, file := mapFile(t, parts*pieceBytes)
	count := func() int { return mappingsOf(t, file) }
	if !splitMapping(code, pieceBytes) || count() != parts {
		t.Fatalf("%d mappings, want %d", count(), parts)
	}
	if joinMapping(code); count() != 1 {
		t.Fatalf("%d mappings, want one", count())
	}

	limit, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		t.Fatal(err)
	}
	most, err := strconv.Atoi(strings.TrimSpace(string(limit)))
	if err != nil || most > 1<<17 {
		t.Skipf("a process may have %d mappings: %v", most, err)
	}
	page := os.Getpagesize()
	filler, err := unix.Mmap(-1, 0, 2*most*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(filler)
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for n := range (most - strings.Count(string(maps), "\n") - left) / 2 { // Each splits the mapping around it.
		if err := unix.Mprotect(filler[(2*n+1)*page:(2*n+2)*page], unix.PROT_READ); err != nil {
			t.Fatal(err)
		}
	}
	if splitMapping(code, pieceBytes) {
		t.Error("the mapping was split")
	}
	if got := count(); got > 2 { // The kernel leaves the place where it has failed.
		t.Errorf("%d mappings, want one or two", got)
	}
}

// TestAStartLeavesNoMachineCode holds that what has run of a module until it is loaded is given
// back: a start runs twice as much of a Go guest as calls do.
func TestAStartLeavesNoMachineCode(t *testing.T) {
	InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	needsCompiler(t)
	if written := []byte{1}; presentPages(t, written) == 0 {
		t.Skip("nothing tells which pages are present, as under emulation")
	}
	dir := t.TempDir()
	rt, err := NewRuntime(RuntimeConfig{CacheDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	p, err := rt.Load(t.Context(), Config{Name: "one", Module: ModuleConfig{File: "testdata/noop.wasm"}}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	code := p.current.Load().compiled.code
	loaded := presentPages(t, code)
	callFilter(t, p)
	if called := presentPages(t, code); loaded != 0 || called == 0 {
		t.Errorf("%d pages are present after the load and %d after a call, want none and some", loaded, called)
	}
}

// presentPages returns how many pages of memory the process has mapped
// (Documentation/admin-guide/mm/pagemap.rst).
func presentPages(t *testing.T, memory []byte) (n int) {
	t.Helper()
	file, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	page := uintptr(os.Getpagesize())
	first := uintptr(unsafe.Pointer(unsafe.SliceData(memory))) / page
	entries := make([]uint64, (uintptr(len(memory))+page-1)/page)
	if err := binary.Read(io.NewSectionReader(file, int64(first*8), int64(8*len(entries))), binary.NativeEndian, entries); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		n += int(e >> 63)
	}
	return n
}

func TestPiecesOfMachineCodeAreWholePages(t *testing.T) {
	for page, want := range map[int]int{4 << 10: 24 << 10, 16 << 10: 32 << 10, 64 << 10: 64 << 10} {
		if got := roundUp(24<<10, page); got != want {
			t.Errorf("with pages of %d bytes: pieces of %d, want %d", page, got, want)
		}
	}
}
