package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/replay"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// recorded records calls of a guest, and returns its file, that of a version with another
// reason and another verdict, and the recording.
func recorded(t *testing.T) (old, changed, recorded string) {
	t.Helper()
	dir := t.TempDir()
	recorded = filepath.Join(dir, "recording")
	module, err := os.ReadFile("../../host/testdata/good.wasm")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	p, err := rt.Load(t.Context(), host.Config{
		Name: "good", Module: host.ModuleConfig{Bytes: module}, GuestConfig: []byte(`{"zone": "a"}`), Record: &record.Config{Path: recorded},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(10) {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, n); err != nil {
			t.Fatal(err)
		}
		inst.Release()
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	write := func(name string, module []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, module, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("old.wasm", module), write("new.wasm", bytes.Replace(module, []byte("node is odd"), []byte("node is old"), 1)), recorded
}

func TestReplay(t *testing.T) {
	old, changed, recorded := recorded(t)
	t.Run("the same module reproduces everything", func(t *testing.T) {
		code, out, stderr := kubewasm(t, "replay", recorded, old)
		if code != 0 || !strings.HasPrefix(out, "10 calls repeated: 10 exactly as recorded, 0 differ\n") {
			t.Errorf("exit code %d: %s%s", code, out, stderr)
		}
	})
	t.Run("another module was not recorded", func(t *testing.T) {
		code, out, stderr := kubewasm(t, "replay", recorded, changed)
		if code != 1 || !strings.Contains(stderr, "has no calls of the module") {
			t.Errorf("exit code %d: %s%s", code, out, stderr)
		}
	})
	t.Run("another version gives another reason", func(t *testing.T) {
		code, out, stderr := kubewasm(t, "replay", "--diff", recorded, old, changed)
		if code != 2 || !strings.Contains(out, "10 calls, 5 answered differently\n") ||
			!strings.Contains(out, "reason: filter of plugin \"good\": 5 calls\n") ||
			!strings.Contains(out, "  - denied: node is odd\n  + denied: node is old\n") {
			t.Errorf("exit code %d: %s%s", code, out, stderr)
		}
	})
	t.Run("a version does not differ from itself", func(t *testing.T) {
		if code, out, stderr := kubewasm(t, "replay", "--diff", recorded, old, old); code != 0 {
			t.Errorf("exit code %d: %s%s", code, out, stderr)
		}
	})
	t.Run("JSON", func(t *testing.T) {
		code, out, _ := kubewasm(t, "replay", "--diff", "-o", "json", recorded, old, changed)
		var c replay.Comparison
		if err := json.Unmarshal([]byte(out), &c); err != nil || code != 2 {
			t.Fatal(code, err, out)
		}
		if len(c.Groups) != 1 || c.Groups[0].Class != replay.Reason || c.Groups[0].Calls != 5 || c.Old.Fuel != c.New.Fuel || c.Old.Fuel == 0 {
			t.Errorf("got %s", out)
		}
	})
	t.Run("JUnit", func(t *testing.T) {
		_, out, _ := kubewasm(t, "replay", "--diff", "-o", "junit", recorded, old, changed)
		var suite struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
		}
		if err := xml.Unmarshal([]byte(out), &suite); err != nil {
			t.Fatal(err)
		}
		if suite.Tests != 1 || suite.Failures != 1 {
			t.Errorf("got %s", out)
		}
	})
	t.Run("a torn file is told", func(t *testing.T) {
		files, err := filepath.Glob(filepath.Join(recorded, "*.kwrec"))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(files[0], info.Size()-3); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{recorded, old}, {"--diff", recorded, old, old}} {
			code, out, stderr := kubewasm(t, append([]string{"replay"}, args...)...)
			if code != 1 || !strings.HasPrefix(out, "9 calls") || !strings.Contains(out, "damaged: ") || !strings.Contains(stderr, "torn frame") {
				t.Errorf("%v: exit code %d: %s%s", args, code, out, stderr)
			}
			for format, want := range map[string]string{"json": `"damaged": [`, "yaml": "damaged:", "junit": `type="damaged"`} {
				code, out, stderr := kubewasm(t, append([]string{"replay", "-o", format}, args...)...)
				if code != 1 || !strings.Contains(out, want) {
					t.Errorf("%v in %s: exit code %d, and the output lacks %q: %s%s", args, format, code, want, out, stderr)
				}
			}
		}
		if code, out, stderr := kubewasm(t, "replay", "--damaged", recorded, old); code != 0 || !strings.Contains(out, "damaged: ") {
			t.Errorf("--damaged: exit code %d: %s%s", code, out, stderr)
		}
		if code, out, stderr := kubewasm(t, "replay", "--diff", recorded, old, changed); code != 2 {
			t.Errorf("differences: exit code %d: %s%s", code, out, stderr)
		}
	})
	for _, args := range [][]string{{recorded}, {"--diff", recorded, old}, {"-o", "xml", recorded, old}, {"--plugin", "good", recorded, old}, {filepath.Join(recorded, "none"), old}} {
		if code, _, stderr := kubewasm(t, append([]string{"replay"}, args...)...); code != 1 || stderr == "" {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
