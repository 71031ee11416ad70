package statemap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// ErrConflict is the error of a transaction that has written something, and read something that
// another one has changed since.
var ErrConflict = errors.New("the state was changed by other calls meanwhile")

// Tx is a transaction on a map: it reads one moment and its own writes. It is for one goroutine. The
// zero value is closed, and may be used again and again.
//
// A counter that is added to, and otherwise not read, is not part of what the transaction has read:
// only the range of its numbers is for which each sum is within its limit, or beyond it, as before.
type Tx struct {
	m    *Map
	view view
	// commits is that of the map when the transaction began.
	commits uint64
	// entries and bytes are those of the view with the writes.
	entries, bytes int
	accesses       []access
	// index has the positions in accesses by key if there are many.
	index          map[string]int
	writes, listed int
	kept           int
	spans          []span
	first          *Record
}

// accessBytes is the size of an access, with its place in the index and its entry.
const accessBytes = 256

// fewAccesses is the number of accesses that are found without an index.
const fewAccesses = 8

// access is what a transaction did with one key.
type access struct {
	key string
	// base is the entry of the view, and now the entry that the transaction sees; nil for none.
	base, now *Entry
	// exact is set if the transaction depends on base. It depends on its number being between low
	// and high in any case, if added is set.
	exact     bool
	written   bool
	added     bool
	delta     int64
	low, high int64
}

// span is the entries of the view with a prefix, from a key on, that a transaction has listed: those
// up to a key, or all if that is empty.
type span struct {
	prefix, from, to string
	entries          []*Entry
}

// Record holds the reads of a transaction, for one that repeats it. It does not change.
type Record struct {
	keys  []recorded // Ordered by key.
	spans []span
	bytes int
}

// recorded is the entry that was read under a key, nil if there was none.
type recorded struct {
	key   string
	entry *Entry
}

// Bytes returns about the number of bytes that the record keeps.
func (r *Record) Bytes() int { return r.bytes }

// Begin begins a transaction. With first, the record of an earlier one, it reads what that one read,
// and must be dropped.
func (t *Tx) Begin(m *Map, first *Record) {
	m.mu.Lock()
	m.open++
	t.view, t.commits = m.view, m.commits
	m.mu.Unlock()
	t.m, t.first = m, first
	t.entries, t.bytes = t.view.entries, t.view.bytes
}

// Open reports whether the transaction has begun and not ended.
func (t *Tx) Open() bool { return t.m != nil }

// Drop ends a transaction without its writes. It may be closed.
func (t *Tx) Drop() {
	if t.m == nil {
		return
	}
	t.m.mu.Lock()
	t.m.open--
	t.m.mu.Unlock()
	t.close()
}

func (t *Tx) close() {
	t.m, t.view, t.first, t.writes, t.listed, t.kept = nil, view{}, nil, 0, 0, 0
	clear(t.accesses)
	clear(t.spans)
	if t.accesses, t.spans = t.accesses[:0], t.spans[:0]; cap(t.accesses) > 1<<10 {
		t.accesses = nil
	}
	t.index = nil
}

// Commit ends a transaction. Its writes count, unless the error is [ErrConflict].
func (t *Tx) Commit() error {
	if t.writes == 0 {
		t.Drop()
		return nil
	}
	m := t.m
	m.mu.Lock()
	defer t.close()
	defer m.mu.Unlock()
	m.open--
	if m.commits != t.commits && !t.valid() {
		return ErrConflict
	}
	copies := m.open > 0
	if copies {
		m.generation++
		m.chunks = slices.Clone(m.chunks)
	}
	m.commits++
	for i := range t.accesses {
		a := &t.accesses[i]
		if !a.written {
			continue
		}
		was, now := a.base, a.now
		if m.commits != t.commits+1 && !a.exact {
			if was = m.view.get(a.key); a.added {
				n, _ := was.counter()
				now = newCounter(a.key, n+a.delta, m.versions.Add(1))
			}
		}
		m.set(a.key, was, now, copies)
	}
	return nil
}

// valid reports whether the transaction would have had the same answers now. m.mu is held.
func (t *Tx) valid() bool {
	m := t.m
	entries, bytes := m.entries, m.bytes
	for i := range t.accesses {
		a := &t.accesses[i]
		is := m.view.get(a.key)
		if a.exact && is != a.base {
			return false
		}
		if a.added && !a.exact {
			if n, ok := is.counter(); !ok || n < a.low || n > a.high {
				return false
			}
		}
		if a.written {
			bytes += a.now.size() - is.size()
			entries += count(a.now) - count(is)
		}
	}
	if entries > max(m.maxEntries, m.entries) || bytes > max(m.maxBytes, m.bytes) {
		return false
	}
	for i := range t.spans {
		s := &t.spans[i]
		n := 0
		for e := range m.view.from(s.prefix, s.from) {
			if s.to != "" && e.Key > s.to {
				break
			}
			if n == len(s.entries) || s.entries[n] != e {
				return false
			}
			n++
		}
		if n != len(s.entries) {
			return false
		}
	}
	return true
}

func count(e *Entry) int {
	if e == nil {
		return 0
	}
	return 1
}

// at returns the access of a key, which is lent to it.
func (t *Tx) at(key string) *access {
	if t.index != nil {
		if n, ok := t.index[key]; ok {
			return &t.accesses[n]
		}
	} else {
		for n := range t.accesses {
			if t.accesses[n].key == key {
				return &t.accesses[n]
			}
		}
	}
	base := t.base(key)
	if base != nil {
		key = base.Key
	} else {
		key = strings.Clone(key)
	}
	t.kept += accessBytes + len(key)
	t.accesses = append(t.accesses, access{key: key, base: base, now: base, low: math.MinInt64, high: math.MaxInt64})
	switch n := len(t.accesses); {
	case t.index != nil:
		t.index[key] = n - 1
	case n > fewAccesses:
		t.index = make(map[string]int, 2*n)
		for n := range t.accesses {
			t.index[t.accesses[n].key] = n
		}
	}
	return &t.accesses[len(t.accesses)-1]
}

// base returns the entry that the transaction reads under a key before it writes one.
func (t *Tx) base(key string) *Entry {
	if t.first != nil {
		if n, ok := slices.BinarySearchFunc(t.first.keys, key, func(r recorded, key string) int { return strings.Compare(r.key, key) }); ok {
			return t.first.keys[n].entry
		}
		for _, s := range t.first.spans {
			if strings.HasPrefix(key, s.prefix) && key >= s.from && (s.to == "" || key <= s.to) {
				n, found := slices.BinarySearchFunc(s.entries, key, func(e *Entry, key string) int { return strings.Compare(e.Key, key) })
				if found {
					return s.entries[n]
				}
				return nil
			}
		}
	}
	return t.view.get(key)
}

// Kept returns about the number of bytes that the transaction keeps.
func (t *Tx) Kept() int { return t.kept }

// Written returns the number of keys that the transaction has written.
func (t *Tx) Written() int { return t.writes }

// Listed returns the number of entries that the transaction has listed.
func (t *Tx) Listed() int { return t.listed }

// Get returns the entry with a key, nil if there is none. The key is lent, here and below.
func (t *Tx) Get(key string) *Entry {
	a := t.at(key)
	a.exact = true
	return a.now
}

// write replaces the entry of an access.
func (t *Tx) write(a *access, now *Entry) Result {
	entries, bytes := t.entries+count(now)-count(a.now), t.bytes+now.size()-a.now.size()
	if entries > t.m.maxEntries && entries > t.entries || bytes > t.m.maxBytes && bytes > t.bytes {
		return Full
	}
	t.kept += now.size() - a.now.size()
	t.entries, t.bytes, a.now = entries, bytes, now
	if !a.written {
		a.written = true
		t.writes++
	}
	return Done
}

// Put writes an entry if the version is [Any], that of the entry, or 0 and there is none. The value
// is lent.
func (t *Tx) Put(key string, value []byte, version int64) Result {
	a := t.at(key)
	if version != Any {
		a.exact = true
		if !a.now.has(version) {
			return Refused
		}
	}
	added := a.added
	r := t.write(a, &Entry{Key: a.key, Value: slices.Clone(value), Version: t.m.versions.Add(1)})
	if r == Done && added { // What was added is gone, but the answers depend on it.
		a.exact = true
	}
	return r
}

func (e *Entry) has(version int64) bool {
	if e == nil {
		return version == 0
	}
	return version == int64(e.Version)
}

// Delete deletes an entry if the version is [Any] or that of the entry, and there is one.
func (t *Tx) Delete(key string, version int64) Result {
	a := t.at(key)
	a.exact = true
	if a.now == nil || version != Any && !a.now.has(version) {
		return Refused
	}
	return t.write(a, nil)
}

// Add adds to a counter unless the sum would be above limit or, if delta is below 0, below it.
func (t *Tx) Add(key string, delta, limit int64) Result {
	a := t.at(key)
	n, ok := a.now.counter()
	if !ok {
		a.exact = true
		return NoCounter
	}
	if a.written && !a.added {
		a.exact = true // It adds to what it has written.
	}
	sum := n + delta
	overflow := delta > 0 && sum < n || delta < 0 && sum > n
	passes := overflow || delta >= 0 && sum > limit || delta < 0 && sum < limit
	if !a.exact {
		// The answer is the same for these numbers of the base.
		total := a.delta + delta
		edge := limit - total
		switch {
		case overflow || delta > 0 && total < a.delta || delta < 0 && total > a.delta || limit < 0 && total > 0 && edge > 0 || limit >= 0 && total < 0 && edge < 0:
			if !overflow && (delta >= 0 && limit == math.MaxInt64 || delta < 0 && limit == math.MinInt64) && (delta > 0) == (total > a.delta) {
				break // There is no limit.
			}
			a.exact = true
		case delta >= 0 && passes:
			a.low = max(a.low, edge+1)
		case delta >= 0:
			a.high = min(a.high, edge)
		case passes:
			a.high = min(a.high, edge-1)
		default:
			a.low = max(a.low, edge)
		}
	}
	if !a.exact {
		a.added = true
		if !passes && delta > 0 && a.delta+delta > 0 {
			a.high = min(a.high, math.MaxInt64-(a.delta+delta))
		} else if !passes && delta < 0 && a.delta+delta < 0 {
			a.low = max(a.low, math.MinInt64-(a.delta+delta))
		}
	}
	if passes {
		return Refused
	}
	r := t.write(a, newCounter(a.key, sum, t.m.versions.Add(1)))
	if r == Done {
		a.delta += delta
	}
	return r
}

// List appends a page of the entries with a prefix after a key to dst: for each the length of its key
// and of its value, 32 bits, its version, 64 bits, its key and its value. It appends nothing at the
// end.
func (t *Tx) List(dst []byte, prefix, after string) []byte {
	from := after
	if after != "" {
		from = after + "\x00"
	}
	s := span{prefix: strings.Clone(prefix), from: strings.Clone(from)}
	written := t.writtenFrom(prefix, from)
	start := len(dst)
	room := func(e *Entry) bool { return len(dst) == start || len(dst)-start+entryHead+e.size() <= pageBytes }
	full := false
	add := func(e *Entry) {
		if full = full || !room(e); !full {
			dst = appendEntry(dst, e)
			s.to = e.Key
		}
	}
	// Written entries come between those of the view, and in the place of some.
	base := t.view.from(prefix, from)
	if t.first != nil {
		for _, f := range t.first.spans {
			if f.prefix == prefix && f.from == from {
				base = slices.Values(f.entries)
				break
			}
		}
	}
	for e := range base {
		for len(written) > 0 && t.accesses[written[0]].key < e.Key && !full {
			if now := t.accesses[written[0]].now; now != nil {
				add(now)
			}
			written = written[1:]
		}
		if full {
			break
		}
		now := e
		if len(written) > 0 && t.accesses[written[0]].key == e.Key {
			now, written = t.accesses[written[0]].now, written[1:]
		}
		if now != nil {
			if add(now); full {
				break
			}
		}
		s.entries = append(s.entries, e)
	}
	for _, n := range written {
		if now := t.accesses[n].now; now != nil && !full {
			add(now)
		}
	}
	if !full {
		s.to = "" // It has seen the end.
	}
	for n := len(s.entries); full && n > 0 && s.entries[n-1].Key > s.to; n-- { // Deleted ones.
		s.entries = s.entries[:n-1]
	}
	t.kept += accessBytes + len(prefix) + len(from) + 8*len(s.entries)
	t.listed += len(s.entries)
	t.spans = append(t.spans, s)
	return dst
}

// writtenFrom returns the positions of written accesses with a prefix from a key on, in the order of
// their keys.
func (t *Tx) writtenFrom(prefix, from string) (written []int) {
	if t.writes == 0 {
		return nil
	}
	for n := range t.accesses {
		if a := &t.accesses[n]; a.written && a.key >= from && strings.HasPrefix(a.key, prefix) {
			a.exact = a.exact || a.added // The list has the sum.
			written = append(written, n)
		}
	}
	slices.SortFunc(written, func(a, b int) int { return strings.Compare(t.accesses[a].key, t.accesses[b].key) })
	return written
}

// entryHead is the length of an entry of a page without its key and value.
const entryHead = 16

func appendEntry(dst []byte, e *Entry) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.Key)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.Value)))
	dst = binary.LittleEndian.AppendUint64(dst, e.Version)
	return append(append(dst, e.Key...), e.Value...)
}

// AppendGet appends the answer of get for an entry: its version and its value, nothing for nil.
func AppendGet(dst []byte, e *Entry) []byte {
	if e == nil {
		return dst
	}
	return append(binary.LittleEndian.AppendUint64(dst, e.Version), e.Value...)
}

// Record returns what the transaction has read so far, nil if nothing.
func (t *Tx) Record() *Record {
	if len(t.accesses) == 0 && len(t.spans) == 0 {
		return nil
	}
	r := &Record{keys: make([]recorded, len(t.accesses)), spans: slices.Clone(t.spans)}
	for i := range t.accesses {
		a := &t.accesses[i]
		r.keys[i] = recorded{a.key, a.base}
		r.bytes += recordBytes + len(a.key) + a.base.size()
	}
	if len(r.keys) > 1 {
		slices.SortFunc(r.keys, func(a, b recorded) int { return strings.Compare(a.key, b.key) })
	}
	for i := range r.spans {
		for _, e := range r.spans[i].entries {
			r.bytes += recordBytes + e.size()
		}
	}
	return r
}

// recordBytes is the size of the place of a key in a record.
const recordBytes = 64

// CheckKey returns an error for a key that no entry can have.
func CheckKey(n int) error {
	if n == 0 || n > MaxKey {
		return fmt.Errorf("the key has %d bytes, want 1 to %d", n, MaxKey)
	}
	return nil
}

// CheckValue returns an error for a value that no entry can have.
func CheckValue(n int) error {
	if n > MaxValue {
		return fmt.Errorf("the value has %d bytes, more than %d", n, MaxValue)
	}
	return nil
}
