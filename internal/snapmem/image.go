package snapmem

import (
	"fmt"
	"sync"
)

// Image is a copy of the memory of a guest that was started. Other memories
// begin as that copy. It never changes. It is safe for use by several
// goroutines.
type Image struct {
	budget *Budget // nil for an image that does not count
	bytes  []byte
	file   imageFile
	// scratch has slices that replace memories during instantiation. A slice
	// that was used before has its pages; a new one would fault at each.
	scratch sync.Pool
}

// NewImage copies memory. Close the image after all memories that have it are
// free. The error is [ErrBudget].
func (a *Allocator) NewImage(memory []byte) (*Image, error) {
	size := uint64(len(memory))
	if !a.Budget.take(size) {
		return nil, fmt.Errorf("%w: %d bytes wanted for an image, %d of %d in use", ErrBudget, size, a.Budget.Used(), a.Budget.Limit())
	}
	i := &Image{budget: a.Budget}
	if a.Plain || !i.file.create(memory, &i.bytes) {
		i.bytes = make([]byte, size)
		copyPieces(i.bytes, memory)
	}
	return i, nil
}

// Bytes returns the memory, which must not be written to. It is not valid after
// Close.
func (i *Image) Bytes() []byte { return i.bytes }

// Size returns the length of the memory.
func (i *Image) Size() uint64 { return uint64(len(i.bytes)) }

// Close frees the image. Only the first call counts.
func (i *Image) Close() {
	if i.budget != nil {
		i.budget.give(i.Size())
	}
	i.file.close(&i.bytes)
	i.bytes = nil
}

// takeScratch returns size bytes.
func (i *Image) takeScratch(size uint64) []byte {
	if s, ok := i.scratch.Get().(*[]byte); ok {
		return *s
	}
	return make([]byte, size)
}

func (i *Image) putScratch(s []byte) { i.scratch.Put(&s) }
