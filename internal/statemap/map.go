package statemap

import (
	"encoding/binary"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// The limits of keys, values and pages, in bytes. A page has one entry or as many as have pageBytes.
const (
	MaxKey    = 512
	MaxValue  = 64 << 10
	pageBytes = 64 << 10
)

// Any is the version that every entry has, also one that is not there.
const Any = -1

// Result is the answer to a write.
type Result uint32

const (
	Done Result = iota
	// Refused is the answer if the entry has another version, or a counter would pass its limit.
	Refused
	// Full is the answer if the map has no room.
	Full
	// NoCounter is the answer if a value to add to does not have 8 bytes.
	NoCounter
)

// Entry is an entry of a map. It does not change.
type Entry struct {
	Key     string
	Value   []byte
	Version uint64

	number [8]byte // The memory of a counter's value.
}

// counter returns the number of a counter, and whether it is one. An entry that is not there is 0.
func (e *Entry) counter() (int64, bool) {
	if e == nil {
		return 0, true
	}
	if len(e.Value) != 8 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(e.Value)), true
}

// newCounter returns a counter.
func newCounter(key string, n int64, version uint64) *Entry {
	e := &Entry{Key: key, Version: version}
	binary.LittleEndian.PutUint64(e.number[:], uint64(n))
	e.Value = e.number[:]
	return e
}

// size is the number of bytes that an entry counts for.
func (e *Entry) size() int {
	if e == nil {
		return 0
	}
	return len(e.Key) + len(e.Value)
}

// Map is a bounded map from keys to values, ordered by key. It is safe for use by several
// goroutines, each with a transaction, [Tx].
type Map struct {
	maxEntries, maxBytes int
	versions             atomic.Uint64

	// mu is held while a transaction begins and ends, never while a guest runs.
	mu sync.Mutex
	// view is the committed content, and commits the number of commits that changed it.
	view
	commits uint64
	// open is the number of transactions that read a view. While there is another beside the one
	// that commits, chunks of an earlier generation are copied before they change.
	open       int
	generation uint64
}

// New returns an empty map.
func New(maxEntries, maxBytes int) *Map { return &Map{maxEntries: maxEntries, maxBytes: maxBytes} }

// view is the content of a map at one moment: entries in order, in chunks.
type view struct {
	chunks         []*chunk
	entries, bytes int
}

// chunk is a run of entries in order. It is never empty.
type chunk struct {
	entries    []*Entry
	generation uint64
}

// maxChunk is the length at which a chunk is split.
const maxChunk = 128

// chunkOf returns the position of the chunk that has the key, or would have it.
func (v *view) chunkOf(key string) int {
	n, found := slices.BinarySearchFunc(v.chunks, key, func(c *chunk, key string) int { return strings.Compare(c.entries[0].Key, key) })
	if !found && n > 0 {
		n--
	}
	return n
}

func (c *chunk) find(key string) (int, bool) {
	return slices.BinarySearchFunc(c.entries, key, func(e *Entry, key string) int { return strings.Compare(e.Key, key) })
}

// get returns the entry with a key, nil if there is none.
func (v *view) get(key string) *Entry {
	if len(v.chunks) == 0 {
		return nil
	}
	c := v.chunks[v.chunkOf(key)]
	if n, found := c.find(key); found {
		return c.entries[n]
	}
	return nil
}

// from returns the entries whose keys are at least from and begin with prefix, in order.
func (v *view) from(prefix, from string) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		if len(v.chunks) == 0 {
			return
		}
		from := max(prefix, from)
		n := v.chunkOf(from)
		at, _ := v.chunks[n].find(from)
		for ; n < len(v.chunks); n, at = n+1, 0 {
			for _, e := range v.chunks[n].entries[at:] {
				if !strings.HasPrefix(e.Key, prefix) || !yield(e) {
					return
				}
			}
		}
	}
}

// set replaces the entry with a key, or deletes it if e is nil. was is the entry that is there now.
// m.mu is held, and copies is set if others read the chunks.
func (m *Map) set(key string, was, e *Entry, copies bool) {
	m.bytes += e.size() - was.size()
	if len(m.chunks) == 0 {
		if e != nil {
			m.chunks, m.entries = []*chunk{{[]*Entry{e}, m.generation}}, m.entries+1
		}
		return
	}
	n := m.chunkOf(key)
	c := m.chunks[n]
	if copies && c.generation != m.generation {
		c = &chunk{append(make([]*Entry, 0, len(c.entries)+1), c.entries...), m.generation}
		m.chunks[n] = c
	}
	at, found := c.find(key)
	switch {
	case found && e != nil:
		c.entries[at] = e
		return
	case found:
		m.entries--
		if c.entries = slices.Delete(c.entries, at, at+1); len(c.entries) == 0 {
			m.chunks = slices.Delete(m.chunks, n, n+1)
		}
		return
	case e == nil:
		return
	}
	m.entries++
	if c.entries = slices.Insert(c.entries, at, e); len(c.entries) > maxChunk {
		half := len(c.entries) / 2
		rest := &chunk{slices.Clone(c.entries[half:]), m.generation}
		clear(c.entries[half:])
		c.entries = c.entries[:half:half]
		m.chunks = slices.Insert(m.chunks, n+1, rest)
	}
}

// All returns the committed entries, in order.
func (m *Map) All() []*Entry {
	var t Tx
	t.Begin(m, nil)
	defer t.Drop()
	return slices.Collect(t.view.from("", ""))
}

// Len returns the number of committed entries.
func (m *Map) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries
}
