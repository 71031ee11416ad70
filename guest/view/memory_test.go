//go:build unix && !wasip1

package view

import (
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
)

// atTheEnd returns a copy of what is written to it that ends where the memory
// does: a reader of a byte more gets a fault, here a panic.
func atTheEnd(tb testing.TB) func(raw []byte) []byte {
	const size = 1 << 20
	page := syscall.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = syscall.Munmap(memory) })
	if err := syscall.Mprotect(memory[size:], syscall.PROT_NONE); err != nil {
		tb.Fatal(err)
	}
	return func(raw []byte) []byte {
		raw = raw[:min(len(raw), size)]
		end := memory[size-len(raw) : size : size]
		copy(end, raw)
		return end
	}
}

func readToTheEnd(copyOf func([]byte) []byte, raw []byte) {
	say(FromProto(copyOf(raw), &typeOfThing))
	thing := FromProto(copyOf(raw), &typeOfThing)
	labels := thing.StringMap(6)
	for _, key := range []string{"", "a", "zone", "of a label of some length"} {
		labels.Get(key)
	}
	for _, part := range List[View](thing, 4, &typeOfPart) {
		part.Text(1)
	}
}

// TestNothingBehindTheBytesIsRead reads messages that are cut off anywhere: the
// loops that look at several bytes at a time do it without the checks of the
// compiler.
func TestNothingBehindTheBytesIsRead(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	copyOf := atTheEnd(t)
	for _, long := range []string{"", "x", strings.Repeat("x", 200), strings.Repeat("x", 20_000)} {
		raw := thingBytes("n", long)
		for n := max(0, len(raw)-1000); n < len(raw); n++ {
			readToTheEnd(copyOf, raw[:n])
		}
	}
}

func FuzzNothingBehindTheBytesIsRead(f *testing.F) {
	f.Add(thingBytes("n", "x"))
	f.Add(thingBytes("name", strings.Repeat("x", 300)))
	copyOf := atTheEnd(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		readToTheEnd(copyOf, raw)
	})
}
