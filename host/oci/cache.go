package oci

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/internal/private"
)

// cache keeps blobs by their digest, and the last answers of registries, in a directory that
// several processes may share. A nil cache keeps nothing.
//
// A file appears under its name when it is whole: it is written under another one and
// renamed. What is read is compared with its digest, so a file that was changed is as good
// as missing.
type cache struct {
	dir string
	max int64
	// mu is held while the size is counted, so that two goroutines do not remove twice.
	mu sync.Mutex
	// bytes is the size after the last count.
	bytes int64
}

const (
	// staleTime is the age at which an unfinished file is one that was left behind, and an
	// answer one that may make room.
	staleTime = time.Hour
	// maxAnswers is how many answers are kept in any case.
	maxAnswers = 4096
)

func openCache(dir string, limit int64) (*cache, error) {
	if dir == "" {
		return nil, nil
	}
	c := &cache{dir: dir, max: cmp.Or(limit, defaultCacheBytes)}
	for _, sub := range []string{"blobs", "answers", "new"} {
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
	// The time of the last use decides what is removed.
	if now := time.Now(); now.Sub(info.ModTime()) > time.Minute {
		_ = os.Chtimes(name, now, now)
	}
	return data
}

// put keeps a blob whose digest was checked. An error is of no consequence but the time of
// the next fetch.
func (c *cache) put(digest string, data []byte) error {
	if c == nil || int64(len(data)) > c.max {
		return nil
	}
	if err := c.write(c.blob(digest), data); err != nil {
		return fmt.Errorf("write to cache: %w", err)
	}
	return c.trim()
}

// write makes a file of data, whole or not at all.
func (c *cache) write(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Join(c.dir, "new"), "*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// trim removes the blobs that were not used for the longest time, until the others fit.
func (c *cache) trim() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	type file struct {
		name string
		size int64
		used time.Time
	}
	var files []file
	c.bytes = 0
	for _, sub := range []string{"blobs", "new", "answers"} {
		entries, err := os.ReadDir(filepath.Join(c.dir, sub))
		if err != nil {
			return fmt.Errorf("read cache: %w", err)
		}
		for i, entry := range entries {
			info, err := entry.Info()
			if err != nil {
				continue // Another process has removed or renamed it.
			}
			name := filepath.Join(c.dir, sub, entry.Name())
			switch {
			case sub == "blobs":
			case sub == "answers" && len(entries)-i <= maxAnswers:
				continue
			case time.Since(info.ModTime()) > staleTime:
				_ = os.Remove(name)
				continue
			default:
				continue
			}
			files = append(files, file{name, info.Size(), info.ModTime()})
			c.bytes += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b file) int { return a.used.Compare(b.used) })
	for _, f := range files {
		if c.bytes <= c.max {
			break
		}
		if err := os.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove from cache: %w", err)
		}
		c.bytes -= f.size
	}
	return nil
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
	return c.write(c.answer(key), data)
}

// recall reports whether an answer is remembered, and reads it into value.
func (c *cache) recall(key string, value any) bool {
	if c == nil {
		return false
	}
	data, err := os.ReadFile(c.answer(key))
	if err != nil {
		return false
	}
	var kept struct {
		Key   string
		Value json.RawMessage
	}
	return json.Unmarshal(data, &kept) == nil && kept.Key == key && json.Unmarshal(kept.Value, value) == nil
}
