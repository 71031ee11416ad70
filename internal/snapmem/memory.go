package snapmem

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
)

// ErrBudget is the error of a memory that does not fit into what is left of its budget.
var ErrBudget = errors.New("the budget of memory is used up")

// Allocator makes memories.
type Allocator struct {
	Budget *Budget
	// Plain does without the operating system's help, as on one that has none.
	Plain bool
	// Guard lets memories be hidden, see [Memory.Hide], and hides those that are
	// free for ever: their address space is not used again.
	Guard bool
}

// Memory is the linear memory of one instance. It implements wazero's
// experimental.MemoryAllocator, for one allocation, and LinearMemory. It is not
// safe for use by several goroutines, and Free unmaps it: whoever then reads a
// slice of it crashes.
type Memory struct {
	budget  *Budget
	backing backing
	// image is what Reset goes back to, nil before Adopt.
	image *Image
	// charged is what the budget counts.
	charged uint64
	// scratch stands in for the memory while wazero fills in the data segments,
	// which the image holds already: writing them would give each instance pages
	// of its own. What it holds is never read. It is nil otherwise.
	scratch []byte
	// shown is what the next Reallocate returns, when it is Reset that asks.
	shown []byte
	freed bool
	// guard is Allocator.Guard; hidden is set between Hide and Show.
	guard, hidden bool
}

// backing is where the bytes of a memory lie.
type backing interface {
	// resize returns the memory with a length of size. Bytes that are new are 0;
	// those that went are forgotten. It returns nil, and changes nothing, if the
	// system has no more memory.
	resize(size uint64) []byte
	// load makes the memory an image. After an error it must only be freed.
	load(image *Image) error
	// reset makes it the image again, which was loaded before.
	reset(image *Image)
	free()
	// hide makes the bytes unreadable until show or, where the system does not help
	// with that, others than they were.
	hide()
	show()
	// retire is free, and hide for ever.
	retire()
}

// New makes a memory of min bytes that may grow to max, both multiples of
// WebAssembly's page size. The error is [ErrBudget], or the system's.
func (a *Allocator) New(min, max uint64) (*Memory, error) {
	m := &Memory{budget: a.Budget, charged: min, guard: a.Guard}
	if !m.budget.take(min) {
		return nil, fmt.Errorf("%w: %d bytes wanted, %d of %d in use", ErrBudget, min, a.Budget.Used(), a.Budget.Limit())
	}
	m.backing = a.newBacking(max)
	if m.backing.resize(min) == nil && min != 0 {
		m.Free()
		return nil, fmt.Errorf("allocate %d bytes of memory: the system has no more", min)
	}
	return m, nil
}

// newBacking returns what suits the system, with room for max bytes.
func (a *Allocator) newBacking(max uint64) backing {
	if !a.Plain {
		if b := newMapping(max); b != nil {
			return b
		}
	}
	return &slice{max: max, guard: a.Guard}
}

// NewFrom makes a memory that begins as image, for a module whose memory has min
// bytes and may grow to max. Until the first [Memory.Reset] wazero may see
// another memory of min bytes with anything in it, since what it writes at
// instantiation is not wanted. So the module must have no start section, which
// could read that memory or grow it: one that has begins with New, then Adopt.
func (a *Allocator) NewFrom(image *Image, min, max uint64) (*Memory, error) {
	size := image.Size()
	m := &Memory{budget: a.Budget, charged: size, guard: a.Guard}
	if !m.budget.take(size) {
		return nil, fmt.Errorf("%w: %d bytes wanted, %d of %d in use", ErrBudget, size, a.Budget.Used(), a.Budget.Limit())
	}
	m.backing = a.newBacking(max)
	if err := m.backing.load(image); err != nil {
		m.Free()
		return nil, fmt.Errorf("allocate %d bytes of memory: %w", size, err)
	}
	m.image = image
	if min < max { // Reset cannot show wazero another memory than this otherwise.
		m.scratch = image.takeScratch(min)
	}
	return m, nil
}

// Allocate implements experimental.MemoryAllocator.
func (m *Memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate implements experimental.LinearMemory: it returns nil if the budget
// or the system has no more.
func (m *Memory) Reallocate(size uint64) []byte {
	if m.freed {
		return nil
	}
	if b := m.shown; b != nil {
		m.shown = nil
		return b
	}
	if m.scratch != nil {
		if size > uint64(len(m.scratch)) {
			return nil
		}
		return m.scratch[:size:size]
	}
	if size <= m.charged {
		return m.backing.resize(size)
	}
	more := size - m.charged
	if !m.budget.take(more) {
		return nil
	}
	b := m.backing.resize(size)
	if b == nil {
		m.budget.give(more)
		return nil
	}
	m.charged = size
	return b
}

// Adopt makes image what Reset goes back to. The memory is as it was if the image
// was taken of it, or else must be Reset next. After an error it must not be used
// any more.
func (m *Memory) Adopt(image *Image) error {
	if err := m.backing.load(image); err != nil {
		return err
	}
	m.image = image
	return nil
}

// Seen is wazero's view of a memory.
type Seen interface {
	Size() uint32
	Grow(pages uint32) (before uint32, ok bool)
}

// Reset makes the memory the image again and reports whether it could: seen,
// which is wazero's view of it, must follow. The instance must not run.
//
// wazero looks at the slice that it got again only when a memory grows. So Reset
// grows it by a page and answers with a slice of the image's length, which may
// well be shorter; a memory that has reached its maximum cannot be asked to
// grow, and is beyond help.
func (m *Memory) Reset(seen Seen) bool {
	size := m.image.Size()
	if m.scratch != nil {
		m.image.putScratch(m.scratch)
		m.scratch = nil
		m.shown = m.backing.resize(size)
	} else {
		m.backing.reset(m.image)
		if uint64(seen.Size()) == size {
			return true
		}
		if size > m.charged && !m.budget.take(size-m.charged) {
			return false
		}
		m.budget.give(m.charged - min(size, m.charged))
		m.charged = size
		m.shown = m.backing.resize(size)
	}
	_, ok := seen.Grow(1)
	m.shown = nil
	return ok && uint64(seen.Size()) == size
}

// Free implements experimental.LinearMemory. Only the first call counts: wazero
// does not free the memory of a module that it could not instantiate, so that
// the caller does.
func (m *Memory) Free() {
	if m.freed {
		return
	}
	m.freed = true
	if m.scratch != nil {
		m.image.putScratch(m.scratch)
		m.scratch = nil
	}
	switch {
	case m.backing == nil:
	case m.guard:
		m.backing.retire()
	default:
		m.backing.free()
	}
	m.budget.give(m.charged)
}

// Hide makes the memory unreadable until Show, if Allocator.Guard says so, and does
// nothing otherwise. Whoever reads a slice of it meanwhile crashes, as after Free;
// of a memory that is a slice of Go's heap the bytes are [Poison]. Hide panics if
// the memory is hidden already, as it is if its instance is released twice.
func (m *Memory) Hide() {
	if !m.guard {
		return
	}
	if m.hidden {
		panic("snapmem: hide memory: it is hidden already")
	}
	m.hidden = true
	m.backing.hide()
}

// Show ends what Hide began.
func (m *Memory) Show() {
	if m.hidden {
		m.hidden = false
		m.backing.show()
	}
}

// Poison is what all bytes of a hidden memory are that can be read.
const Poison = 0xdb

// slice is memory from Go's heap.
type slice struct {
	bytes []byte
	max   uint64
	// kept is what the bytes were before hide. guard is set if those that they moved
	// away from are poisoned as well.
	kept  []byte
	guard bool
}

func (s *slice) resize(size uint64) []byte {
	switch n := uint64(len(s.bytes)); {
	case size <= n:
		clearPieces(s.bytes[size:])
	case size > uint64(cap(s.bytes)):
		// A quarter more, for a guest that grows page by page.
		grown := make([]byte, n, min(max(size, n+n/4), s.max))
		copyPieces(grown, s.bytes)
		if s.guard {
			s.poison()
		}
		s.bytes = grown
	}
	s.bytes = s.bytes[:size]
	return s.bytes[:size:size]
}

func (s *slice) load(image *Image) error {
	s.resize(image.Size())
	s.reset(image)
	return nil
}

func (s *slice) reset(image *Image) { copyPieces(s.bytes, image.Bytes()) }

func (s *slice) free() { s.bytes, s.kept = nil, nil }

func (s *slice) hide() {
	s.kept = append(s.kept[:0], s.bytes...)
	s.poison()
}

func (s *slice) show() { copy(s.bytes, s.kept) }

func (s *slice) retire() {
	s.poison()
	s.free()
}

func (s *slice) poison() {
	for i := range s.bytes {
		s.bytes[i] = Poison
	}
}

// pieceBytes is how much is copied or cleared at a time. Go does each in assembly,
// which its garbage collector waits for, and with it every other goroutine: 256 MiB
// take 30 ms.
const pieceBytes = 1 << 20

// copyPieces is copy, for much.
func copyPieces(to, from []byte) {
	for len(to) > 0 && len(from) > 0 {
		n := copy(to[:min(len(to), pieceBytes)], from)
		to, from = to[n:], from[n:]
	}
}

// clearPieces is clear, for much.
func clearPieces(b []byte) {
	for len(b) > 0 {
		n := min(len(b), pieceBytes)
		clear(b[:n])
		b = b[n:]
	}
}
