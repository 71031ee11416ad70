package snapmem

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"testing"
)

const page = 64 << 10

// instance sees a memory as wazero does.
type instance struct {
	*Memory
	bytes []byte
	max   uint64
}

func newInstance(mem *Memory, min, max uint64) *instance {
	return &instance{Memory: mem, bytes: mem.Allocate(min, max).Reallocate(min), max: max}
}

func (i *instance) Size() uint32 { return uint32(len(i.bytes)) }

func (i *instance) Grow(pages uint32) (uint32, bool) {
	before := len(i.bytes) / page
	size := uint64(before+int(pages)) * page
	if size > i.max {
		return 0, false
	}
	b := i.Reallocate(size)
	if b == nil {
		return 0, false
	}
	i.bytes = b
	return uint32(before), true
}

// started makes an instance that has grown by a page in its start and has
// something in each page, and its image.
func started(t testing.TB, a *Allocator, min, max uint64) (*instance, *Image) {
	t.Helper()
	mem, err := a.New(min, max)
	if err != nil {
		t.Fatal(err)
	}
	i := newInstance(mem, min, max)
	if min < max {
		if _, ok := i.Grow(1); !ok {
			t.Fatal("no growth")
		}
	}
	for n := 0; n < len(i.bytes); n += 4096 {
		i.bytes[n] = byte(n>>12) | 1
	}
	image, err := a.NewImage(i.bytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Adopt(image); err != nil {
		t.Fatal(err)
	}
	return i, image
}

// each runs a test with the system's help and without.
func each(t *testing.T, limit uint64, run func(t *testing.T, a *Allocator)) {
	for name, plain := range map[string]bool{"as the system allows": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			a := &Allocator{Budget: NewBudget(limit), Plain: plain}
			run(t, a)
			if used := a.Budget.Used(); used != 0 {
				t.Errorf("%d bytes are in use in the end", used)
			}
		})
	}
}

func TestReset(t *testing.T) {
	const most = 40 * page
	grow := func(pages uint32) func(i *instance) {
		return func(i *instance) {
			if _, ok := i.Grow(pages); !ok {
				panic("no growth")
			}
			for n := range i.bytes {
				i.bytes[n] ^= 0x55
			}
		}
	}
	tests := map[string]struct {
		change  func(i *instance)
		discard bool
	}{
		"nothing":                 {change: func(*instance) {}},
		"one byte":                {change: func(i *instance) { i.bytes[12345]++ }},
		"the first and last byte": {change: func(i *instance) { i.bytes[0]++; i.bytes[len(i.bytes)-1]++ }},
		"across a page":           {change: func(i *instance) { copy(i.bytes[4090:], "written across") }},
		"what was read before":    {change: func(i *instance) { i.bytes[8192] += i.bytes[8191] + 1 }},
		"every page":              {change: func(i *instance) { clear(i.bytes) }},
		"every other page":        {change: func(i *instance) { alter(i.bytes, 8192) }},
		"growth":                  {change: grow(1)},
		"growth, by far":          {change: grow(7)},
		"growth, and few writes": {change: func(i *instance) {
			if _, ok := i.Grow(3); !ok {
				panic("no growth")
			}
			i.bytes[4096]++
			alter(i.bytes[len(i.bytes)-2*page:], 8192)
		}},
		"growth up to the maximum": {change: grow(9), discard: true},
	}
	each(t, 0, func(t *testing.T, a *Allocator) {
		first, image := started(t, a, 30*page, most)
		defer image.Close()
		want := bytes.Clone(first.bytes)
		defer first.Free()
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				mem, err := a.NewFrom(image, 30*page, most)
				if err != nil {
					t.Fatal(err)
				}
				fresh := newInstance(mem, 30*page, most)
				defer fresh.Free()
				for n := range fresh.bytes { // As data segments do.
					fresh.bytes[n] = 0xff
				}
				if !fresh.Reset(fresh) || !bytes.Equal(fresh.bytes, want) {
					t.Fatal("a new instance is not like the first")
				}
				// Twice: a page that was copied back must be found again.
				for range 2 {
					test.change(fresh)
					if ok := fresh.Reset(fresh); ok == test.discard {
						t.Fatalf("reset: %t", ok)
					} else if !ok {
						return
					}
					if !bytes.Equal(fresh.bytes, want) {
						t.Error("the memory is not the image")
					}
				}
				// What grows again begins with zeros.
				if _, ok := fresh.Grow(7); !ok {
					t.Fatal("no growth")
				}
				if !bytes.Equal(fresh.bytes[len(want):], make([]byte, 7*page)) {
					t.Error("the memory beyond the image is not empty")
				}
				if !fresh.Reset(fresh) || !bytes.Equal(fresh.bytes, want) {
					t.Error("the memory is not the image")
				}
			})
		}
		if !bytes.Equal(first.bytes, want) || !bytes.Equal(image.Bytes(), want) {
			t.Error("an instance wrote into the image")
		}
		alter(first.bytes, 1)
		if !first.Reset(first) || !bytes.Equal(first.bytes, want) {
			t.Error("the first instance is not the image")
		}
	})
}

func alter(b []byte, step int) {
	for n := 0; n < len(b); n += step {
		b[n]++
	}
}

// TestResetOfAFixedMemory holds that a memory that cannot grow is reset as well.
func TestResetOfAFixedMemory(t *testing.T) {
	for _, size := range []uint64{0, page, 3 * page} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			each(t, 0, func(t *testing.T, a *Allocator) {
				first, image := started(t, a, size, size)
				defer image.Close()
				defer first.Free()
				mem, err := a.NewFrom(image, size, size)
				if err != nil {
					t.Fatal(err)
				}
				defer mem.Free()
				second := newInstance(mem, size, size)
				for _, i := range []*instance{first, second} {
					alter(i.bytes, 1)
					if !i.Reset(i) || !bytes.Equal(i.bytes, image.Bytes()) {
						t.Error("the memory is not the image")
					}
				}
			})
		})
	}
}

// TestAnImageThatIsNotMapped holds that memories reserve address space where an
// image could not be put into a file.
func TestAnImageThatIsNotMapped(t *testing.T) {
	each(t, 0, func(t *testing.T, a *Allocator) {
		image, err := (&Allocator{Budget: a.Budget, Plain: true}).NewImage(bytes.Repeat([]byte("image..."), page/8), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close()
		mem, err := a.NewFrom(image, page, 4*page)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Free()
		i := newInstance(mem, page, 4*page)
		for range 3 {
			if !i.Reset(i) || !bytes.Equal(i.bytes, image.Bytes()) {
				t.Error("the memory is not the image")
			}
			i.Grow(1)
			alter(i.bytes, 1)
		}
	})
}

func TestBudget(t *testing.T) {
	each(t, 14*page, func(t *testing.T, a *Allocator) {
		// The image also has four pages.
		first, image := started(t, a, 3*page, 20*page)
		defer image.Close()
		mem, err := a.NewFrom(image, 3*page, 20*page)
		if err != nil {
			t.Fatal(err)
		}
		second := newInstance(mem, 3*page, 20*page)
		if !second.Reset(second) {
			t.Fatal("no reset")
		}
		if got := a.Budget.Used(); got != 12*page {
			t.Errorf("%d bytes are in use, want %d", got, 12*page)
		}
		for _, err := range []error{
			func() error { _, err := a.New(3*page, 20*page); return err }(),
			func() error { _, err := a.NewFrom(image, 3*page, 20*page); return err }(),
		} {
			if !errors.Is(err, ErrBudget) {
				t.Errorf("got %v", err)
			}
		}
		if _, ok := second.Grow(3); ok {
			t.Error("a memory grew beyond the budget")
		}
		if _, ok := second.Grow(2); !ok {
			t.Error("a memory did not grow within the budget")
		}
		if _, ok := first.Grow(1); ok {
			t.Error("a memory grew beyond the budget")
		}
		if !second.Reset(second) || a.Budget.Used() != 12*page {
			t.Errorf("%d bytes are in use after a reset", a.Budget.Used())
		}
		first.Free()
		first.Free() // wazero's and ours.
		if got := a.Budget.Used(); got != 8*page {
			t.Errorf("%d bytes are in use, want %d", got, 8*page)
		}
		second.Free()
	})
}

// TestBudgetIsExact takes and gives from many goroutines.
func TestBudgetIsExact(t *testing.T) {
	b := NewBudget(100)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := uint64(1); n < 5000; n++ {
				if size := n % 40; b.take(size) {
					if used := b.Used(); used > 100 || used < size {
						t.Errorf("%d are in use", used)
					}
					b.give(size)
				}
			}
		})
	}
	wg.Wait()
	if b.Used() != 0 || !b.take(100) || b.take(1) || b.take(1<<63) {
		t.Error("the budget is not what it was")
	}
}

// TestHiddenMemoryComesBack holds that a memory comes out of hiding as it was, and that nothing is hidden
// unless the Allocator says so.
func TestHiddenMemoryComesBack(t *testing.T) {
	each(t, 0, func(t *testing.T, a *Allocator) {
		plainly, image := started(t, a, 3*page, 9*page)
		plainly.Hide()
		if !bytes.Equal(plainly.bytes, image.Bytes()) {
			t.Error("a memory is hidden that should not be")
		}
		plainly.Hide() // It is not counted either.
		plainly.Free()
		image.Close()

		a.Guard = true
		first, image := started(t, a, 3*page, 9*page)
		defer image.Close()
		mem, err := a.NewFrom(image, 3*page, 9*page)
		if err != nil {
			t.Fatal(err)
		}
		second := newInstance(mem, 3*page, 9*page)
		if !second.Reset(second) {
			t.Fatal("no reset")
		}
		for _, i := range []*instance{first, second} {
			for range 3 {
				alter(i.bytes, 4096)
				if _, ok := i.Grow(1); !ok {
					t.Fatal("no growth")
				}
				i.bytes[len(i.bytes)-1] = 7
				want := bytes.Clone(i.bytes)
				i.Hide()
				if readable(i.bytes) {
					t.Error("a hidden memory can be read")
				}
				i.Show()
				i.Show() // Nothing more is to be shown.
				if !bytes.Equal(i.bytes, want) {
					t.Error("the memory is not what it was")
				}
			}
			if !i.Reset(i) || !bytes.Equal(i.bytes, image.Bytes()) {
				t.Error("the memory is not the image")
			}
			// Whether it is hidden when it goes or not.
			if i == first {
				i.Hide()
			}
			lent := i.bytes
			i.Free()
			i.Free()
			if readable(lent) {
				t.Error("a memory can be read that is free")
			}
		}
	})
}

// readable reports whether a read of b does not fault.
func readable(b []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return !bytes.Equal(b, bytes.Repeat([]byte{Poison}, len(b)))
}

func TestHideTwicePanics(t *testing.T) {
	each(t, 0, func(t *testing.T, a *Allocator) {
		a.Guard = true
		mem, err := a.New(page, page)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Free()
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		mem.Hide()
		mem.Hide()
	})
}

// TestHideOfAnEmptyMemory holds that one without pages can be hidden.
func TestHideOfAnEmptyMemory(t *testing.T) {
	each(t, 0, func(t *testing.T, a *Allocator) {
		a.Guard = true
		for _, most := range []uint64{0, page} {
			mem, err := a.New(0, most)
			if err != nil {
				t.Fatal(err)
			}
			mem.Hide()
			mem.Show()
			mem.Free()
		}
	})
}

// TestCopiesAndClearsInPieces holds the two against Go's own, around a piece.
func TestCopiesAndClearsInPieces(t *testing.T) {
	from := make([]byte, 2*pieceBytes+2)
	for i := range from {
		from[i] = byte(i*31 ^ i>>8)
	}
	for _, n := range []int{0, 1, pieceBytes - 1, pieceBytes, pieceBytes + 1, 2 * pieceBytes, 2*pieceBytes + 1} {
		got, want := bytes.Repeat([]byte{7}, len(from)), bytes.Repeat([]byte{7}, len(from))
		copy(want, from[:n])
		copyPieces(got, from[:n])
		if !bytes.Equal(got, want) {
			t.Errorf("copyPieces of %d bytes differs from copy", n)
		}
		copyPieces(got[:n], from)
		if !bytes.Equal(got, want) {
			t.Errorf("copyPieces to %d bytes differs from copy", n)
		}
		clear(want[:n])
		clearPieces(got[:n])
		if !bytes.Equal(got, want) {
			t.Errorf("clearPieces of %d bytes differs from clear", n)
		}
	}
}

// An image shares with its base what is the same there, and memories that begin as it are
// the same as those of an image without a base.
func TestImageFromABase(t *testing.T) {
	each(t, 0, func(t *testing.T, a *Allocator) {
		memory := make([]byte, 8*page)
		alter(memory[page:3*page], 1)
		base, err := a.NewImage(memory, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close()
		for name, change := range map[string]func([]byte) []byte{
			"nothing":        func(b []byte) []byte { return b },
			"the first byte": func(b []byte) []byte { b[0]++; return b },
			"the last byte":  func(b []byte) []byte { b[len(b)-1]++; return b },
			"two parts": func(b []byte) []byte {
				b[2*page]++
				b[5*page]++
				return b
			},
			"many parts": func(b []byte) []byte {
				for at := 0; at < len(b); at += (2 + at>>16) * os.Getpagesize() {
					b[at]++
				}
				return b
			},
			"parts of the base and after it": func(b []byte) []byte {
				b = append(b, make([]byte, 9*page)...)
				for _, at := range []int{0, 2*page + 1, 4 * page, 8*page - 1, 11 * page, 14 * page, len(b) - page} {
					b[at]++
				}
				return b
			},
			"back to zeros": func(b []byte) []byte { clear(b[page : 2*page]); return b },
			"all":           func(b []byte) []byte { alter(b, 2); return b },
			"longer":        func(b []byte) []byte { return append(b, make([]byte, page)...) },
			"longer, and other": func(b []byte) []byte {
				b = append(b, make([]byte, 2*page)...)
				b[len(b)-page]++
				return b
			},
		} {
			t.Run(name, func(t *testing.T) {
				want, before := change(bytes.Clone(memory)), a.Budget.Used()
				image, err := a.NewImage(want, base)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(image.Bytes(), want) {
					t.Error("the image is not the memory")
				}
				mem, err := a.NewFrom(image, uint64(len(want)), 32*page)
				if err != nil {
					t.Fatal(err)
				}
				i := newInstance(mem, uint64(len(want)), 32*page)
				for range 2 {
					if !mem.Reset(i) || !bytes.Equal(i.bytes, want) {
						t.Error("the memory is not the image")
					}
					alter(i.bytes, 3)
				}
				mem.Free()
				image.Close()
				if got := a.Budget.Used(); got != before {
					t.Errorf("%d bytes are counted afterwards, want %d", got, before)
				}
			})
		}
		if !bytes.Equal(base.Bytes(), memory) {
			t.Error("the base has changed")
		}
	})
}

// A memory tells that it could not grow, which a guest may have noticed, until it is reset.
func TestRefusedGrowthIsTold(t *testing.T) {
	each(t, 3*page, func(t *testing.T, a *Allocator) {
		mem, err := a.New(page, 8*page)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Free()
		i := newInstance(mem, page, 8*page)
		if _, ok := i.Grow(2); !ok || mem.Refused() {
			t.Errorf("growth within the budget: %v, refused: %v", ok, mem.Refused())
		}
		if _, ok := i.Grow(1); ok || !mem.Refused() {
			t.Errorf("growth beyond the budget: %v, refused: %v", ok, mem.Refused())
		}
		image, err := (&Allocator{Budget: NewBudget(0), Plain: a.Plain}).NewImage(i.bytes[:page], nil)
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close()
		if err := mem.Adopt(image); err != nil {
			t.Fatal(err)
		}
		if !i.Reset(i) || mem.Refused() {
			t.Errorf("after a reset, refused: %v", mem.Refused())
		}
	})
}
