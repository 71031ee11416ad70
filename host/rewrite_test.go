package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

var rewriteOptions = wasmbin.Options{
	Meter: true, Fuel: fuelSlice, StackBytes: int32(DefaultLimits().StackBytes), LimitComplexity: true, MaxMemoryPages: 16, MaxTableElements: maxTableElements, RefuseUnsafe: true,
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
	const want = "8 f278885c0189e343"
	if got := string(rune('0'+rewritingVersion)) + " " + hex.EncodeToString(h.Sum(nil)[:8]); got != want {
		t.Errorf("version and sum of rewritten modules are %q, want %q", got, want)
	}
}
