package oci

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"testing"
)

func newCache(t *testing.T, limit int64) *cache {
	t.Helper()
	c, err := openCache(t.TempDir(), limit)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCacheIsBounded(t *testing.T) {
	c := newCache(t, 250)
	for i := range 4 {
		data := bytes.Repeat([]byte{byte(i)}, 100)
		if err := c.put(sum(data), data); err != nil {
			t.Fatal(err)
		}
	}
	if c.bytes != 200 {
		t.Errorf("the cache has %d bytes, want 200", c.bytes)
	}
	big := make([]byte, 251)
	if err := c.put(sum(big), big); err != nil || c.get(sum(big), 251) != nil {
		t.Errorf("a blob that is larger than the cache was kept, or failed: %v", err)
	}
}

func TestCacheServesNothingThatWasChanged(t *testing.T) {
	c := newCache(t, 0)
	data := []byte("module")
	for name, damage := range map[string]func(file string) error{
		"other bytes": func(file string) error { return os.WriteFile(file, []byte("MODULE"), 0o600) },
		"cut off":     func(file string) error { return os.Truncate(file, 3) },
		"longer":      func(file string) error { return os.WriteFile(file, []byte("module2"), 0o600) },
		"a directory": func(file string) error { _ = os.Remove(file); return os.Mkdir(file, 0o700) },
	} {
		_ = os.Remove(c.blob(sum(data)))
		if err := c.put(sum(data), data); err != nil {
			t.Fatal(err)
		}
		if err := damage(c.blob(sum(data))); err != nil {
			t.Fatal(err)
		}
		if got := c.get(sum(data), int64(len(data))); got != nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestCacheRemembersAnswers(t *testing.T) {
	c := newCache(t, 0)
	var got int
	if c.recall("a", &got) {
		t.Error("an empty cache remembers something")
	}
	if err := c.remember("a", 7); err != nil {
		t.Fatal(err)
	}
	if !c.recall("a", &got) || got != 7 || c.recall("b", &got) {
		t.Errorf("recall of a: %d", got)
	}
	// A file under the wrong name answers nothing.
	if err := os.Rename(c.answer("a"), c.answer("b")); err != nil {
		t.Fatal(err)
	}
	if c.recall("b", &got) {
		t.Error("the answer to a was taken for that to b")
	}
}

func TestCacheRefusesADirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := openCache(dir, 0); err == nil {
		t.Error("a directory that everybody may write to was taken")
	}
}

// TestCacheHammer has two caches in one directory, as two processes have.
func TestCacheHammer(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 2 {
		c, err := openCache(dir, 2000)
		if err != nil {
			t.Fatal(err)
		}
		for g := range 4 {
			wg.Go(func() {
				for i := range 50 {
					data := fmt.Appendf(nil, "%0100d", (i*7+g)%30)
					if err := c.put(sum(data), data); err != nil {
						t.Error(err)
					}
					if got := c.get(sum(data), 100); got != nil && !bytes.Equal(got, data) {
						t.Errorf("got %q, want %q", got, data)
					}
				}
			})
		}
	}
	wg.Wait()
}
