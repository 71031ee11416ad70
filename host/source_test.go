package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

func TestSourceFile(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write(t, path("module"), "content")
	link(t, "module", path("link"))
	write(t, path("large"), "")
	if err := os.Truncate(path("large"), wasmbin.MaxModuleBytes+1); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ path, want, wantErr string }{
		"file":           {path: path("module"), want: "content"},
		"link to a file": {path: path("link"), want: "content"},
		"nothing":        {path: path("absent"), wantErr: "no such file"},
		"directory":      {path: dir, wantErr: "want a regular file"},
		"device":         {path: os.DevNull, wantErr: "want a regular file"},
		"too large":      {path: path("large"), wantErr: "file has 268435457 bytes, more than 268435456"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := host.File(test.path).Fetch(t.Context())
			checkFetch(t, got, err, test.want, test.wantErr)
		})
	}
	t.Run("after the end of the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := host.File(path("module")).Fetch(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

// checkFetch compares what Fetch returned with a module or a part of an error.
func checkFetch(t *testing.T, got []byte, err error, want, wantErr string) {
	t.Helper()
	switch {
	case wantErr == "" && err != nil:
		t.Fatal(err)
	case wantErr != "" && (err == nil || !strings.Contains(err.Error(), wantErr)):
		t.Errorf("got error %v, want %s", err, wantErr)
	}
	if string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// digest returns the SHA-256 of a module as configurations name it.
func digest(module []byte) string {
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}

// write writes a file in place.
func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace puts a new file in the place of another, as one step.
func replace(t testing.TB, path, content string) {
	t.Helper()
	write(t, path+".new", content)
	rename(t, path+".new", path)
}

func rename(t testing.TB, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// A file that is followed is read at each check, whose memory is not that of the module.
func TestChecksOfAFileTakeLittleMemory(t *testing.T) {
	const size, checks = 8 << 20, 20
	name := filepath.Join(t.TempDir(), "module.wasm")
	content := make([]byte, size)
	put := func() {
		t.Helper()
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put()
	source := host.File(name).(host.ConditionalSource)
	module, revision, err := source.FetchUnless(t.Context(), "")
	if err != nil || !bytes.Equal(module, content) || revision == "" {
		t.Fatalf("FetchUnless returned %d bytes, revision %q, %v", len(module), revision, err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range checks {
		if module, current, err := source.FetchUnless(t.Context(), revision); err != nil || module != nil || current != revision {
			t.Fatalf("FetchUnless of the same file returned %d bytes, revision %q, %v", len(module), current, err)
		}
	}
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) / checks; took > 16<<10 {
		t.Errorf("a check allocates %d bytes for a file of %d", took, size)
	}
	content[size/2]++
	put()
	module, changed, err := source.FetchUnless(t.Context(), revision)
	if err != nil || !bytes.Equal(module, content) || changed == revision {
		t.Errorf("FetchUnless of another file of the same size returned %d bytes, revision %q, was %q, %v", len(module), changed, revision, err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if module, _, err := source.FetchUnless(t.Context(), changed); !errors.Is(err, os.ErrNotExist) || module != nil {
		t.Errorf("FetchUnless of a file that is gone returned %d bytes, %v", len(module), err)
	}
}
