package oci

import (
	"bufio"
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
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
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

// Answers are of whoever serves them, and as many as they like. What was accepted is kept beside
// them.
func TestAcceptedVersionsOutliveAFloodOfAnswers(t *testing.T) {
	c := newCache(t, 0)
	want := accepted{Version: "1.10.0", Digest: "sha256:1"}
	if err := c.accept("accepted x", want, maxNewest); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(c.file(acceptedDir, "accepted x"), old, old); err != nil {
		t.Fatal(err)
	}
	for i := range 8 {
		if err := c.remember(fmt.Sprint(i), strings.Repeat("x", maxAnswerBytes/4)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.put(sum([]byte("x")), []byte("x")); err != nil {
		t.Fatal(err)
	}
	var answer string
	if c.recall("0", &answer) {
		t.Error("the flood fits into the cache: this test shows nothing")
	}
	again, err := openCache(c.dir, 0) // After a restart.
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.accepted("accepted x"); got != want || err != nil {
		t.Errorf("accepted is %+v, %v, want %+v", got, err, want)
	}
	if err := os.WriteFile(c.file(acceptedDir, "accepted x"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := again.accepted("accepted x"); err == nil {
		t.Errorf("of a damaged file came %+v, want an error", got)
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
		child := self.Command(t, []string{"KUBEWASM_TEST_CACHE=" + c.dir}, "-test.run=^TestCacheSurvivesKills$")
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

// Whoever may write to a repository writes annotations of any size into what refers to it.
func TestReferrersKeepDigestSizeAndTypes(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	want := ocispec.Descriptor{Digest: digestOf(sum(nil)), Size: 7, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: mediaTypeBundle}
	desc := want
	desc.Annotations, desc.Data, desc.URLs = map[string]string{"a": long}, []byte(long), []string{long}
	desc.Platform = &ocispec.Platform{OS: long}
	if diff := cmp.Diff(want, referrer(desc)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := referrer(ocispec.Descriptor{Digest: digestOf(long), MediaType: long, ArtifactType: long}); len(got.Digest)+len(got.MediaType)+len(got.ArtifactType) != 0 {
		t.Errorf("of types of a megabyte %d bytes are kept", len(got.Digest)+len(got.MediaType)+len(got.ArtifactType))
	}
}
