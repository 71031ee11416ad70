package host_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

func newRuntime(t testing.TB) *host.Runtime {
	t.Helper()
	return runtimeOf(t, host.RuntimeConfig{})
}

func runtimeOf(t testing.TB, cfg host.RuntimeConfig) *host.Runtime {
	t.Helper()
	rt, err := host.NewRuntime(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func testdata(name string) host.Source { return host.File(filepath.Join("testdata", name+".wasm")) }

// guest is a plugin with the adapter that a test is to it.
type guest struct {
	host.Config
	host.Adapter
}

func (g guest) load(ctx context.Context, rt *host.Runtime) (*host.Plugin, error) {
	return rt.Load(ctx, g.Config, g.Adapter)
}

func config(name string) guest {
	return guest{
		host.Config{Name: name, Module: host.ModuleConfig{Source: testdata(name)}, Limits: host.Limits{Instances: 2, Timeout: time.Minute}},
		host.Adapter{Kind: abi.KindScheduler},
	}
}

func load(t testing.TB, cfg guest) *host.Plugin {
	t.Helper()
	return loadIn(t, newRuntime(t), cfg)
}

// loadGo loads a program in Go, of which another test has often compiled the megabytes.
func loadGo(t testing.TB, cfg guest) *host.Plugin {
	t.Helper()
	return loadIn(t, runtimeOf(t, compiled.Config()), cfg)
}

func loadIn(t testing.TB, rt *host.Runtime, cfg guest) *host.Plugin {
	t.Helper()
	p, err := cfg.load(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func acquire(t testing.TB, p *host.Plugin) *host.Instance {
	t.Helper()
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return inst
}

func TestCall(t *testing.T) {
	var log strings.Builder
	cfg := config("good")
	cfg.GuestConfig = []byte(`{"zone": "a"}`)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	p := load(t, cfg)
	if got, want := p.Functions(), abi.MaskOf(abi.Filter, abi.Configure); got != want {
		t.Errorf("functions are %s, want %s", got, want)
	}
	inst := acquire(t, p)
	defer inst.Release()

	type result struct {
		Code   abi.Code
		Reason string
	}
	var got []result
	for node := range uint64(3) {
		code, err := inst.Call(t.Context(), abi.Filter, 0, 0, node)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, result{abi.Code(int32(code)), inst.Reason()})
	}
	// The reason of one call is gone in the next.
	want := []result{{abi.Success, ""}, {abi.Unschedulable, "node is odd"}, {abi.Success, ""}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if _, line, _ := strings.Cut(log.String(), "\n"); line != "level=WARN msg=filtering plugin=good function=filter\n" {
		t.Errorf("the line after that of the load is %q", line)
	}
}

// TestModulesThatServeAreLogged holds that each module that begins to serve has one line, and that none
// has a line that does not, or did before.
func TestModulesThatServeAreLogged(t *testing.T) {
	host.InProcess(t, "the log names the isolation")
	var log strings.Builder
	cfg := config("good")
	cfg.GuestConfig = []byte(`{"zone": "a"}`)
	cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "duration" && a.Value.Kind() == slog.KindDuration {
				return slog.Attr{}
			}
			return a
		},
	}))
	p := load(t, cfg)
	first := p.Digest()
	if err := p.Swap(t.Context(), testdata("noop"), ""); err == nil {
		t.Fatal("a module with other functions is taken")
	}
	if err := p.Swap(t.Context(), cfg.Module.Source, ""); err != nil {
		t.Fatal(err)
	}
	module, err := cfg.Module.Source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := host.Fetched(host.File("other.wasm"), append(slices.Clone(module), "\x00\x03\x01x-"...)) // A custom section.
	if err := p.Swap(t.Context(), other, ""); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("level=INFO msg=\"loaded the module\" plugin=good digest=%s reference=%s\n"+
		"level=INFO msg=\"swapped the module\" plugin=good digest=%s reference=%s\n", first, cfg.Module.Source, p.Digest(), other)
	if diff := cmp.Diff(want, log.String()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestCallOfWhatTheGuestDoesNotImplement(t *testing.T) {
	inst := acquire(t, load(t, config("noop")))
	defer inst.Release()
	_, err := inst.Call(t.Context(), abi.Score)
	if err == nil || err.Error() != `plugin "noop": call score: the guest does not implement it` {
		t.Errorf("got %v", err)
	}
}

func TestLoad(t *testing.T) {
	tests := map[string]struct {
		module string
		bytes  []byte
		edit   func(*guest)
		want   string // A part of the error; empty means none.
	}{
		"command that exits with 0":        {module: "command"},
		"guest refuses its configuration":  {module: "good", edit: func(c *guest) { c.GuestConfig = []byte(strings.Repeat("x", 65)) }, want: `plugin "test": configure returned Error: ` + strings.Repeat("x", 65)},
		"command that exits with 7":        {module: "startfails", want: `plugin "test": _start trapped: module closed with exit_code(7)`},
		"start section traps":              {module: "startsection", want: `plugin "test": start trapped: start function[1] export["kubewasm_abi_v1"] failed: wasm error: unreachable`},
		"start section that never ends":    {module: "startloops", edit: func(c *guest) { c.Limits.Fuel, c.Limits.Timeout = 10_000_000, time.Hour }, want: "out of fuel: 10000000 instructions"},
		"_initialize that never ends":      {module: "initloops", edit: func(c *guest) { c.Limits.Timeout = 20 * time.Millisecond }, want: `plugin "test": _initialize trapped: timeout of 20ms: context deadline exceeded`},
		"name of the meter":                {module: "reserved", want: `reserved`},
		"no module at all":                 {bytes: []byte("#!/bin/sh"), want: `plugin "test": load module: decode wasm: `},
		"empty":                            {bytes: []byte{}, want: `plugin "test": load module: decode wasm: `},
		"cut in the middle":                {bytes: []byte("\x00asm\x01\x00\x00\x00\x01\x7f"), want: `plugin "test": load module: `},
		"no marker":                        {module: "nomarker", want: `plugin "test": export "kubewasm_abi_v1" is missing, want () -> i64` + "\n" + `plugin "test": export "memory" is missing, want a memory`},
		"marker of the wrong type":         {module: "wrongmarker", want: `plugin "test": export "kubewasm_abi_v1" is () -> i32, want () -> i64` + "\n" + `plugin "test": export "_initialize" is (i32) -> (), want () -> ()`},
		"exports missing or wrong":         {module: "wrongexports", want: `plugin "test": export "filter" is (i32) -> i32, want (i64, i64, i64[, i64]) -> i32` + "\n" + `plugin "test": export "score" is missing, want (i64, i64, i64[, i64]) -> i64`},
		"function of a later ABI":          {module: "unknownfunction", want: "the guest implements function(62), unknown to this version of the ABI"},
		"guest for another component":      {module: "admission", want: "the guest implements no scheduler function, only: validate"},
		"imports missing or wrong":         {module: "badimports", want: `plugin "test": import env.system is not provided by this host` + "\n" + `plugin "test": import kubewasm.config is (i32) -> i32, want (i32, i32) -> i32`},
		"imported memory":                  {module: "importsmemory", want: `plugin "test": import env.memory is not provided by this host`},
		"unknown WASI function":            {module: "unknownwasi", want: "launch_missiles"},
		"more memory than the limit":       {module: "bigmemory", want: "16384"},
		"more memory, and a higher limit":  {module: "bigmemory", edit: func(c *guest) { c.Limits.MemoryBytes = 1 << 30 }},
		"file is missing":                  {module: "absent", want: "absent.wasm: no such file"},
		"digest of another module":         {module: "noop", edit: func(c *guest) { c.Module.SHA256 = strings.Repeat("0", 64) }, want: "want " + strings.Repeat("0", 64)},
		"digest is checked before parsing": {bytes: []byte("junk"), edit: func(c *guest) { c.Module.SHA256 = strings.Repeat("A", 64) }, want: "sha256 of the module is "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			rt := newRuntime(t)
			cfg := config(test.module)
			cfg.Name = "test"
			if test.bytes != nil {
				cfg.Module.Source = host.Bytes(test.bytes)
			}
			if test.edit != nil {
				test.edit(&cfg)
			}
			_, err := cfg.load(t.Context(), rt)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error:\n%v\nwant a part of it:\n%s", err, test.want)
			}
		})
	}
}

func TestLoadErrorsAreTyped(t *testing.T) {
	load := func(edit func(*guest)) error {
		cfg := config("noop")
		edit(&cfg)
		_, err := cfg.load(t.Context(), newRuntime(t))
		return err
	}
	as := func(target any) func(error) bool { return func(err error) bool { return errors.As(err, target) } }
	tests := map[string]struct {
		edit func(*guest)
		is   func(error) bool
	}{
		"digest":    {func(c *guest) { c.Module.SHA256 = strings.Repeat("0", 64) }, as(new(*host.DigestError))},
		"module":    {func(c *guest) { c.Module.Source = host.Bytes(nil) }, as(new(*host.ModuleError))},
		"export":    {func(c *guest) { c.Module.Source = testdata("nomarker") }, as(new(*host.ExportError))},
		"import":    {func(c *guest) { c.Module.Source = testdata("badimports") }, as(new(*host.ImportError))},
		"trap":      {func(c *guest) { c.Module.Source = testdata("startfails") }, as(new(*host.TrapError))},
		"exit code": {func(c *guest) { c.Module.Source = testdata("startfails") }, as(new(*sys.ExitError))},
		"status":    {func(c *guest) { c.Module.Source, c.GuestConfig = testdata("good"), make([]byte, 65) }, as(new(*host.StatusError))},
		"file":      {func(c *guest) { c.Module.Source = host.File("absent") }, func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := load(test.edit); !test.is(err) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

func TestLoadWithTheRightDigest(t *testing.T) {
	module, err := os.ReadFile("testdata/noop.wasm")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(module)
	cfg := config("noop")
	cfg.Module.SHA256 = strings.ToUpper(hex.EncodeToString(sum[:]))
	load(t, cfg)
}

func TestConfigReportsEveryMistake(t *testing.T) {
	_, err := newRuntime(t).Load(t.Context(), host.Config{
		Module: host.ModuleConfig{SHA256: "abc"},
		Limits: host.Limits{MemoryBytes: 1, Instances: -1, OutputBytes: -1, ResultBytes: -1},
	}, host.Adapter{})
	if err == nil {
		t.Fatal("no error")
	}
	want := `plugin "": configuration: name is empty
module is missing: set one of file, https, oci, configMap, secret and bytes
module.sha256 "abc" is not 64 hexadecimal digits
limits.memoryBytes is 1, less than one page of 65536
limits.instances is -1, less than 0
limits.outputBytes is -1, less than 0
limits.resultBytes is -1, less than 0
kind is missing`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

func TestStackNamesFunctionsOfRustByTheirPaths(t *testing.T) {
	inst := acquire(t, load(t, config("rustnames")))
	defer inst.Release()
	_, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0)
	var trap *host.TrapError
	if !errors.As(err, &trap) {
		t.Fatalf("got %T %v", err, err)
	}
	want := strings.Join([]string{
		"zone.wasm.<zone::Zone as kubewasm::sched::Filter>::filter() i32",
		"zone.wasm.zone::Zone::check(i64) i32",
		"zone.wasm._ZN4zone6filterE(i64,i64,i64) i32",
	}, "\n")
	if diff := cmp.Diff(want, trap.Stack); diff != "" {
		t.Errorf("stack (-want +got):\n%s", diff)
	}
}

func TestTraps(t *testing.T) {
	tests := []struct {
		name   string
		how    uint64
		reason string
		stack  string
		is     func(error) bool
	}{
		{name: "unreachable", how: 1, reason: "wasm error: unreachable", stack: ".fail(i64,i64,i64) i32"},
		{name: "exit", how: 2, reason: "module closed with exit_code(3)", is: func(err error) bool { return errors.As(err, new(*sys.ExitError)) }},
		{name: "endless recursion", how: 3, reason: "out of stack: 16777216 bytes"},
		{name: "load beyond the memory", how: 4, reason: "wasm error: out of bounds memory access"},
		{name: "division by zero", how: 5, reason: "wasm error: integer divide by zero"},
		{name: "call of a null function", how: 6, reason: "wasm error: invalid table access"},
		{name: "read into a buffer that ends beyond the memory", how: 7, reason: "call kubewasm.config: bytes [65530, 65630) are out of bounds of the guest's memory of 65536 bytes"},
		{name: "read into a buffer that wraps round", how: 8, reason: "call kubewasm.config: bytes [4294967295, 8589934590) are out of bounds"},
		{name: "reason beyond the memory", how: 9, reason: "call kubewasm.status_reason: bytes [65530, 65630) are out of bounds"},
		{name: "reason of 4 GiB", how: 10, reason: "call kubewasm.status_reason: 4294967295 bytes are more than the limit of 8388608"},
		{name: "log that wraps round", how: 11, reason: "call kubewasm.log: bytes [4294967288, 4294967304) are out of bounds"},
		{name: "exit with 0 in the middle of a call", how: 12, reason: "module closed with exit_code(0)"},
	}
	var log strings.Builder
	cfg := config("traps")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	p := load(t, cfg)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			log.Reset()
			inst := acquire(t, p)
			_, err := inst.Call(t.Context(), abi.Filter, 0, test.how, 0)
			var trap *host.TrapError
			if !errors.As(err, &trap) {
				t.Fatalf("got %T %v", err, err)
			}
			if !strings.HasPrefix(trap.Reason, test.reason) {
				t.Errorf("reason is %q, want %q", trap.Reason, test.reason)
			}
			if want := "panic: about to fail\ngoroutine 1\n"; trap.Output != want {
				t.Errorf("output is %q, want %q", trap.Output, want)
			}
			if !strings.Contains(trap.Stack, test.stack) {
				t.Errorf("stack is\n%s\nwant a part of it: %q", trap.Stack, test.stack)
			}
			if want := `level=ERROR msg="the guest trapped" plugin=traps function=filter reason=`; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), test.stack) {
				t.Errorf("log is\n%s\nwant a line with %q and the stack", log.String(), want)
			}
			if want := `plugin "traps": filter trapped: ` + trap.Reason + ": panic: about to fail"; err.Error() != want {
				t.Errorf("error is\n%q, want\n%q", err, want)
			}
			if test.is != nil && !test.is(err) {
				t.Errorf("%v does not wrap what it should", err)
			}
			if test.how >= 7 && test.how <= 11 && !errors.As(err, new(*host.ABIError)) {
				t.Errorf("%v is no ABIError", err)
			}

			// What trapped is reset before it runs again.
			if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
				t.Errorf("the next call of the same instance: %v", err)
			}
			inst.Release()
			again := acquire(t, p)
			defer again.Release()
			if _, err := again.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

func TestFrames(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	tests := map[string]struct {
		stack string
		n     int
		want  string
	}{
		"no stack":          {"", 2, ""},
		"no frames":         {"a\nb", 0, ""},
		"fewer than wanted": {"a\nb", 3, "a\nb"},
		"as many":           {"a\nb", 2, "a\nb"},
		"more":              {"a\nb\nc", 2, "a\nb"},
		"a long name":       {long + "\nb", 2, long[:512]},
	}
	for name, test := range tests {
		if got := (&host.TrapError{Stack: test.stack}).Frames(test.n); got != test.want {
			t.Errorf("%s: got %.600q, want %.600q", name, got, test.want)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	cfg := config("grows")
	cfg.Limits.MemoryBytes = 1<<20 + 1 // Rounded down to 16 pages.
	inst := acquire(t, load(t, cfg))
	defer inst.Release()
	pages, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if pages != 16 {
		t.Errorf("the guest got %d pages, want 16", pages)
	}
}

func TestOutputIsCut(t *testing.T) {
	cfg := config("traps")
	cfg.Limits.OutputBytes = 8
	inst := acquire(t, load(t, cfg))
	defer inst.Release()
	_, err := inst.Call(t.Context(), abi.Filter, 0, 1, 0)
	var trap *host.TrapError
	if !errors.As(err, &trap) || trap.Output != "panic: a" {
		t.Errorf("got %#v", err)
	}
}

// TestHostFunctionPanics holds that a bug in a host function does not take the
// process down.
func TestHostFunctionPanics(t *testing.T) {
	cfg := config("waits")
	cfg.Imports = []host.Import{{
		Module: "test", Name: "wait", Results: []abi.ValueType{abi.I32},
		Func: func(_ *host.Instance, stack []uint64) { _ = stack[:0:0][len(stack)] },
	}}
	inst := acquire(t, load(t, cfg))
	defer inst.Release()
	_, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0)
	var trap *host.TrapError
	if !errors.As(err, &trap) || !strings.Contains(trap.Reason, "index out of range") {
		t.Errorf("got %v", err)
	}
}

func TestStateBelongsToAnInstance(t *testing.T) {
	made := 0
	cfg := config("noop")
	cfg.NewState = func() any { made++; return &made }
	p := load(t, cfg)
	a, b := acquire(t, p), acquire(t, p)
	defer a.Release()
	defer b.Release()
	if made != 2 || a.State() != any(&made) {
		t.Errorf("%d states made, want 2", made)
	}
}

func TestCallDoesNotAllocate(t *testing.T) {
	p := load(t, config("noop"))
	ctx := t.Context()
	n := testing.AllocsPerRun(1000, func() {
		inst, err := p.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inst.Call(ctx, abi.Filter, 1, 2, 3); err != nil {
			t.Fatal(err)
		}
		inst.Release()
	})
	if n != 0 {
		t.Errorf("%v allocations for a call, want 0", n)
	}
}

func TestCacheDirMustBePrivate(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := host.NewRuntime(host.RuntimeConfig{CacheDir: dir}); err == nil || !strings.Contains(err.Error(), "has mode 0777: others can write to it") {
		t.Errorf("got %v", err)
	}
}

func TestCacheDirIsFilledAndUsed(t *testing.T) {
	host.InProcess(t, "the process of the guest compiles, and its parent keeps the code in memory")
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("wazero does not compile for " + runtime.GOARCH)
	}
	dir := filepath.Join(t.TempDir(), "a", "cache")
	for range 2 {
		rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config("noop").load(t.Context(), rt); err != nil {
			t.Fatal(err)
		}
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	files := 0
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files++
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files in the cache, error %v", files, err)
	}
}
