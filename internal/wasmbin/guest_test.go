package wasmbin

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"
)

var goGuestOnce struct {
	sync.Once
	bin []byte
	err error
}

// goGuest builds testdata/jsonguest as a reactor of standard Go, once for all
// tests.
func goGuest(t testing.TB) []byte {
	t.Helper()
	goGuestOnce.Do(func() {
		file := filepath.Join(t.TempDir(), "guest.wasm")
		cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", file, "./testdata/jsonguest")
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		if out, err := cmd.CombinedOutput(); err != nil {
			goGuestOnce.err = err
			t.Logf("%s", out)
			return
		}
		goGuestOnce.bin, goGuestOnce.err = os.ReadFile(file)
	})
	if goGuestOnce.err != nil {
		t.Fatalf("build the guest: %v", goGuestOnce.err)
	}
	return goGuestOnce.bin
}

func TestStandardGoGuestRunsTheSameRewritten(t *testing.T) {
	guest := goGuest(t)
	bin, info := rewriteFor(t, guest, Options{Meter: true, MaxMemoryPages: 1024})
	t.Logf("%d bytes, rewritten %d; %d functions, %d bytes of code; globals %v", len(guest), len(bin), info.Functions, info.CodeSize, info.Globals)
	plain := instance(t, wazero.NewRuntimeConfigCompiler(), guest)
	rewritten := instance(t, wazero.NewRuntimeConfigCompiler(), bin)
	for _, call := range []struct {
		fn string
		n  uint64
	}{{"work", 3}, {"hash", 100}, {"sorted", 1000}} {
		want, err := plain.ExportedFunction(call.fn).Call(t.Context(), call.n)
		if err != nil {
			t.Fatal(err)
		}
		got, err := rewritten.ExportedFunction(call.fn).Call(t.Context(), call.n)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, plain -, rewritten +\n%s", call.fn, err, diff)
		}
	}
}

func TestStandardGoGuestSpendsTheSameFuelEverywhere(t *testing.T) {
	bin, _ := rewriteFor(t, goGuest(t), Options{Meter: true})
	spent := map[string]int64{}
	for engine, config := range engines {
		mod := instance(t, config(), bin)
		fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
		fuel.Set(1 << 50)
		if _, err := mod.ExportedFunction("hash").Call(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		spent[engine] = 1<<50 - int64(fuel.Get())
	}
	if spent["compiler"] != spent["interpreter"] || spent["compiler"] <= 0 {
		t.Errorf("spent %v", spent)
	}
}

func TestStandardGoGuestIsRestoredFromMemoryAndGlobals(t *testing.T) {
	bin, info := rewriteFor(t, goGuest(t), Options{Meter: true})
	mod := instance(t, wazero.NewRuntimeConfigCompiler(), bin)
	memory, _ := mod.Memory().Read(0, mod.Memory().Size())
	memory = bytes.Clone(memory)
	globals := make([]uint64, len(info.Globals))
	for i, g := range info.Globals {
		globals[i] = mod.ExportedGlobal(g.Name).Get()
	}
	var first []uint64
	for round := range 3 {
		got, err := mod.ExportedFunction("sorted").Call(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		if diff := cmp.Diff(first, got); diff != "" {
			t.Errorf("round %d: %s", round, diff)
		}
		if _, err := mod.ExportedFunction("fail").Call(t.Context(), 3); err == nil {
			t.Fatal("fail succeeded")
		}
		now, _ := mod.Memory().Read(0, mod.Memory().Size())
		clear(now[copy(now, memory):])
		for i, g := range info.Globals {
			mod.ExportedGlobal(g.Name).(api.MutableGlobal).Set(globals[i])
		}
	}
}

func TestStandardGoGuestKeepsItsNames(t *testing.T) {
	bin, _ := rewriteFor(t, goGuest(t), Options{Meter: true})
	_, err := instance(t, wazero.NewRuntimeConfigCompiler(), bin).ExportedFunction("fail").Call(t.Context(), 3)
	if err == nil || !strings.Contains(err.Error(), ".runtime.gopanic(") || !strings.Contains(err.Error(), ".main.fail(") {
		t.Errorf("fail: %v, want a trace with runtime.gopanic and main.fail", err)
	}
}

// tinyGoGuest is a guest of TinyGo that wazero benchmarks itself with.
func tinyGoGuest(t testing.TB) []byte {
	t.Helper()
	dir, err := wazeroDir()
	if err != nil {
		t.Fatalf("find the module of wazero: %v", err)
	}
	bin, err := os.ReadFile(filepath.Join(dir, "internal", "integration_test", "bench", "testdata", "case.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestGuestsOfOtherToolchains rewrites the guests in wazero's module that are
// not of the specification suite: of TinyGo, Rust, C, C++, Zig, AssemblyScript,
// and what its fuzzers found.
func TestGuestsOfOtherToolchains(t *testing.T) {
	dir, err := wazeroDir()
	if err != nil {
		t.Fatalf("find the module of wazero: %v", err)
	}
	files := 0
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".wasm" || strings.Contains(path, "spectest") {
			return err
		}
		files++
		guest, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		plainOK, plainErr := accepts(guest)
		bin, _, err := Rewrite(guest, Options{Meter: true})
		if err != nil {
			if plainOK {
				t.Errorf("%s: %v", path, err)
			}
			return nil
		}
		if ok, err := accepts(bin); ok != plainOK {
			t.Errorf("%s: plain %v, rewritten %v", path, plainErr, err)
		}
		return nil
	})
	if err != nil || files == 0 {
		t.Fatalf("%d guests, %v", files, err)
	}
	t.Logf("%d guests", files)
}

func TestCommandsOfOtherToolchainsPrintTheSameRewritten(t *testing.T) {
	dir, err := wazeroDir()
	if err != nil {
		t.Fatalf("find the module of wazero: %v", err)
	}
	text := strings.Repeat("what cat reads, it writes\n", 1000)
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, toolchain := range []string{"cargo-wasi", "tinygo", "zig", "zig-cc"} {
		t.Run(toolchain, func(t *testing.T) {
			guest, err := os.ReadFile(filepath.Join(dir, "imports", "wasi_snapshot_preview1", "example", "testdata", toolchain, "cat.wasm"))
			if err != nil {
				t.Fatal(err)
			}
			bin, _ := rewriteFor(t, guest, Options{Meter: true, MaxMemoryPages: 1024})
			ctx := t.Context()
			r := wazero.NewRuntime(ctx)
			defer func() { _ = r.Close(ctx) }()
			wasi_snapshot_preview1.MustInstantiate(ctx, r)
			yields := 0
			instantiateMeter(t, r, func(_ api.Module, fuel api.MutableGlobal) {
				yields++
				fuel.Set(1000)
			})
			var out bytes.Buffer
			config := wazero.NewModuleConfig().WithArgs("cat", "text").WithStdout(&out).
				WithFSConfig(wazero.NewFSConfig().WithDirMount(filepath.Dir(file), "/"))
			_, err = r.InstantiateWithConfig(ctx, bin, config)
			var exit *sys.ExitError
			if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 0) {
				t.Fatal(err)
			}
			if out.String() != text || yields == 0 {
				t.Errorf("printed %d bytes, want %d; %d yields", out.Len(), len(text), yields)
			}
		})
	}
}
