package oci

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/private"
)

// cache keeps blobs by their digest, and the last answers of registries, in a directory that
// several processes may share. A nil cache keeps nothing.
//
// What is read is compared with its digest, so a file that was changed is as good as missing.
type cache struct {
	dir string
	max int64
	// mu is held while the size is counted, so that two goroutines do not remove twice.
	mu sync.Mutex
	// bytes is the size after the last count.
	bytes int64
}

// maxAnswerBytes is the size of some 14,000 answers.
const maxAnswerBytes = 4 << 20

func openCache(dir string, limit int64) (*cache, error) {
	if dir == "" {
		return nil, nil
	}
	c := &cache{dir: dir, max: cmp.Or(limit, defaultCacheBytes)}
	for _, sub := range []string{"blobs", "answers"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
	}
	if err := private.CheckDirectory(dir); err != nil {
		return nil, fmt.Errorf("use cache: %w", err)
	}
	return c, c.trim()
}

func (c *cache) blob(digest string) string {
	return filepath.Join(c.dir, "blobs", digest[len("sha256:"):])
}

// get returns a blob, nil if the cache does not have it. The digest is valid.
func (c *cache) get(digest string, size int64) []byte {
	if c == nil {
		return nil
	}
	name := c.blob(digest)
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return nil
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil || sum(data) != digest {
		_ = os.Remove(name) // It is fetched again.
		return nil
	}
	diskcache.Use(name, info)
	return data
}

// put keeps a blob whose digest was checked. An error is of no consequence but the time of
// the next fetch.
func (c *cache) put(digest string, data []byte) error {
	if c == nil || int64(len(data)) > c.max {
		return nil
	}
	if err := diskcache.Write(c.blob(digest), data); err != nil {
		return fmt.Errorf("write to cache: %w", err)
	}
	return c.trim()
}

// trim removes the blobs that were not used for the longest time, until the others fit, and
// such answers.
func (c *cache) trim() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, answersErr := diskcache.Trim(maxAnswerBytes, filepath.Join(c.dir, "answers"))
	c.bytes, err = diskcache.Trim(c.max, filepath.Join(c.dir, "blobs"))
	return errors.Join(err, answersErr)
}

// answer returns what recall remembers under a key.
func (c *cache) answer(key string) string {
	return filepath.Join(c.dir, "answers", sum([]byte(key))[len("sha256:"):])
}

// remember keeps a small answer of a registry under a key.
func (c *cache) remember(key string, value any) error {
	if c == nil {
		return nil
	}
	data, err := json.Marshal(struct {
		Key   string
		Value any
	}{key, value})
	if err != nil {
		return err
	}
	// What did not change is not written again.
	if old, err := os.ReadFile(c.answer(key)); err == nil && string(old) == string(data) {
		return nil
	}
	return diskcache.Write(c.answer(key), data)
}

// recall reports whether an answer is remembered, and reads it into value.
func (c *cache) recall(key string, value any) bool {
	if c == nil {
		return false
	}
	name := c.answer(key)
	data, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	if info, err := os.Stat(name); err == nil {
		diskcache.Use(name, info)
	}
	var kept struct {
		Key   string
		Value json.RawMessage
	}
	return json.Unmarshal(data, &kept) == nil && kept.Key == key && json.Unmarshal(kept.Value, value) == nil
}
