package guestbuild

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// TestStacksInC holds that the stack of a trap has the names of functions, that of a debug build
// those of small ones, too, and that the text of an assertion is in the error.
func TestStacksInC(t *testing.T) {
	dir := writeFiles(t, map[string]string{"main.c": `#include <kubewasm.h>
KW_PLUGIN("stacks", "1.0.0", "scheduler")
static int divided_by(kw_str s) { KW_ASSERT(s.n != 0); return (int)(100 / s.n); }
KW_FILTER(cycle, pod, node) { (void)cycle, (void)pod, (void)node; return (kw_result)divided_by(kw_str_of_c("")); }
`})
	for _, debug := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "guest.wasm")
		_, err := Compile(t.Context(), Config{Dir: dir, Output: file, Debug: debug})
		if missing := (*MissingToolError)(nil); errors.As(err, &missing) && os.Getenv("CI") == "" {
			t.Skip(missing)
		}
		if err != nil {
			t.Fatal(err)
		}
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(context.Background())
		p, err := rt.Load(t.Context(), host.Config{Name: "stacks", Source: host.File(file)}, host.Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		_, err = inst.Call(t.Context(), abi.Filter, 1, 2, 3)
		var trap *host.TrapError
		if !errors.As(err, &trap) || !strings.Contains(err.Error(), "main.c:3: assertion failed: s.n != 0") {
			t.Fatalf("got %v", err)
		}
		want := "kw_export_filter"
		if debug {
			want = "divided_by"
		}
		if !strings.Contains(trap.Frames(8), want) {
			t.Errorf("debug %t: no %s in\n%s", debug, want, trap.Frames(8))
		}
	}
}
