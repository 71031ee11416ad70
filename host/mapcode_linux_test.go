package host

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

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
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
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
				content[len(content)/2] ^= 1
				err = os.WriteFile(file, content, 0o600)
			}
			return err
		}},
		{"after the file was cut off", func(file string) error { return os.Truncate(file, 1) }},
		{"after the file was removed", os.Remove},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, file := range codeFiles(t, dir) {
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
				p, err := rt.Load(t.Context(), Config{Name: name, Source: File("testdata/noop.wasm")}, Adapter{Kind: abi.KindScheduler})
				if err != nil {
					t.Fatal(err)
				}
				inst, err := p.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
					t.Error(err)
				}
				inst.Release()
			}
			if got := mappedCode(t, dir); len(got) != 1 || strings.Contains(got[0], "(deleted)") {
				t.Errorf("mappings %q, want one", got)
			}
			if got := codeFiles(t, dir); len(got) != 1 {
				t.Errorf("files %v, want one", got)
			}
		})
		// The garbage collector closes the mapping.
		for len(mappedCode(t, dir)) != 0 {
			runtime.GC()
		}
	}
}

// TestMachineCodeOfSeveralVersions holds that versions of wazero that share a cache map their
// machine code from files of their own: a name that both had, each would write at its start.
func TestMachineCodeOfSeveralVersions(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
	dir := t.TempDir()
	load := func() {
		t.Helper()
		rt, err := NewRuntime(RuntimeConfig{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(t.Context())
		if _, err := rt.Load(t.Context(), Config{Name: "one", Source: File("testdata/noop.wasm")}, Adapter{Kind: abi.KindScheduler}); err != nil {
			t.Fatal(err)
		}
	}
	load()
	alone := codeFiles(t, dir)
	ours, err := filepath.Glob(filepath.Join(dir, "wazero-*"))
	if err != nil || len(ours) != 1 {
		t.Fatal(ours, err)
	}
	other := strings.Replace(ours[0], "wazero-", "wazero-other-", 1)
	if err := os.CopyFS(other, os.DirFS(ours[0])); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(other, "*"+sumSuffix))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	code := []byte("code of another version")
	for name, content := range map[string][]byte{
		strings.TrimSuffix(files[0], sumSuffix): code,
		files[0]:                                fmt.Appendf(nil, "%08x", crc32.Checksum(code, castagnoli)),
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load()
	mapped := slices.DeleteFunc(codeFiles(t, dir), func(file string) bool { return slices.Contains(alone, file) })
	if len(mapped) != 1 {
		t.Fatalf("files %v beside %v, want one", mapped, alone)
	}
	if code, err = os.ReadFile(mapped[0]); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(".%08x", crc32.Checksum(code, castagnoli)); filepath.Ext(mapped[0]) != want || strings.Count(filepath.Base(mapped[0]), ".") != 1 {
		t.Errorf("the file is %s, want one that ends with %s alone", filepath.Base(mapped[0]), want)
	}
}

// TestNothingIsMappedFromElsewhere holds that no file is made where it could not be mapped.
func TestNothingIsMappedFromElsewhere(t *testing.T) {
	_, made, err := mapFileOf([]byte("code"), "/proc/self/code")
	if made || err == nil || !strings.Contains(err.Error(), "which may be remote") {
		t.Errorf("made %v, error %v", made, err)
	}
}

// TestWhatCannotBeMappedIsWrittenOnce holds that a start does not write a file again that it
// cannot map. Without bytes none can be, as on a noexec mount.
func TestWhatCannotBeMappedIsWrittenOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "code")
	for _, want := range []bool{true, false} {
		if _, made, err := mapFileOf(nil, name); made != want || err == nil {
			t.Errorf("made %v, error %v, want made %v and an error", made, err, want)
		}
	}
}

// TestAPageThatCannotBeRead holds that one page of a file that cannot be read does not end the
// process, and the next.
func TestAPageThatCannotBeRead(t *testing.T) {
	size := 2 * os.Getpagesize()
	code := make([]byte, size)
	mapped, file := mapFile(t, size)
	if !equal(mapped, code) {
		t.Error("a file of zeros has others")
	}
	if err := os.Truncate(file, int64(size/2)); err != nil {
		t.Fatal(err)
	}
	if equal(mapped, code) {
		t.Error("a file is equal without its second page")
	}
}

func codeFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, mappedDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
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
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
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
	p, err := rt.Load(t.Context(), Config{Name: "p", Source: File(guest)}, Adapter{Kind: abi.KindScheduler})
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
	if !splitMapping(code) || count() != parts {
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
	if splitMapping(code) {
		t.Error("the mapping was split")
	}
	if got := count(); got > 2 { // The kernel leaves the place where it has failed.
		t.Errorf("%d mappings, want one or two", got)
	}
}
