package oci

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/diskcache"
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

// TestCacheSurvivesKills kills processes while they write to a cache that this one uses, too.
// What is there under its name is whole, within the bound, and what a killed process left
// unfinished is removed in time.
func TestCacheSurvivesKills(t *testing.T) {
	const size, limit = 1 << 20, 6 << 20
	blobOf := func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(i >> 8)}, size/2) }
	if dir := os.Getenv("KUBEWASM_TEST_CACHE"); dir != "" {
		c, err := openCache(dir, limit)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			data := blobOf(i)
			if err := errors.Join(c.put(sum(data), data), c.remember("last", sum(data))); err != nil {
				t.Fatal(err)
			}
			fmt.Println("written")
		}
	}
	c := newCache(t, limit)
	for round := range 8 {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCacheSurvivesKills$")
		child.Env = append(os.Environ(), "KUBEWASM_TEST_CACHE="+c.dir)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 2+round && lines.Scan(); n++ {
			data := blobOf(1000 + n)
			if err := c.put(sum(data), data); err != nil {
				t.Error(err)
			}
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); err == nil {
			t.Fatal("the process ended by itself")
		}
		entries, err := os.ReadDir(filepath.Join(c.dir, "blobs"))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			name := filepath.Join(c.dir, "blobs", entry.Name())
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(entry.Name(), "new-") && sum(data) != "sha256:"+entry.Name() {
				t.Errorf("%s has %d other bytes", entry.Name(), len(data))
			}
		}
		var last string
		if !c.recall("last", &last) || !digestRE.MatchString(last) {
			t.Errorf("the cache remembers %q", last)
		}
	}
	unfinished := func() []string {
		files, err := filepath.Glob(filepath.Join(c.dir, "*", "new-*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	for _, name := range unfinished() {
		old := time.Now().Add(-2 * diskcache.StaleTime)
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.trim(); err != nil || c.bytes > limit {
		t.Errorf("the cache has %d bytes, want at most %d: %v", c.bytes, limit, err)
	}
	if left := unfinished(); len(left) != 0 {
		t.Errorf("unfinished files are still there: %v", left)
	}
}
