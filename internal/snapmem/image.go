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
// memories that have it are free. The budget counts what is copied. The error is [ErrBudget].
func (a *Allocator) NewImage(memory []byte, base *Image) (*Image, error) {
	i, size := &Image{budget: a.Budget, scratch: &sync.Pool{}}, len(memory)
	own := span{0, size}
	if base != nil && !a.Plain && base.file.mapped() {
		own = changes(memory, base.Bytes())
		base.file.rest(base.bytes)
		i.scratch = base.scratch
	} else {
		base = nil
	}
	i.charged = uint64(own.end - own.start)
	if !a.Budget.take(i.charged) {
		return nil, fmt.Errorf("%w: %d bytes wanted for an image, %d of %d in use", ErrBudget, i.charged, a.Budget.Used(), a.Budget.Limit())
	}
	if a.Plain || !i.file.create(memory, own, base, &i.bytes) {
		if base != nil {
			a.Budget.give(i.charged)
			return a.NewImage(memory, nil)
		}
		i.bytes = make([]byte, size)
		copyPieces(i.bytes, memory)
	}
	return i, nil
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
