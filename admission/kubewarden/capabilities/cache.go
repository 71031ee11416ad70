package capabilities

import (
	"container/list"
	"crypto/sha256"
	"time"
)

// cache holds answers, and evicts the least recently used. It is guarded by the mutex of its
// Provider.
type cache struct {
	maxBytes, maxEntries    int
	bytes                   int
	entries                 map[[sha256.Size]byte]*list.Element
	recent                  *list.List // Of entries, the last used first.
	hits, misses, evictions uint64
}

// entry is an answer in the cache.
type entry struct {
	sum    [sha256.Size]byte
	answer []byte
	until  time.Time
}

// entryBytes is the size of an entry without its answer, in bytes.
const entryBytes = 256

func newCache(maxBytes, maxEntries int) cache {
	return cache{maxBytes: maxBytes, maxEntries: maxEntries, entries: map[[sha256.Size]byte]*list.Element{}, recent: list.New()}
}

// get returns an answer that has not expired. A second look-up for the same question is counted
// only if it is a hit.
func (c *cache) get(sum [sha256.Size]byte, now time.Time, again bool) ([]byte, bool) {
	if e, ok := c.entries[sum]; ok {
		if entry := e.Value.(*entry); now.Before(entry.until) {
			c.recent.MoveToFront(e)
			c.hits++
			if again {
				c.misses--
			}
			return entry.answer, true
		}
		c.drop(e)
	}
	if !again {
		c.misses++
	}
	return nil, false
}

// put keeps an answer for a time, unless it is larger than a quarter of the cache.
func (c *cache) put(sum [sha256.Size]byte, answer []byte, now time.Time, ttl time.Duration) {
	n := len(answer) + entryBytes
	if n > c.maxBytes/4 {
		return
	}
	if e, ok := c.entries[sum]; ok {
		c.drop(e)
	}
	for len(c.entries) != 0 && (c.bytes+n > c.maxBytes || len(c.entries) >= c.maxEntries) {
		last := c.recent.Back()
		if now.Before(last.Value.(*entry).until) {
			c.evictions++
		}
		c.drop(last)
	}
	c.entries[sum] = c.recent.PushFront(&entry{sum, answer, now.Add(ttl)})
	c.bytes += n
}

func (c *cache) drop(e *list.Element) {
	entry := c.recent.Remove(e).(*entry)
	delete(c.entries, entry.sum)
	c.bytes -= len(entry.answer) + entryBytes
}
