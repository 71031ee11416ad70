package snapmem

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"os"
	"slices"
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
	var own []span
	if base != nil && base.file.mapped() {
		own = changes(memory, base.Bytes())
		base.file.rest(base.bytes)
		i.scratch = base.scratch
	} else {
		own, base = changes(memory, nil), nil
	}
	if err := i.charge(stored(memory, own)); err != nil {
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

// maxSpans is how many parts an image has of its own. Each takes two mappings of every memory
// that begins as the image, and a process has 65,530 of them. A Go guest of 3 MB changes 0.1 MB
// when it reads its configuration, in 30 places.
const maxSpans = 4

// changes returns the parts of memory, at most maxSpans, outside of which it is as base, and
// zero after the end of base. Between them are the longest stretches that have not changed.
func changes(memory, base []byte) (own []span) {
	page := os.Getpagesize()
	for at := 0; at < len(memory); at += page {
		piece := memory[at:min(at+page, len(memory))]
		same := false
		if end := at + len(piece); end <= len(base) {
			same = bytes.Equal(piece, base[at:end])
		} else {
			same = at >= len(base) && zero(piece)
		}
		switch last := len(own) - 1; {
		case same:
		case last >= 0 && own[last].end == at:
			own[last].end += len(piece)
		default:
			own = append(own, span{at, at + len(piece)})
		}
	}
	if len(own) <= maxSpans {
		return own
	}
	splits := make([]int, 0, len(own)) // The numbers of the parts after a gap, those of the longest first.
	for n := range len(own) - 1 {
		splits = append(splits, n+1)
	}
	gap := func(n int) int { return own[n].start - own[n-1].end }
	slices.SortFunc(splits, func(a, b int) int { return cmp.Or(gap(b)-gap(a), a-b) })
	splits = splits[:maxSpans-1]
	slices.Sort(splits)
	merged := make([]span, 0, maxSpans)
	first := 0
	for _, n := range append(splits, len(own)) {
		merged = append(merged, span{own[first].start, own[n-1].end})
		first = n
	}
	return merged
}

// stored returns how many bytes of the parts of memory are in pages that a file has to store.
func stored(memory []byte, parts []span) (n int) {
	for piece := range pages(memory, parts) {
		n += len(piece)
	}
	return n
}

// pages yields the pages of the parts of memory that are not zero, and where they are.
func pages(memory []byte, parts []span) iter.Seq2[[]byte, int] {
	return func(yield func([]byte, int) bool) {
		size := os.Getpagesize()
		for _, s := range parts {
			for at := s.start; at < s.end; at += size {
				if piece := memory[at:min(at+size, s.end)]; !zero(piece) && !yield(piece, at) {
					return
				}
			}
		}
	}
}

// Layer describes one file of an image, for another process that maps the image.
type Layer struct {
	Size int
	At   int64 // Where in the file the image begins.
	// Own are the parts that the layer has, of which each is a start and an end. The layers below have
	// the rest.
	Own [][2]int
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
