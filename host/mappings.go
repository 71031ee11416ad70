package host

import (
	"errors"
	"fmt"
	"sync"
)

// ErrMappings is the error of a module that is not loaded, or of an instance that is not made,
// because the process has nearly as many memory mappings as the system allows it: the
// machine code and the memories of guests are mappings, and so is what Go's runtime needs. It
// ends the process if it gets none.
var ErrMappings = errors.New("no memory mappings left")

const (
	// moduleMappings is what a module takes beside its pieces: machine code, its stub and the
	// file of its snapshot, and what Go's heap takes meanwhile.
	moduleMappings = 64
	// instanceMappings is what an instance takes: its memory has a mapping for each part of
	// the snapshot that is not zero, twice that where the guest has grown.
	instanceMappings = 16
	// reservedMappings is what others in the process have: an eighth, and at least so many.
	// Go's runtime and the C library take some hundred.
	reservedMappings = 2048
)

// mappings are the memory mappings of the process, as far as they are known. It is safe for use by
// several goroutines.
type mappings struct {
	// most is how many the process may have, 0 if there is no limit, and count counts those it
	// has.
	most  int64
	count func() (int64, error)

	mu sync.Mutex
	// used is what was counted last, with all that was taken since.
	used int64
	// pieces is how many mappings machine code was split into.
	pieces int64
}

// processMappings returns the mappings of the process, which all its Runtimes share.
var processMappings = sync.OnceValue(func() *mappings {
	return &mappings{most: mostMappings(), count: countMappings}
})

// Mappings returns how many memory mappings the process has, and how many it may have, which is
// Linux' vm.max_map_count. Both are 0 where the system has no such limit. It reads a file that
// has a line for each.
func (rt *Runtime) Mappings() (used, most int) {
	n, err := rt.mappings.count()
	if err != nil || rt.mappings.most == 0 {
		return 0, 0
	}
	return int(n), int(rt.mappings.most)
}

// reserve is how many mappings are left for others.
func (m *mappings) reserve() int64 { return min(max(m.most/8, reservedMappings), m.most/2) }

// take counts n more mappings. It returns an [ErrMappings] if they would be those that are
// reserved. Mappings that are gone are found when that is near.
func (m *mappings) take(n int64) error {
	if m.most == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	most := m.most - m.reserve()
	if m.used+n > most || m.used == 0 {
		used, err := m.count()
		if err != nil {
			return nil // Nobody knows, as in a sandbox without /proc.
		}
		if m.used = used; used+n > most {
			return fmt.Errorf("%w: the process has %d of the %d that vm.max_map_count allows, %d of which are reserved; raise it, or load fewer plugins", ErrMappings, used, m.most, m.reserve())
		}
	}
	m.used += n
	return nil
}

// split returns into how many pieces, of which size, machine code of so many bytes is split, and
// counts them: 0 for a mapping that stays whole. A module gets at most an eighth of the mappings
// that are left for all, which is a third; the fewer are left, the larger its pieces are.
func (m *mappings) split(bytes int) (piece int, n int64) {
	if m.most == 0 {
		return 0, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if used, err := m.count(); err == nil {
		m.used = used
	}
	left := min(m.most/3-m.pieces, m.most/2-m.used) / 8
	for piece = pieceBytes; piece < bytes; piece *= 2 {
		if n = int64(bytes / piece); n <= left {
			m.pieces += n
			m.used += n
			return piece, n
		}
	}
	return 0, 0
}

// join counts that n pieces are one mapping again.
func (m *mappings) join(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pieces -= n
	m.used = max(m.used-n, 1)
}
