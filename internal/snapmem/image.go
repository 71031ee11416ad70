package snapmem

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

// Image is a copy of the memory of a guest that was started. Other memories
// begin as that copy. It never changes. It is safe for use by several
// goroutines.
type Image struct {
	budget  *Budget // nil for an image that does not count
	charged uint64
	bytes   []byte
	file    imageFile
	// scratch has slices that replace memories during instantiation. A slice
	// that was used before has its pages; a new one would fault at each. An image shares
	// those of its base.
	scratch *sync.Pool
}

// NewImage copies memory. Unless base is nil, the image may share with it the pages that
// are the same in both; base must then be closed after it. Close the image after all
// memories that have it are free. The budget counts what is copied, which pages of zeros are
// not where images are mapped. The error is [ErrBudget].
func (a *Allocator) NewImage(memory []byte, base *Image) (*Image, error) {
	i := &Image{budget: a.Budget, scratch: &sync.Pool{}}
	if a.Plain {
		if err := i.charge(len(memory)); err != nil {
			return nil, err
		}
		i.bytes = make([]byte, len(memory))
		copyPieces(i.bytes, memory)
		return i, nil
	}
	own := span{0, len(memory)}
	if base != nil && base.file.mapped() {
		own = changes(memory, base.Bytes())
		base.file.rest(base.bytes)
		i.scratch = base.scratch
	} else {
		base = nil
	}
	if err := i.charge(stored(memory[own.start:own.end])); err != nil {
		return nil, err
	}
	if i.file.create(memory, own, base, &i.bytes) {
		return i, nil
	}
	a.Budget.give(i.charged)
	if base != nil {
		return a.NewImage(memory, nil)
	}
	return (&Allocator{Budget: a.Budget, Plain: true}).NewImage(memory, nil)
}

// charge counts n bytes in the budget.
func (i *Image) charge(n int) error {
	i.charged = uint64(n)
	if !i.budget.take(i.charged) {
		return fmt.Errorf("%w: %d bytes wanted for an image, %d of %d in use", ErrBudget, n, i.budget.Used(), i.budget.Limit())
	}
	return nil
}

// MapImage returns an image that is size bytes of a file, a mapping of it: only the pages
// that are read take memory, and processes share them. at and size are multiples of the
// size of a page. The bytes must not change, and the file must not become shorter, while
// the image or one with it as its base is in use; the caller may close or remove it. The
// image does not count in a budget. The error is the system's, or errors.ErrUnsupported.
func MapImage(file *os.File, at int64, size int) (*Image, error) {
	i := &Image{scratch: &sync.Pool{}}
	if err := i.file.open(file, at, size, &i.bytes); err != nil {
		return nil, fmt.Errorf("map image: %w", err)
	}
	return i, nil
}

// span is a part of a memory, of whole pages.
type span struct{ start, end int }

// changes returns the part of memory outside of which it is as base. It is one part only:
// each takes two mappings of every memory that begins as the image, and a process has
// 65,530 of them. A Go guest of 3 MB that reads its configuration changes 0.15 MB in many
// places, all within 0.3 MB.
func changes(memory, base []byte) span {
	page := os.Getpagesize()
	same := func(at int) bool {
		return at+page <= min(len(base), len(memory)) && bytes.Equal(memory[at:at+page], base[at:at+page])
	}
	s := span{0, len(memory)}
	for s.start < s.end && same(s.start) {
		s.start += page
	}
	for s.end > s.start && same(s.end-page) {
		s.end -= page
	}
	return s
}

// stored returns how many bytes of memory are in pages that a file has to store.
func stored(memory []byte) (n int) {
	for page := os.Getpagesize(); len(memory) != 0; {
		piece := memory[:min(page, len(memory))]
		if memory = memory[len(piece):]; !zero(piece) {
			n += len(piece)
		}
	}
	return n
}

func zero(b []byte) bool { return b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1]) }

// Bytes returns the memory, which must not be written to. It is not valid after
// Close.
func (i *Image) Bytes() []byte { return i.bytes }

// Size returns the length of the memory.
func (i *Image) Size() uint64 { return uint64(len(i.bytes)) }

// Close frees the image. Only the first call counts.
func (i *Image) Close() {
	if i.budget != nil {
		i.budget.give(i.charged)
	}
	i.file.close(&i.bytes)
	i.bytes = nil
}

// takeScratch returns size bytes.
func (i *Image) takeScratch(size uint64) []byte {
	if s, ok := i.scratch.Get().(*[]byte); ok && uint64(len(*s)) == size {
		return *s
	}
	return make([]byte, size)
}

func (i *Image) putScratch(s []byte) { i.scratch.Put(&s) }
