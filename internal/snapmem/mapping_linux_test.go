package snapmem

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMapsOnLinux holds that the tests above do not pass by way of the fallback.
func TestMapsOnLinux(t *testing.T) {
	a := &Allocator{Budget: NewBudget(0)}
	first, image := started(t, a, page, 4*page)
	defer image.Close()
	defer first.Free()
	if m, ok := first.backing.(*mapping); !ok || !m.shared {
		t.Errorf("the memory is a %T", first.backing)
	}
	if openPagemap() < 0 {
		t.Error("the list of pages is not used")
	}
}

// TestListOfPagesOfAnotherByteOrder holds that a list whose bytes are reversed is not used,
// wherever the pages are: it would leave in place what a call wrote.
func TestListOfPagesOfAnotherByteOrder(t *testing.T) {
	const exclusive, softDirty = 1 << 56, 1 << 55
	used := 0
	for at := range uint64(1 << 16) {
		read, written := 1<<20|at&0xff, 1<<21|at>>8
		entries := [3]uint64{pagePresent | pageFile | softDirty | read, 0, pagePresent | exclusive | softDirty | written}
		if tellsProbe(entries) {
			used++
		}
		for n, e := range entries {
			entries[n] = bits.ReverseBytes64(e)
		}
		if tellsProbe(entries) {
			t.Fatalf("%#x is used", entries)
		}
	}
	// Addresses that could be flags: 0xa0 and 0xa1 of the one page, 0x80 and 0x81 of the other.
	if want := 1<<16 - 2*2; used != want {
		t.Errorf("the list is used at %d addresses, want %d", used, want)
	}
}

// TestImageIsSealed holds that the file of an image cannot be changed.
func TestImageIsSealed(t *testing.T) {
	image, _ := (&Allocator{Budget: NewBudget(0)}).NewImage(make([]byte, page), nil)
	defer image.Close()
	if _, err := unix.Pwrite(image.file.fd, []byte{1}, 0); err != unix.EPERM {
		t.Errorf("write: got %v", err)
	}
	if err := unix.Ftruncate(image.file.fd, 0); err != unix.EPERM {
		t.Errorf("truncate: got %v", err)
	}
}

// TestKeepsPagesWithinBounds holds that a reset returns the written pages above
// keepPages to the kernel.
func TestKeepsPagesWithinBounds(t *testing.T) {
	a := &Allocator{Budget: NewBudget(0)}
	first, image := started(t, a, 63*page, 64*page)
	defer image.Close()
	defer first.Free()
	for _, written := range []int{0, 1, keepPages - 1, keepPages, keepPages + 1, 2 * keepPages} {
		for n := range written {
			first.bytes[n*os.Getpagesize()]++
		}
		if !first.Reset(first) || !bytes.Equal(first.bytes, image.Bytes()) {
			t.Fatal("the memory is not the image")
		}
		if got, want := private(t, first.bytes), min(written, keepPages); got != want {
			t.Errorf("%d pages are kept of %d written, want %d", got, written, want)
		}
	}
}

// private returns how many pages of the mappings that begin in a memory are the process's own,
// as the kernel says.
func private(t testing.TB, mem []byte) (pages int) {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	start, found, within := uint64(uintptr(unsafe.Pointer(&mem[0]))), false, false
	for line := range strings.Lines(string(smaps)) {
		var from, to uint64
		var kb int
		if n, _ := fmt.Sscanf(line, "%x-%x ", &from, &to); n == 2 {
			within = from >= start && from < start+uint64(len(mem))
			found = found || within
		} else if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &kb); n == 1 && within {
			pages += kb * 1024 / os.Getpagesize()
		}
	}
	if !found {
		t.Fatalf("no mapping at %p", &mem[0])
	}
	return pages
}

// TestZerosAreNotStored holds that a guest which reads and writes where an image has zeros
// makes no page of its file, and that reading makes none of the process's own.
func TestZerosAreNotStored(t *testing.T) {
	memory := make([]byte, 64*page)
	for at := range len(memory) / page {
		memory[at*page] = 1 // More parts than an image has.
	}
	clear(memory[16*page : 48*page])
	a := &Allocator{Budget: NewBudget(math.MaxUint64)}
	image, err := a.NewImage(memory, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	mem, err := a.NewFrom(image, uint64(len(memory)), uint64(len(memory)))
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	stored := func() int64 {
		var stat unix.Stat_t
		if err := unix.Fstat(image.file.fd, &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Blocks
	}
	before, got := stored(), mem.Reallocate(uint64(len(memory)))
	for at := 16 * page; at < 48*page; at += os.Getpagesize() {
		if got[at] != 0 {
			t.Fatalf("byte %d is %d", at, got[at])
		}
	}
	mem.backing.reset(image)
	// Kernels without a shared page of zeros give each page that is read one of its own.
	// It lies between pages without access, so that the kernel joins it with no other mapping.
	around, err := unix.Mmap(-1, 0, 34*page, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(around)
	plain := around[page : 33*page]
	if err := unix.Mprotect(plain, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(plain); at += os.Getpagesize() {
		if plain[at] != 0 {
			t.Fatalf("byte %d is %d", at, plain[at])
		}
	}
	if n, most := private(t, got[15*page+os.Getpagesize():48*page]), private(t, plain); n > most {
		t.Errorf("%d pages that were read take memory, and %d of an anonymous mapping", n, most)
	}
	for at := 16 * page; at < 48*page; at += os.Getpagesize() {
		got[at] = 1
	}
	mem.backing.reset(image)
	if after := stored(); after != before {
		t.Errorf("the file of the image has %d blocks, %d before", after, before)
	}
	if !bytes.Equal(got, memory) {
		t.Error("the memory is not the image")
	}
}

// BenchmarkReset compares ways to reset a memory of 2.5 MB. Between two resets
// some pages are read and some written.
func BenchmarkReset(b *testing.B) {
	for _, written := range []int{2, 12, 25, 64, 150, 400} {
		for _, way := range []string{"none", "copy all", "madvise", "pages written"} {
			b.Run(fmt.Sprintf("%d pages/%s", written, way), func(b *testing.B) {
				a := &Allocator{Budget: NewBudget(0)}
				first, image := started(b, a, 39*page, 64*page)
				defer image.Close()
				defer first.Free()
				mem, sum := first.bytes, byte(0)
				for b.Loop() {
					for n := range 3 * written {
						sum += mem[n*4096%len(mem)]
					}
					for n := range written {
						mem[n*4096]++
					}
					switch way {
					case "copy all":
						copy(mem, image.Bytes())
					case "madvise":
						if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
							b.Fatal(err)
						}
					case "pages written":
						copyWritten(openPagemap(), mem, image.Bytes(), len(mem))
					}
				}
				_ = sum
			})
		}
	}
}

// TestImageOfAFile holds that images share the pages of a file that has what they begin with,
// also after it was removed, and count only what is their own: here two pages that are not zero.
func TestImageOfAFile(t *testing.T) {
	const size, at = 8 << 16, 1 << 16
	content := bytes.Repeat([]byte("content "), size/16) // The first half of a memory.
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt(content, at); err != nil {
		t.Fatal(err)
	}
	base, err := MapImage(file, at, len(content))
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
		t.Fatal(err)
	}
	a := &Allocator{Budget: NewBudget(math.MaxUint64)}
	want := append(bytes.Clone(content), make([]byte, size-len(content))...)
	want[len(content)-1], want[size-1] = 'x', 'y'
	image, err := a.NewImage(want, base)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if got, want := a.Budget.Used(), uint64(2*os.Getpagesize()); got != want {
		t.Errorf("the image counts %d bytes, want %d", got, want)
	}
	mem, err := a.NewFrom(image, size, size)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	got := mem.Reallocate(size)
	for range 2 {
		if !bytes.Equal(got, want) || !bytes.Equal(image.Bytes(), want) {
			t.Fatal("the memory does not begin as the image")
		}
		got[0], got[size/2], got[size-1] = 1, 2, 3
		mem.backing.reset(image)
	}
	if !bytes.Equal(base.Bytes(), content) {
		t.Error("a write to the memory has changed the file")
	}
	if _, err := MapImage(file, at, len(content)); err == nil {
		t.Error("a closed file was mapped")
	}
}

// TestImageIsMappedPrivately holds that no part of an image is a shared mapping: Linux before
// 6.7 refuses those of a sealed file, and each memory would be a copy.
func TestImageIsMappedPrivately(t *testing.T) {
	memory := make([]byte, 4*page)
	memory[page] = 1
	a := &Allocator{Budget: NewBudget(0)}
	base, err := a.NewImage(memory, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	memory[2*page] = 1
	image, err := a.NewImage(memory, base)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "kubewasm-image") {
			found++
			if !strings.Contains(line, " r--p ") {
				t.Errorf("a mapping is not private: %s", line)
			}
		}
	}
	if found < 3 {
		t.Errorf("%d mappings of images, want one of the base and two of the image", found)
	}
}

// TestAnImageThatIsNotMappedAfterOneThatIs holds that a memory which began as a mapped image is
// reset to the one that it adopts, also if that could not be put into a file.
func TestAnImageThatIsNotMappedAfterOneThatIs(t *testing.T) {
	const size = (keepPages + 64) * 4096 // More than a reset copies page by page.
	a := &Allocator{Budget: NewBudget(0)}
	base, err := a.NewImage(bytes.Repeat([]byte("base...."), size/8), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	mem, err := a.NewFrom(base, size, size+4*page)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free()
	i := newInstance(mem, size, size+4*page)
	image, err := (&Allocator{Budget: a.Budget, Plain: true}).NewImage(bytes.Repeat([]byte("image..."), size/8), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if err := mem.Adopt(image); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if !i.Reset(i) || !bytes.Equal(i.bytes, image.Bytes()) {
			t.Fatal("the memory is not the image that it has adopted")
		}
		i.Grow(2)
		alter(i.bytes, 1)
	}
}
