package oci

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/kubewasm/kubewasm/internal/diskcache"
)

// cache keeps blobs by their digest, and the last answers of registries, in a directory that
// several processes may share. A nil cache keeps nothing.
//
// Content that is read is compared with its digest, so a changed file counts as missing.
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

// The directories of a cache. Files in acceptedDir are never removed: security depends on them, and
// someone who can fill the other directories must not be able to erase them.
const (
	blobsDir    = "blobs"
	answersDir  = "answers"
	acceptedDir = "accepted"
)

func openCache(dir string, limit int64) (*cache, error) {
	if dir == "" {
		return nil, nil
	}
	c := &cache{dir: dir, max: cmp.Or(limit, defaultCacheBytes)}
	for _, sub := range []string{blobsDir, answersDir, acceptedDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("make cache: %w", err)
		}
	}
	if err := diskcache.CheckDirectory(dir); err != nil {
		return nil, fmt.Errorf("use cache: %w", err)
	}
	return c, c.trim()
}

func (c *cache) blob(digest string) string {
	return filepath.Join(c.dir, blobsDir, digest[len("sha256:"):])
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

// put keeps a blob whose digest was checked. An error only costs time at the next fetch.
func (c *cache) put(digest string, data []byte) error {
	if c == nil || int64(len(data)) > c.max {
		return nil
	}
	if err := diskcache.Write(c.blob(digest), data); err != nil {
		return fmt.Errorf("write to cache: %w", err)
	}
	return c.trim()
}

// trim removes the least recently used blobs and answers, until the others fit.
func (c *cache) trim() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, answersErr := diskcache.Trim(maxAnswerBytes, filepath.Join(c.dir, answersDir))
	// It has unfinished files that a process left.
	_, acceptedErr := diskcache.Trim(math.MaxInt64, filepath.Join(c.dir, acceptedDir))
	c.bytes, err = diskcache.Trim(c.max, filepath.Join(c.dir, blobsDir))
	return errors.Join(err, answersErr, acceptedErr)
}

// answer returns the name of the file in which remember and recall keep a key's answer.
func (c *cache) answer(key string) string { return c.file(answersDir, key) }

func (c *cache) file(dir, key string) string {
	return filepath.Join(c.dir, dir, sum([]byte(key))[len("sha256:"):])
}

// remember keeps a small answer of a registry under a key.
func (c *cache) remember(key string, value any) error {
	if c == nil {
		return nil
	}
	return write(c.answer(key), key, value)
}

// write makes a file of a value under a key.
func write(name, key string, value any) error {
	data, err := json.Marshal(struct {
		Key   string
		Value any
	}{key, value})
	if err != nil {
		return err
	}
	// An unchanged file is not written again.
	if old, err := os.ReadFile(name); err == nil && string(old) == string(data) {
		return nil
	}
	return diskcache.Write(name, data)
}

// recall reports whether an answer is remembered, and reads it into value.
func (c *cache) recall(key string, value any) bool {
	if c == nil {
		return false
	}
	name := c.answer(key)
	if load(name, key, value) != nil {
		return false
	}
	if info, err := os.Stat(name); err == nil {
		diskcache.Use(name, info)
	}
	return true
}

// load reads the value under a key from a file.
func load(name, key string, value any) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var kept struct {
		Key   string
		Value json.RawMessage
	}
	if err := json.Unmarshal(data, &kept); err != nil {
		return err
	}
	if kept.Key != key {
		return errors.New("it is of something else")
	}
	return json.Unmarshal(kept.Value, value)
}

// accept records the accepted version of a reference. It drops no other record for that: more than
// limit references are an error.
func (c *cache) accept(key string, last accepted, limit int) error {
	name := c.file(acceptedDir, key)
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		entries, err := os.ReadDir(filepath.Dir(name))
		if err != nil {
			return err
		}
		if len(entries) >= limit {
			return fmt.Errorf("%s is full with %d files: remove those of unused references", filepath.Dir(name), len(entries))
		}
	}
	return write(name, key, last)
}

// accepted returns the accepted version of a reference, the zero value if there is none.
func (c *cache) accepted(key string) (last accepted, err error) {
	if c == nil {
		return last, nil
	}
	name := c.file(acceptedDir, key)
	if err := load(name, key, &last); err != nil && !errors.Is(err, fs.ErrNotExist) {
		// A version that cannot be read must not be taken for none.
		return accepted{}, fmt.Errorf("read the accepted versions: %s: %w", name, err)
	}
	return last, nil
}
