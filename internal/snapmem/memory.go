package snapmem

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/experimental"
)

// ErrBudget is the error of a memory that does not fit into the rest of its budget.
var ErrBudget = errors.New("the budget of memory is used up")

// Allocator makes memories.
type Allocator struct {
	Budget *Budget
	// Plain disables mappings, so that memories are slices on every system.
	Plain bool
	// Guard lets memories be hidden, see [Memory.Hide]. A memory that is freed
	// then stays hidden: its address space is not used again.
	Guard bool
}

// Memory is the linear memory of one instance. It implements wazero's
// experimental.MemoryAllocator, for one allocation, and LinearMemory. It is not
// safe for use by several goroutines, and Free unmaps it: a read of a slice of
// it then crashes.
type Memory struct {
	budget  *Budget
	backing backing
	// image is the state that Reset restores, nil before Adopt.
	image *Image
	// charged is the number of bytes that the budget counts.
	charged uint64
	// scratch replaces the memory while wazero writes the data segments, which
	// the image has already: to write them would give each instance pages of its
	// own. Its contents are never read. It is nil otherwise.
	scratch []byte
	// shown is the result of the next Reallocate, set while Reset causes it.
	shown []byte
	freed bool
	// refused is set once the memory could not grow for want of budget or memory, until Reset.
	refused bool
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
	// reset makes it the loaded image again.
	reset(image *Image)
	free()
	// hide makes the bytes unreadable until show or, where that is not possible,
	// changes them.
	hide()
	show()
	// retire is free, and the address space stays unreadable.
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

// newBacking returns the backing for this system, with room for max bytes.
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
// another memory of min bytes with any contents, since its writes at
// instantiation are not wanted. So the module must have no start section, which
// could read that memory or grow it. A module with one uses New, then Adopt.
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
		m.refused = true
		return nil
	}
	b := m.backing.resize(size)
	if b == nil {
		m.budget.give(more)
		m.refused = true
		return nil
	}
	m.charged = size
	return b
}

// Refused reports whether the memory could not grow at some time since it began as its image,
// because the budget or the system had no more. Its guest has seen that, and another would not.
func (m *Memory) Refused() bool { return m.refused }

// Adopt makes image the state that Reset restores. The memory stays the same if
// the image was taken of it; otherwise it must be Reset next. After an error it
// must not be used any more.
func (m *Memory) Adopt(image *Image) error {
	if err := m.backing.load(image); err != nil {
		return err
	}
	m.image = image
	return nil
}

// Cut makes the memory size bytes long, which may be less than it has. It returns nil if the budget
// or the system has no more.
func (m *Memory) Cut(size uint64) []byte {
	m.refused = false
	if size > m.charged && !m.budget.take(size-m.charged) {
		return nil
	}
	m.budget.give(m.charged - min(size, m.charged))
	m.charged = size
	return m.backing.resize(size)
}

// Seen is wazero's view of a memory.
type Seen interface {
	Size() uint32
	Grow(pages uint32) (before uint32, ok bool)
}

// Reset makes the memory the image again and reports whether it could: seen,
// which is wazero's view of it, must follow. The instance must not run.
//
// wazero replaces its slice of a memory only when the memory grows. So Reset
// grows it by a page and returns a slice of the image's length, which may be
// shorter. A memory that has reached its maximum cannot grow, so it cannot be
// reset.
func (m *Memory) Reset(seen Seen) bool {
	size := m.image.Size()
	m.refused = false
	if m.scratch != nil {
		m.image.putScratch(m.scratch)
		m.scratch = nil
		m.shown = m.backing.resize(size)
	} else {
		m.backing.reset(m.image)
		if uint64(seen.Size()) == size {
			return true
		}
		if m.shown = m.Cut(size); m.shown == nil {
			return false
		}
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
// nothing otherwise. A read of a slice of it then crashes, as after Free; the bytes
// of a memory in Go's heap are [Poison] instead. Hide panics if the memory is
// hidden already, as it is if its instance is released twice.
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

// Show undoes Hide.
func (m *Memory) Show() {
	if m.hidden {
		m.hidden = false
		m.backing.show()
	}
}

// Poison is the value of all bytes of a hidden memory that can be read.
const Poison = 0xdb

// slice is memory from Go's heap.
type slice struct {
	bytes []byte
	max   uint64
	// kept has the bytes during hide. guard is set if growth poisons the old bytes
	// as well.
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
