package host

import (
	"errors"
	"fmt"
	"sync"
)

// errMappings is the error of a module that is not loaded, or of an instance that is not made,
// because the process nearly has the maximum number of memory mappings. The machine code and the
// memories of guests are mappings, and Go's runtime needs mappings too: it ends the process if it
// gets none.
var errMappings = errors.New("no memory mappings left")

const (
	// moduleMappings is the number of mappings of a module beside its pieces: machine code, its
	// stub and the file of its snapshot, and those that Go's heap takes meanwhile.
	moduleMappings = 64
	// instanceMappings is the number of mappings of an instance: its memory has one for each part
	// of the snapshot that is not zero, and twice that where the guest has grown.
	instanceMappings = 16
	// reservedMappings is the minimum number of mappings reserved for the rest of the process;
	// otherwise it is an eighth of all. Go's runtime and the C library take some hundred.
	reservedMappings = 2048
)

// mappings are the memory mappings of the process, as far as they are known. It is safe for use by
// several goroutines.
type mappings struct {
	// most is the maximum number of mappings of the process, 0 if there is no limit; count counts
	// the present ones.
	most  int64
	count func() (int64, error)

	mu sync.Mutex
	// used is the last count, plus the mappings taken since.
	used int64
	// pieces is the number of mappings into which machine code was split.
	pieces int64
}

// processMappings returns the mappings of the process, which all its Runtimes share.
var processMappings = sync.OnceValue(func() *mappings {
	return &mappings{most: mostMappings(), count: countMappings}
})

// Mappings returns the number of memory mappings of the process and its maximum, Linux'
// vm.max_map_count. Both are 0 on systems without such a limit. It reads a file with a line for
// each mapping.
func (rt *Runtime) Mappings() (used, most int) {
	n, err := rt.mappings.count()
	if err != nil || rt.mappings.most == 0 {
		return 0, 0
	}
	return int(n), int(rt.mappings.most)
}

// reserve returns the number of mappings that are reserved for others.
func (m *mappings) reserve() int64 { return min(max(m.most/8, reservedMappings), m.most/2) }

// take counts n more mappings. It returns an errMappings if they would be reserved ones. Mappings
// that no longer exist are discovered when the limit is near.
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
			return nil // The number is unknown, as in a sandbox without /proc.
		}
		if m.used = used; used+n > most {
			return fmt.Errorf("%w: the process has %d of the %d allowed by vm.max_map_count, of which %d are reserved; raise it, or load fewer plugins", errMappings, used, m.most, m.reserve())
		}
	}
	m.used += n
	return nil
}

// split returns the size and the number of the pieces for machine code of so many bytes, and counts
// them: 0 for a mapping that stays whole. All modules share a third of the mappings; a module gets
// at most an eighth of those left. The fewer are left, the larger its pieces are.
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

// join records that n pieces are one mapping again.
func (m *mappings) join(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pieces -= n
	m.used = max(m.used-n, 1)
}
