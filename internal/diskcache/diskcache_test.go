package diskcache_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/diskcache"
)

// age sets the time of the last use of a file.
func age(t *testing.T, name string, d time.Duration) {
	t.Helper()
	used := time.Now().Add(-d)
	if err := os.Chtimes(name, used, used); err != nil {
		t.Fatal(err)
	}
}

// names returns the files in a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

func TestTrimKeepsWhatWasUsedLast(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	for i, name := range []string{filepath.Join(a, "1"), filepath.Join(b, "2"), filepath.Join(a, "3"), filepath.Join(b, "4")} {
		if err := diskcache.Write(name, make([]byte, 60), make([]byte, 40)); err != nil {
			t.Fatal(err)
		}
		age(t, name, time.Duration(10-i)*time.Minute)
	}
	info, err := os.Stat(filepath.Join(a, "1"))
	if err != nil {
		t.Fatal(err)
	}
	diskcache.Use(filepath.Join(a, "1"), info)
	if kept, err := diskcache.Trim(250, a, b, filepath.Join(a, "absent")); kept != 200 || err != nil {
		t.Errorf("%d bytes, %v, want 200", kept, err)
	}
	if diff := cmp.Diff([]string{"1", "4"}, append(names(t, a), names(t, b)...)); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
}

func TestTrimRemovesFilesThatWereLeftUnfinished(t *testing.T) {
	dir := t.TempDir()
	for name, old := range map[string]time.Duration{
		"new-1": 2 * diskcache.StaleTime, "new-2": 0, "0123.456.tmp": 2 * diskcache.StaleTime, "0123.789.tmp": 0, "0123": 2 * diskcache.StaleTime,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		age(t, filepath.Join(dir, name), old)
	}
	if err := os.Mkdir(filepath.Join(dir, "new-directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if kept, err := diskcache.Trim(100, dir); kept != 4 || err != nil {
		t.Errorf("%d bytes, %v, want those of the finished file", kept, err)
	}
	if diff := cmp.Diff([]string{"0123", "0123.789.tmp", "new-2", "new-directory"}, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
}

func TestWriteLeavesNothingBehindAfterAnError(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := diskcache.Write(filepath.Join(dir, "taken"), []byte("x")); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if diff := cmp.Diff([]string{"taken"}, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
}

// TestHammer writes, reads and trims a directory as several processes do: what is there is
// whole.
func TestHammer(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				name := filepath.Join(dir, fmt.Sprint((i*7+g)%30))
				want := bytes.Repeat([]byte(filepath.Base(name)), 100)
				if err := diskcache.Write(name, want[:50], want[50:]); err != nil {
					t.Error(err)
				}
				if got, err := os.ReadFile(name); err == nil && !bytes.Equal(got, want) {
					t.Errorf("%s has %d other bytes", name, len(got))
				}
				if _, err := diskcache.Trim(2000, dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
