package host_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// The exports of testdata/dialect.wat, in the order of exampleDialect.
const (
	started = iota
	alloc
	eval
	again
	spin
	trap
	missing
)

// exampleDialect is served to guests that import env.builtin, which takes what
// to do and a number.
func exampleDialect() host.Dialect {
	i32 := []abi.ValueType{abi.I32}
	return host.Dialect{
		Name:   "example",
		Detect: func(m *host.Module) bool { return m.Import("env", "builtin") == "(i32, i32) -> i32" },
		Exports: []host.Export{
			started: {Name: "started", Results: i32},
			alloc:   {Name: "alloc", Params: i32, Results: i32},
			eval:    {Name: "eval", Params: slices.Repeat(i32, 7), Results: i32},
			again:   {Name: "again", Params: i32, Results: i32},
			spin:    {Name: "spin"},
			trap:    {Name: "trap"},
			missing: {Name: "missing", Optional: true},
		},
		Start:        []string{"absent", "first", "second"},
		DefineMemory: true,
		Imports: []host.Import{{
			Module: "env", Name: "builtin", Params: []abi.ValueType{abi.I32, abi.I32}, Results: i32, Grant: "builtins",
			Func: func(inst *host.Instance, stack []uint64) {
				switch stack[0] {
				case 1: // Put the number into new memory, and return it from there.
					at := uint32(inst.Dialect().Invoke(alloc, 4))
					if err := inst.Dialect().Put(at, binary.LittleEndian.AppendUint32(nil, uint32(stack[1]))); err != nil {
						inst.Abort(err)
					}
					stack[0] = uint64(binary.LittleEndian.Uint32(inst.Dialect().Memory()[at:]))
				case 2:
					stack[0] = inst.Dialect().Invoke(again, stack[1])
				case 3: // Work that costs as much fuel as the number, in parts.
					for n := range stack[1] {
						inst.Spend(1)
						stack[0] = n
					}
				case 4: // And at once.
					inst.Spend(int64(stack[1]) << 33)
				}
			},
		}},
		Defaults: host.Limits{MemoryBytes: 1 << 20, Fuel: 1_000_000, Timeout: time.Second},
	}
}

func dialectConfig() guest {
	cfg := config("dialect")
	cfg.Grants = []string{"builtins"}
	cfg.Dialects = []host.Dialect{exampleDialect()}
	cfg.Limits.Timeout = 0 // The dialect has a default.
	return cfg
}

func TestDialect(t *testing.T) {
	p := load(t, dialectConfig())
	if got := p.Dialect(); got != "example" {
		t.Errorf("the dialect is %q", got)
	}
	if got := p.Functions(); got != 0 {
		t.Errorf("functions %s", got)
	}
	inst := acquire(t, p)
	defer inst.Release()
	if got, err := inst.Dialect().CallExport(t.Context(), started); err != nil || got != 10 {
		t.Errorf("started with %d, error %v, want 10", got, err)
	}
	if got, err := inst.Dialect().CallExport(t.Context(), eval, 1, 2, 3, 4, 5, 6, 7); err != nil || got != 12 {
		t.Errorf("eval: got %d, error %v, want 12", got, err)
	}
	want := host.Limits{MemoryBytes: 1 << 20, Fuel: 1_000_000, Timeout: time.Second, Instances: 2}
	got := inst.Limits()
	got.BuildTimeout, got.StackBytes, got.OutputBytes, got.ResultBytes, got.LogBytes, got.KeptBytes, got.HeldInstances = 0, 0, 0, 0, 0, 0, 0
	got.StateEntries, got.StateBytes = 0, 0
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	for name, call := range map[string]func() (uint64, error){
		"an export that is not there": func() (uint64, error) { return inst.Dialect().CallExport(t.Context(), missing) },
		"an export beyond the last":   func() (uint64, error) { return inst.Dialect().CallExport(t.Context(), missing+1) },
		"too few arguments":           func() (uint64, error) { return inst.Dialect().CallExport(t.Context(), alloc) },
		"a function of our ABI":       func() (uint64, error) { return inst.Call(t.Context(), abi.Filter, 0, 0, 0) },
		"a program that it is not":    func() (uint64, error) { _, err := inst.Dialect().Run(t.Context(), nil, nil); return 0, err },
	} {
		if _, err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// recorder is an observer that keeps the calls.
type recorder struct{ calls []host.CallEvent }

func (r *recorder) Called(_ context.Context, c host.CallEvent) { r.calls = append(r.calls, c) }
func (r *recorder) Refused(context.Context, string, error)     {}
func (r *recorder) Built(context.Context, host.BuildEvent)     {}
func (r *recorder) Restarted(plugin string, replaced bool)     {}

func TestSessionIsOneCall(t *testing.T) {
	cfg := dialectConfig()
	cfg.Limits.Timeout = time.Minute
	observer := &recorder{}
	cfg.Observer = observer
	p := load(t, cfg)
	inst := acquire(t, p)
	defer inst.Release()
	observer.calls = nil
	var sum uint64
	err := inst.Dialect().Do(t.Context(), "evaluate", func() error {
		for range 3 {
			at := inst.Dialect().Invoke(alloc, 8)
			sum += inst.Dialect().Invoke(eval, at, 0, 0, 1, 0, 0, 1) - at
		}
		return nil
	})
	if err != nil || sum != 6 {
		t.Errorf("got %d, error %v", sum, err)
	}
	if len(observer.calls) != 1 || observer.calls[0].Function != "evaluate" || observer.calls[0].Fuel < 500 {
		t.Errorf("observed %+v, want one call of evaluate", observer.calls)
	}
	mine := errors.New("not the guest's fault")
	if err := inst.Dialect().Do(t.Context(), "evaluate", func() error { return mine }); err != mine {
		t.Errorf("got %v, want %v", err, mine)
	}
	// All invocations share one budget.
	limit := inst.Limits().Fuel
	err = inst.Dialect().Do(t.Context(), "evaluate", func() error {
		for {
			inst.Dialect().Invoke(eval, 0, 0, 0, 0, 0, 0, 0)
		}
	})
	if !errors.Is(err, host.ErrFuel) || inst.FuelUsed() > limit+limit/100 {
		t.Errorf("got %v after %d", err, inst.FuelUsed())
	}
}

func TestDialectGuestsThatFail(t *testing.T) {
	p := load(t, dialectConfig())
	for name, test := range map[string]struct {
		run  func(inst *host.Instance) error
		want string
	}{
		"a trap": {func(inst *host.Instance) error {
			_, err := inst.Dialect().CallExport(t.Context(), trap)
			return err
		}, "trap trapped: wasm error: unreachable"},
		"a trap in a session": {func(inst *host.Instance) error {
			return inst.Dialect().Do(t.Context(), "s", func() error { inst.Dialect().Invoke(trap); return nil })
		}, "s trapped: wasm error: unreachable"},
		"a rule broken in a session": {func(inst *host.Instance) error {
			return inst.Dialect().Do(t.Context(), "s", func() error { inst.Abort(errors.New("a lie")); return nil })
		}, "a lie"},
		"a panic in a session": {func(inst *host.Instance) error {
			return inst.Dialect().Do(t.Context(), "s", func() error { panic("oh") })
		}, "panic: oh"},
		"a loop": {func(inst *host.Instance) error {
			_, err := inst.Dialect().CallExport(t.Context(), spin)
			return err
		}, "out of fuel: 1000000 instructions"},
		"guest and host that call each other without end": {func(inst *host.Instance) error {
			_, err := inst.Dialect().CallExport(t.Context(), again, 0)
			return err
		}, "call each other more than 16 times in turn"},
	} {
		t.Run(name, func(t *testing.T) {
			inst := acquire(t, p)
			err := test.run(inst)
			if !errors.As(err, new(*host.TrapError)) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			inst.Release()
			inst = acquire(t, p)
			defer inst.Release()
			if got, err := inst.Dialect().CallExport(t.Context(), eval, 1, 0, 0, 1, 0, 0, 1); err != nil || got != 3 {
				t.Errorf("afterwards: got %d, error %v", got, err)
			}
		})
	}
}

// What the host does for a guest ends where the guest's own work would.
func TestSpendEndsACall(t *testing.T) {
	tests := []struct {
		name    string
		what, n uint64
		limits  host.Limits
		cancel  bool
		want    error
	}{
		{"work that the guest can pay", 3, 500_000, host.Limits{}, false, nil},
		{"work that it cannot pay", 3, 2_000_000, host.Limits{}, false, host.ErrFuel},
		{"work beyond all limits", 4, 1 << 29, host.Limits{}, false, host.ErrFuel},
		{"less than none", 4, 1 << 30, host.Limits{}, false, nil},
		{"work for which there is no time", 3, 5_000_000, host.Limits{Fuel: 1 << 40, Timeout: time.Nanosecond}, false, context.DeadlineExceeded},
		{"work for a caller that is gone", 3, 5_000_000, host.Limits{Fuel: 1 << 40}, true, context.Canceled},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.limits.Timeout != 0 {
				host.InProcess(t, "there is no time for an instance either")
			}
			cfg := dialectConfig()
			cfg.Limits = test.limits
			inst := acquire(t, load(t, cfg))
			defer inst.Release()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := inst.Dialect().Do(ctx, "work", func() error {
				if test.cancel {
					cancel()
				}
				before := inst.FuelUsed()
				stack := []uint64{test.what, test.n}
				builtin := exampleDialect().Imports[0].Func
				if builtin(inst, stack); test.what == 3 && inst.FuelUsed()-before != int64(test.n) {
					t.Errorf("work for %d took %d", test.n, inst.FuelUsed()-before)
				}
				return nil
			})
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("error is %v, want %v", err, test.want)
			}
		})
	}
}

// Lines may be short: what is bounded is all of them, and only in one call.
func TestMayLogBoundsTheLinesOfACall(t *testing.T) {
	cfg := dialectConfig()
	cfg.Limits.OutputBytes = 1000
	var log strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	inst := acquire(t, load(t, cfg))
	defer inst.Release()
	for range 2 {
		log.Reset()
		lines := 0
		err := inst.Dialect().Do(t.Context(), "log", func() error {
			for range 100 {
				if inst.Dialect().MayLog(99) {
					lines++
				}
			}
			if inst.Dialect().MayLog(1<<62) || inst.Dialect().MayLog(0) {
				lines++
			}
			return nil
		})
		if err != nil || lines != 10 || strings.Count(log.String(), "further output is dropped") != 1 {
			t.Errorf("%d lines, want 10, error %v, log %s", lines, err, log.String())
		}
	}
}

func TestLoadOfDialects(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*guest)
		want []string
	}{
		"an export is missing and one wrong": {func(c *guest) {
			c.Dialects[0].Exports[missing].Optional = false
			c.Dialects[0].Exports[eval].Results = nil
		}, []string{`export "missing" is missing, want () -> ()`, `export "eval" is (i32, i32, i32, i32, i32, i32, i32) -> i32, want (i32, i32, i32, i32, i32, i32, i32) -> ()`}},
		"no dialect fits": {func(c *guest) {
			c.Dialects[0].Detect = func(*host.Module) bool { return false }
		}, []string{`export "kubewasm_abi_v1" is missing`, "import env.builtin is not provided by this host", "import env.memory is not provided"}},
		"an import is not granted": {func(c *guest) { c.Grants = nil }, []string{`needs the grant "builtins"`}},
		"mistakes in the dialect": {func(c *guest) {
			c.Dialects = append(c.Dialects, host.Dialect{Name: "x", Command: true, Start: []string{"a"}, Defaults: host.Limits{Fuel: -1}})
		}, []string{`dialect "x": has no name or no Detect`, "is a dialect of commands", "dialect x: defaults.fuel is -1"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := dialectConfig()
			test.edit(&cfg)
			_, err := cfg.load(t.Context(), newRuntime(t))
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}

func TestSwapToAnotherDialectIsRefused(t *testing.T) {
	cfg := dialectConfig()
	p := load(t, cfg)
	err := p.Swap(t.Context(), testdata("noop"), "")
	if err == nil || !strings.Contains(err.Error(), "the new version implements filter, but the running version example: started, alloc") {
		t.Errorf("got %v", err)
	}
}

// program builds testdata/program.
func buildProgram(t *testing.T) host.Source {
	t.Helper()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no Go toolchain")
	}
	const dir = "testdata/program"
	if _, err := os.ReadFile(filepath.Join(dir, "main.go")); err != nil { // So that go test knows.
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "program.wasm")
	cmd := exec.CommandContext(t.Context(), goCommand, "build", "-trimpath", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return host.File(file)
}

func TestProgram(t *testing.T) {
	cfg := config("program")
	cfg.Module.Source, cfg.Limits = buildProgram(t), host.Limits{Instances: 1, ResultBytes: 64 << 10}
	cfg.Dialects = []host.Dialect{{
		Name: "wasi", Command: true,
		Detect: func(m *host.Module) bool { return m.Export("_start") != "" },
	}}
	run := func(ctx context.Context, p *host.Plugin, stdin string, args ...string) (string, error) {
		inst, err := p.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		stdout, err := inst.Dialect().Run(ctx, append([]string{"policy.wasm"}, args...), []byte(stdin))
		if _, err := inst.Dialect().Run(ctx, nil, nil); err == nil {
			t.Error("an instance runs twice")
		}
		return string(stdout), err
	}
	for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetNever} {
		cfg.Reset = reset
		p := loadGo(t, cfg)
		long := strings.Repeat("x", 30_000)
		for range 3 {
			if got, err := run(t.Context(), p, "request "+long, "upper"); err != nil || got != "2 1: REQUEST "+strings.ToUpper(long) {
				t.Errorf("got %.100s, error %v", got, err)
			}
			if _, err := run(t.Context(), p, "", "exit"); err == nil || !strings.Contains(err.Error(), "exit_code(3): cannot go on") {
				t.Errorf("exit: got %v", err)
			}
			// Each run finds its streams open.
			if got, err := run(t.Context(), p, "", "close"); err != nil || got != "" {
				t.Errorf("close: got %q, error %v", got, err)
			}
			if _, err := run(t.Context(), p, "", "flood"); !errors.As(err, new(*host.ABIError)) || !strings.Contains(err.Error(), "more than the limit of 65536 bytes") {
				t.Errorf("flood: got %v", err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		inst := acquire(t, p)
		if _, err := inst.Dialect().Run(ctx, []string{"p", "loop"}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("loop: got %v", err)
		}
		inst.Release()
		cancel()
		if got, err := run(t.Context(), p, "a", "upper", "b"); err != nil || got != "3 1: A" {
			t.Errorf("afterwards: got %q, error %v", got, err)
		}
	}
}

func TestInspect(t *testing.T) {
	bin, err := os.ReadFile("testdata/dialect.wasm")
	if err != nil {
		t.Fatal(err)
	}
	custom := func(name, data string) []byte {
		return wasmSection(0, slices.Concat(wasmSized([]byte(name)), []byte(data))...)
	}
	m, err := host.Inspect(slices.Concat(bin, custom("kubewasm", "one"), custom("kubewasm", "two"),
		custom("large", strings.Repeat("x", 2<<20)), custom(".debug_info", "x"), custom("small", "s")))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{
		"function":         m.Import("env", "builtin"),
		"memory":           m.Import("env", "memory"),
		"no import":        m.Import("env", "other"),
		"export":           m.Export("alloc"),
		"no export":        m.Export("builtin"),
		"metadata":         string(m.Custom(abi.MetadataSection)),
		"large":            string(m.Custom("large")),
		"for debuggers":    string(m.Custom(".debug_info")),
		"behind the large": string(m.Custom("small")),
	}
	want := map[string]string{
		"function": "(i32, i32) -> i32", "memory": "memory", "no import": "",
		"export": "(i32) -> i32", "no export": "",
		"metadata": "one", "large": "", "for debuggers": "", "behind the large": "s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := host.Inspect([]byte("#!/bin/sh")); err == nil {
		t.Error("a script is a module")
	}
}

// A dialect looks at the bytes of each version of a module, and may refuse it.
func TestDialectInspectsModules(t *testing.T) {
	cfg := dialectConfig()
	seen := 0
	cfg.Dialects[0].Inspect = func(module []byte) (any, error) {
		if bytes.Contains(module, []byte("refuse me")) {
			return nil, errors.New("it asks for that")
		}
		seen++
		return len(module), nil
	}
	p := load(t, cfg)
	first := p.Module().Inspected()
	module, err := cfg.Module.Source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	with := func(name string) host.Source {
		return host.Bytes(slices.Concat(module, wasmSection(0, append(wasmSized([]byte(name)), 1)...)))
	}
	if err := p.Swap(t.Context(), with("other"), ""); err != nil {
		t.Fatal(err)
	}
	if second := p.Module().Inspected(); first != len(module) || second == first || seen != 2 {
		t.Errorf("inspected %v, then %v, in %d times", first, second, seen)
	}
	if err := p.Swap(t.Context(), with("refuse me"), ""); err == nil || !strings.Contains(err.Error(), "it asks for that") {
		t.Errorf("error is %v", err)
	}
}

func TestMetadataIsThatOfTheVersionThatServes(t *testing.T) {
	version := func(metadata string) host.Source {
		return host.Bytes(append(slices.Clone(goodBinary), wasmSection(0, slices.Concat([]byte("\x08kubewasm"), []byte(metadata))...)...))
	}
	cfg := config("noop")
	cfg.Module.Source = version("one")
	p := load(t, cfg)
	old := acquire(t, p)
	defer old.Release()
	if err := p.Swap(t.Context(), version("two"), ""); err != nil {
		t.Fatal(err)
	}
	if a, b := string(old.Module().Custom(abi.MetadataSection)), string(p.Module().Custom(abi.MetadataSection)); a != "one" || b != "two" {
		t.Errorf("old %q, new %q", a, b)
	}
}

// An instance that was probed begins anew, also in what the caller keeps of it.
func TestProbedInstanceBeginsAnew(t *testing.T) {
	cfg := dialectConfig()
	cfg.NewState = func() any { return new(int) }
	cfg.Limits.Instances = 1
	cfg.Probe = func(_ context.Context, inst *host.Instance) error {
		*inst.State().(*int) = 1
		return nil
	}
	inst := acquire(t, load(t, cfg))
	defer inst.Release()
	if got := *inst.State().(*int); got != 0 {
		t.Errorf("state is %d", got)
	}
}

func (*recorder) CacheHits(string, string, uint64) {}
