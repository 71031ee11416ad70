package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

var rewriteOptions = wasmbin.Options{
	Meter: true, Fuel: fuelSlice, StackBytes: int32(DefaultLimits().StackBytes), LimitComplexity: true, MaxMemoryPages: 16, MaxTableElements: maxTableElements,
}

// TestRewritingVersion holds that what is kept from an earlier version of the
// rewriter is not taken for its work: a change of what it writes changes the
// version, and the sum here.
func TestRewritingVersion(t *testing.T) {
	files, err := filepath.Glob("testdata/*.wasm")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	slices.Sort(files)
	h := sha256.New()
	for _, file := range files {
		module, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		out, info, err := rewrite(module, rewriteOptions, true)
		if err != nil {
			continue // Another test says why.
		}
		text, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(out)
		h.Write(text)
	}
	const want = "6 64dbfd95df2afa3f"
	if got := string(rune('0'+rewritingVersion)) + " " + hex.EncodeToString(h.Sum(nil)[:8]); got != want {
		t.Errorf("version and sum of rewritten modules are %q, want %q", got, want)
	}
}

// TestRewriteCache holds that what comes from a file is what was written, and
// that any other file is as good as none.
func TestRewriteCache(t *testing.T) {
	module, err := os.ReadFile("testdata/good.wasm")
	if err != nil {
		t.Fatal(err)
	}
	want, wantInfo, err := rewrite(module, rewriteOptions, true)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cache, err := newRewriteCache(codeCache{dir, defaultCacheBytes}, true)
	if err != nil {
		t.Fatal(err)
	}
	get := func(opts wasmbin.Options) ([]byte, *wasmbin.Info) {
		t.Helper()
		out, info, err := cache.rewrite(module, digestOf(module), opts)
		if err != nil {
			t.Fatal(err)
		}
		return out, info
	}
	check := func() {
		t.Helper()
		out, info := get(rewriteOptions)
		if !bytes.Equal(out, want) {
			t.Error("the module is another one")
		}
		if diff := cmp.Diff(wantInfo, info); diff != "" {
			t.Errorf("info (-want +got):\n%s", diff)
		}
	}
	check() // Written.
	check() // Read.
	files, err := fs.Glob(os.DirFS(cache.dir), "*")
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, error %v", files, err)
	}
	file := filepath.Join(cache.dir, files[0])
	intact, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		b := bytes.Clone(intact)
		b[at] ^= 1
		return b
	}
	for name, content := range map[string][]byte{
		"empty":                           {},
		"shorter than its header":         intact[:20],
		"cut off":                         intact[:len(intact)-1],
		"longer":                          append(bytes.Clone(intact), 0),
		"with another sum":                flipped(0),
		"with another length":             flipped(sha256.Size + 3),
		"with another info":               flipped(cacheHeader + 2),
		"with another module":             flipped(len(intact) - 1),
		"of another key, right by itself": otherFile(t, module),
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			check()
			if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, intact) {
				t.Errorf("the file was not written anew, error %v", err)
			}
		})
	}
	t.Run("a directory", func(t *testing.T) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
		check()
	})
	t.Run("other limits are another file", func(t *testing.T) {
		opts := rewriteOptions
		opts.Fuel++
		if out, _ := get(opts); bytes.Equal(out, want) {
			t.Error("the module is the one with other limits")
		}
	})
}

// otherFile returns the file of the same module with other limits.
func otherFile(t *testing.T, module []byte) []byte {
	t.Helper()
	cache, err := newRewriteCache(codeCache{t.TempDir(), defaultCacheBytes}, true)
	if err != nil {
		t.Fatal(err)
	}
	opts := rewriteOptions
	opts.Fuel++
	if _, _, err := cache.rewrite(module, digestOf(module), opts); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(cache.dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, error %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return content
}
