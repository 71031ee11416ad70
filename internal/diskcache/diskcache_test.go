package diskcache_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

func TestTrimDirs(t *testing.T) {
	for name, tt := range map[string]struct {
		max    int64
		maxAge time.Duration
		// ages are those of the only files of directories of 100 bytes, empty at 0.
		ages map[string]time.Duration
		want string
	}{
		"all fit":                        {300, 1000 * time.Hour, map[string]time.Duration{"a": 2 * time.Hour, "b": 3 * time.Hour, "c": 4 * time.Hour}, "a b c"},
		"the oldest go for want of room": {150, 1000 * time.Hour, map[string]time.Duration{"a": 2 * time.Hour, "b": 3 * time.Hour, "c": 4 * time.Hour}, "a"},
		"the old ones go":                {300, 150 * time.Minute, map[string]time.Duration{"a": 2 * time.Hour, "b": 3 * time.Hour, "c": 4 * time.Hour}, "a"},
		"what is used stays":             {0, 0, map[string]time.Duration{"a": time.Minute, "b": 50 * time.Minute, "c": 2 * time.Hour}, "a b"},
		"a new empty one stays":          {0, 0, map[string]time.Duration{"a": 0, "b": 2 * time.Hour}, "a"},
	} {
		dir := t.TempDir()
		for sub, age := range tt.ages {
			path := filepath.Join(dir, sub)
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if age == 0 {
				continue
			}
			file := filepath.Join(path, "file")
			if err := os.WriteFile(file, make([]byte, 100), 0o600); err != nil {
				t.Fatal(err)
			}
			used := time.Now().Add(-age)
			if err := errors.Join(os.Chtimes(file, used, used), os.Chtimes(path, used, used)); err != nil {
				t.Fatal(err)
			}
		}
		if err := diskcache.TrimDirs(dir, tt.max, tt.maxAge); err != nil {
			t.Error(err)
		}
		var left []string
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			left = append(left, entry.Name())
		}
		if got := strings.Join(left, " "); got != tt.want {
			t.Errorf("%s: left are %s, want %s", name, got, tt.want)
		}
	}
	if err := diskcache.TrimDirs(filepath.Join(t.TempDir(), "absent"), 0, 0); err != nil {
		t.Error(err)
	}
}

func TestUseDirKeepsADirectory(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-48 * time.Hour)
	for _, sub := range []string{"used", "unused"} {
		file := filepath.Join(dir, sub, "file")
		if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600), os.Chtimes(file, old, old), os.Chtimes(filepath.Dir(file), old, old)); err != nil {
			t.Fatal(err)
		}
	}
	diskcache.UseDir(filepath.Join(dir, "used"))
	if err := diskcache.TrimDirs(dir, 0, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "used" {
		t.Errorf("left are %v, %v", entries, err)
	}
}
