package snapmem

import (
	"bytes"
	"sync"
)

// Image is the memory of a guest that was started, and what others begin from.
// It never changes. It is safe for use by several goroutines.
type Image struct {
	bytes []byte
	file  imageFile
	// scratch holds slices that stand in for memories at instantiation. One
	// that was used before has its pages, a new one would fault at each.
	scratch sync.Pool
}

// NewImage copies memory. Close the image after all memories that have it are
// free.
func (a *Allocator) NewImage(memory []byte) *Image {
	i := &Image{}
	if a.Plain || !i.file.create(memory, &i.bytes) {
		i.bytes = bytes.Clone(memory)
	}
	return i
}

// Bytes returns the memory, which must not be written to. It is not valid after
// Close.
func (i *Image) Bytes() []byte { return i.bytes }

// Size returns the length of the memory.
func (i *Image) Size() uint64 { return uint64(len(i.bytes)) }

// Close frees the image. Only the first call counts.
func (i *Image) Close() { i.file.close(&i.bytes) }

// takeScratch returns size bytes that are 0: a start section may look at them.
func (i *Image) takeScratch(size uint64) []byte {
	if s, ok := i.scratch.Get().(*[]byte); ok {
		clear(*s)
		return *s
	}
	return make([]byte, size)
}

func (i *Image) putScratch(s []byte) { i.scratch.Put(&s) }
