package host_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
)

// wasiFunction is a function of WASI as wazero has it.
type wasiFunction struct {
	name            string
	params, results []api.ValueType
}

// wasiFunctions returns all functions of WASI, by their names.
func wasiFunctions(t testing.TB) []wasiFunction {
	t.Helper()
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	module, err := wasi_snapshot_preview1.NewBuilder(rt).Compile(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var all []wasiFunction
	for _, name := range slices.Sorted(maps.Keys(module.ExportedFunctions())) {
		f := module.ExportedFunctions()[name]
		all = append(all, wasiFunction{name, f.ParamTypes(), f.ResultTypes()})
	}
	if len(all) < 45 {
		t.Fatalf("wazero has %d functions of WASI", len(all))
	}
	return all
}

// Where the guest of wasiGuest finds the arguments of a call, 8 bytes each, and
// counts the calls.
const (
	argsAt  = 0
	countAt = 128
)

// The exports of wasiGuest, in the order of wasiDialect.
const (
	wasiCall     = iota // Calls the function with an index.
	wasiForever         // Does so for ever.
	wasiStraight        // Calls one function many times, and nothing in between.
)

// straightCalls is how often wasiStraight calls its function.
const straightCalls = 300

// wasiGuest is a guest that imports all these functions, in memory of so many
// pages. straight is the index of the one that wasiStraight calls.
func wasiGuest(functions []wasiFunction, straight int, pages uint64) []byte {
	leb := func(n int) []byte { return binary.AppendUvarint(nil, uint64(n)) }
	signed := func(n int) []byte { // A number below 1<<20 as an i32.const has it.
		return []byte{byte(n) | 0x80, byte(n>>7) | 0x80, byte(n >> 14 & 0x7f)}
	}
	vector := func(items [][]byte) []byte { return append(leb(len(items)), slices.Concat(items...)...) }
	invoke := func(n int) []byte {
		var code []byte
		for i, param := range functions[n].params {
			load := byte(0x28)
			if param == api.ValueTypeI64 {
				load = 0x29
			}
			code = slices.Concat(code, []byte{0x41}, signed(argsAt+8*i), []byte{load, 0, 0})
		}
		code = slices.Concat(code, []byte{0x10}, leb(n))
		if len(functions[n].results) == 0 {
			code = append(code, 0x41, 0)
		}
		return code
	}
	count := slices.Concat([]byte{0x41}, signed(countAt), []byte{0x41}, signed(countAt), []byte{0x28, 0, 0, 0x41, 1, 0x6a, 0x36, 0, 0})

	var types, imports [][]byte
	call := []byte{0} // No locals.
	for n, f := range functions {
		types = append(types, slices.Concat([]byte{0x60}, wasmSized(f.params), wasmSized(f.results)))
		imports = append(imports, slices.Concat(wasmSized([]byte(wasi_snapshot_preview1.ModuleName)), wasmSized([]byte(f.name)), []byte{0}, leb(n)))
		call = slices.Concat(call, []byte{0x20, 0, 0x41}, signed(n), []byte{0x46, 0x04, 0x40}, invoke(n), []byte{0x0f, 0x0b}) // if (i == n) return …
	}
	call = append(call, 0x00, 0x0b)
	types = append(types, []byte{0x60, 1, 0x7f, 1, 0x7f})
	forever := slices.Concat([]byte{0, 0x03, 0x40, 0x20, 0, 0x10}, leb(len(functions)), []byte{0x1a}, count, []byte{0x0c, 0, 0x0b, 0x00, 0x0b})
	once := slices.Concat(invoke(straight), []byte{0x1a}, count)
	line := slices.Concat([]byte{0}, bytes.Repeat(once, straightCalls), []byte{0x41, 0, 0x0b})

	export := func(name string, kind byte, index int) []byte {
		return slices.Concat(wasmSized([]byte(name)), []byte{kind}, leb(index))
	}
	first := len(functions)
	return wasmModule(
		wasmSection(1, vector(types)...),
		wasmSection(2, vector(imports)...),
		wasmSection(3, vector([][]byte{leb(first), leb(first), leb(first)})...),
		wasmSection(5, append([]byte{1, 0}, leb(int(pages))...)...),
		wasmSection(7, vector([][]byte{
			export("memory", 2, 0), export("call", 0, first), export("forever", 0, first+1), export("straight", 0, first+2),
		})...),
		wasmSection(10, vector([][]byte{wasmSized(call), wasmSized(forever), wasmSized(line)})...))
}

// wasiConfig serves a guest of wasiGuest.
func wasiConfig(module []byte) guest {
	i32 := []abi.ValueType{abi.I32}
	return guest{host.Config{Name: "wasi", Module: host.ModuleConfig{Bytes: module}, Limits: host.Limits{Instances: 1}}, host.Adapter{
		Kind: abi.KindScheduler,
		Dialects: []host.Dialect{{
			Name:   "wasi",
			Detect: func(m *host.Module) bool { return m.Export("straight") != "" },
			Exports: []host.Export{
				wasiCall:     {Name: "call", Params: i32, Results: i32},
				wasiForever:  {Name: "forever", Params: i32, Results: i32},
				wasiStraight: {Name: "straight", Params: i32, Results: i32},
			},
		}},
	}}
}

func putArgs(memory []byte, args []uint64) {
	for i, arg := range args {
		binary.LittleEndian.PutUint64(memory[argsAt+8*i:], arg)
	}
}

// Places in the memory of a benign caller.
const (
	pathAt   = 0x400  // "file", "other".
	inAt     = 0x500  // The list of buffers, or subscriptions.
	bufferAt = 0x800  // Text.
	outAt    = 0x1000 // Results.
	out2At   = 0x2000
)

// fd stands for a descriptor in wasiCalls.
const fd = math.MaxUint64 - 1

// wasiCallOf is a call of a function.
type wasiCallOf struct {
	name string
	args []uint64
	// volatile says that the result is not the same in each run.
	volatile bool
}

// wasiCalls are calls as toolchains make them: at least one for each function.
var wasiCalls = []wasiCallOf{
	{name: "args_get", args: []uint64{outAt, out2At}},
	{name: "args_sizes_get", args: []uint64{outAt, out2At}},
	{name: "clock_res_get", args: []uint64{0, outAt}},
	{name: "clock_res_get", args: []uint64{1, outAt}},
	{name: "clock_res_get", args: []uint64{2, outAt}},
	{name: "clock_time_get", args: []uint64{0, 1000, outAt}, volatile: true},
	{name: "clock_time_get", args: []uint64{1, 1000, outAt}, volatile: true},
	{name: "clock_time_get", args: []uint64{2, 1000, outAt}},
	{name: "clock_time_get", args: []uint64{3, 1000, outAt}},
	{name: "environ_get", args: []uint64{outAt, out2At}},
	{name: "environ_sizes_get", args: []uint64{outAt, out2At}},
	{name: "fd_advise", args: []uint64{fd, 0, 10, 3}},
	{name: "fd_allocate", args: []uint64{fd, 0, 10}},
	{name: "fd_close", args: []uint64{fd}},
	{name: "fd_datasync", args: []uint64{fd}},
	{name: "fd_fdstat_get", args: []uint64{fd, outAt}},
	{name: "fd_fdstat_set_flags", args: []uint64{fd, 0}},
	{name: "fd_fdstat_set_flags", args: []uint64{fd, 1}},
	{name: "fd_fdstat_set_flags", args: []uint64{fd, 4}},
	{name: "fd_fdstat_set_flags", args: []uint64{fd, 16}},
	{name: "fd_fdstat_set_rights", args: []uint64{fd, 2, 2}},
	{name: "fd_filestat_get", args: []uint64{fd, outAt}},
	{name: "fd_filestat_set_size", args: []uint64{fd, 10}},
	{name: "fd_filestat_set_times", args: []uint64{fd, 1, 2, 5}},
	{name: "fd_pread", args: []uint64{fd, inAt, 2, 0, outAt}},
	{name: "fd_prestat_dir_name", args: []uint64{fd, outAt, 1}},
	{name: "fd_prestat_get", args: []uint64{fd, outAt}},
	{name: "fd_pwrite", args: []uint64{fd, inAt, 2, 0, outAt}},
	{name: "fd_read", args: []uint64{fd, inAt, 1, outAt}},
	{name: "fd_read", args: []uint64{fd, inAt, 3, outAt}},
	{name: "fd_readdir", args: []uint64{fd, outAt, 100, 0, out2At}},
	{name: "fd_renumber", args: []uint64{fd, 1}},
	{name: "fd_renumber", args: []uint64{fd, 5}},
	{name: "fd_seek", args: []uint64{fd, 0, 1, outAt}},
	{name: "fd_sync", args: []uint64{fd}},
	{name: "fd_tell", args: []uint64{fd, outAt}},
	{name: "fd_write", args: []uint64{fd, inAt, 1, outAt}},
	{name: "fd_write", args: []uint64{fd, inAt, 3, outAt}},
	{name: "path_create_directory", args: []uint64{fd, pathAt, 4}},
	{name: "path_filestat_get", args: []uint64{fd, 1, pathAt, 4, outAt}},
	{name: "path_filestat_set_times", args: []uint64{fd, 1, pathAt, 4, 1, 2, 5}},
	{name: "path_link", args: []uint64{fd, 0, pathAt, 4, fd, pathAt + 4, 5}},
	{name: "path_open", args: []uint64{fd, 1, pathAt, 4, 0, 2, 2, 0, outAt}},
	{name: "path_open", args: []uint64{fd, 0, pathAt, 4, 9, math.MaxUint32, math.MaxUint32, 1, outAt}},
	{name: "path_readlink", args: []uint64{fd, pathAt, 4, outAt, 100, out2At}},
	{name: "path_remove_directory", args: []uint64{fd, pathAt, 4}},
	{name: "path_rename", args: []uint64{fd, pathAt, 4, fd, pathAt + 4, 5}},
	{name: "path_symlink", args: []uint64{pathAt, 4, fd, pathAt + 4, 5}},
	{name: "path_unlink_file", args: []uint64{fd, pathAt, 4}},
	{name: "poll_oneoff", args: []uint64{inAt + 0x100, outAt, 1, out2At}},
	{name: "poll_oneoff", args: []uint64{inAt + 0x100, outAt, 2, out2At}},
	{name: "poll_oneoff", args: []uint64{inAt + 0x100, outAt, 0, out2At}},
	{name: "proc_exit", args: []uint64{7}},
	{name: "proc_raise", args: []uint64{6}},
	{name: "random_get", args: []uint64{outAt, 16}, volatile: true},
	{name: "sched_yield"},
	{name: "sock_accept", args: []uint64{fd, 0, outAt}},
	{name: "sock_recv", args: []uint64{fd, inAt, 2, 0, outAt, out2At}},
	{name: "sock_send", args: []uint64{fd, inAt, 2, 0, outAt}},
	{name: "sock_shutdown", args: []uint64{fd, 3}},
}

// wasiMemory fills the memory of a benign caller.
func wasiMemory(memory []byte) {
	clear(memory)
	copy(memory[pathAt:], "fileother")
	for i, length := range []uint32{5, 0, 7} {
		binary.LittleEndian.PutUint32(memory[inAt+8*i:], uint32(bufferAt+16*i))
		binary.LittleEndian.PutUint32(memory[inAt+8*i+4:], length)
	}
	copy(memory[bufferAt:], "hello, ")
	copy(memory[bufferAt+32:], "world!\n")
	// A timer of a second, and standard output.
	timer, stdout := memory[inAt+0x100:], memory[inAt+0x100+48:]
	timer[0], timer[16] = 42, 1
	binary.LittleEndian.PutUint64(timer[24:], 1_000_000_000)
	stdout[0], stdout[8], stdout[16] = 43, 2, 1
}

// TestWASIAnswersAsWazeroDoes compares the error number and all of the memory
// after calls that toolchains make, on the standard streams, on descriptors that
// are not open, and after each stream was closed.
func TestWASIAnswersAsWazeroDoes(t *testing.T) {
	// Where wazero's answer is no use to a program.
	differ := map[string]string{
		// A stream is a directory whose name is empty.
		"fd_prestat_get 0": "errno 8", "fd_prestat_get 1": "errno 8", "fd_prestat_get 2": "errno 8",
		"fd_prestat_dir_name 0": "errno 8", "fd_prestat_dir_name 1": "errno 8", "fd_prestat_dir_name 2": "errno 8",
		// It dereferences nil.
		"fd_filestat_set_times 0": "errno 52", "fd_filestat_set_times 1": "errno 52", "fd_filestat_set_times 2": "errno 52",
	}
	functions := wasiFunctions(t)
	guest := wasiGuest(functions, 0, 1)
	ctx := t.Context()
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	compiled, err := rt.CompileModule(ctx, guest)
	if err != nil {
		t.Fatal(err)
	}
	// Our fake clock goes by nanoseconds.
	reference := wazero.NewModuleConfig().WithName("").WithArgs("wasi").WithWalltime(func() (int64, int32) { return 0, 0 }, 1)
	cfg := wasiConfig(guest)
	cfg.Reset = host.ResetPerCall
	p := load(t, cfg)
	answer := func(errno uint64, err error) string {
		var exit *sys.ExitError
		if errors.As(err, &exit) {
			return fmt.Sprintf("exit %d", exit.ExitCode())
		} else if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("errno %d", errno)
	}
	index := func(name string) int {
		return slices.IndexFunc(functions, func(f wasiFunction) bool { return f.name == name })
	}
	called := map[string]bool{}
	for _, call := range wasiCalls {
		called[call.name] = true
		descriptors := []uint64{0}
		if slices.Contains(call.args, fd) {
			descriptors = []uint64{0, 1, 2, 3, 4, 1000, math.MaxUint32}
		}
		for _, descriptor := range descriptors {
			args := slices.Clone(call.args)
			for i := range args {
				if args[i] == fd {
					args[i] = descriptor
				}
			}
			for _, closed := range []uint64{0, 1, 2, 3} { // 3 closes none.
				theirs, err := rt.InstantiateModule(ctx, compiled, reference)
				if err != nil {
					t.Fatal(err)
				}
				inst := acquire(t, p)
				run := func(n int, args ...uint64) (string, string, []byte) {
					memory, _ := theirs.Memory().Read(0, theirs.Memory().Size())
					wasiMemory(memory)
					putArgs(memory, args)
					inst.Dialect().Fill(func(to []byte) { copy(to, memory) })
					var errno uint64
					results, err := theirs.ExportedFunction("call").Call(ctx, uint64(n))
					if err == nil {
						errno = results[0]
					}
					want := answer(errno, err)
					got, err := inst.Dialect().CallExport(ctx, wasiCall, uint64(n))
					return answer(got, err), want, memory
				}
				if got, want, _ := run(index("fd_close"), closed); got != want {
					t.Errorf("fd_close(%d): %s, wazero %s", int32(closed), got, want)
				}
				got, want, memory := run(index(call.name), args...)
				what := fmt.Sprintf("%s(%d) with %d closed", call.name, args, closed)
				if w, ok := differ[fmt.Sprint(call.name, " ", descriptor)]; ok && closed != descriptor {
					if got != w {
						t.Errorf("%s: %s, want %s", what, got, w)
					}
				} else if got != want {
					t.Errorf("%s: %s, wazero %s", what, got, want)
				} else if !call.volatile && !bytes.Equal(inst.Dialect().Memory(), memory) {
					at := 0
					for inst.Dialect().Memory()[at] == memory[at] {
						at++
					}
					t.Errorf("%s: memory differs at %#x: %x, wazero %x", what, at, inst.Dialect().Memory()[at:at+32], memory[at:at+32])
				}
				inst.Release()
				theirs.Close(ctx)
			}
		}
	}
	for _, f := range functions {
		if !called[f.name] {
			t.Errorf("%s is not among the calls", f.name)
		}
	}
}

// hostileNumbers are arguments that no toolchain passes.
var hostileNumbers = []uint64{
	0, 1, 3, page - 1, page, 16*page - 3, 16 * page, 1 << 28, math.MaxInt32, 1 << 31, math.MaxUint32 - 7, math.MaxUint32,
	1 << 32, 1 << 62, 1 << 63, math.MaxUint64,
}

// hostileMemories are what the arguments point to: descriptors, lists of buffers
// that overlap or lie beyond memory, paths without end, timers of centuries.
var hostileMemories = map[string]func(memory []byte){
	"zeros": func(memory []byte) { clear(memory) },
	"ones": func(memory []byte) {
		for i := range memory {
			memory[i] = 0xff
		}
	},
	"a path": func(memory []byte) { copy(memory, bytes.Repeat([]byte("a/../"), len(memory)/5)) },
	"all of memory": func(memory []byte) {
		for i := 0; i < len(memory); i += 8 {
			binary.LittleEndian.PutUint32(memory[i:], 0)
			binary.LittleEndian.PutUint32(memory[i+4:], uint32(len(memory)))
		}
	},
	"the end of memory": func(memory []byte) {
		for i := 0; i < len(memory); i += 8 {
			binary.LittleEndian.PutUint32(memory[i:], uint32(len(memory)-3))
			binary.LittleEndian.PutUint32(memory[i+4:], 4)
		}
	},
}

// checkAnswer holds that a function of WASI came back with an error number, or
// ended the call for a reason that a guest's author can read.
func checkAnswer(name string, errno uint64, err error) error {
	var exit *sys.ExitError
	switch {
	case err == nil && errno <= 76:
		return nil
	case err == nil:
		return fmt.Errorf("%s answers %d, which is no error number", name, errno)
	case errors.Is(err, host.ErrFuel), name == "proc_exit" && errors.As(err, &exit):
		return nil
	}
	return fmt.Errorf("%s: %v", name, err)
}

// TestHostileCallsOfWASI calls every function with each hostile number in each
// place, in all of them, and at random, on hostile memory. What the host allocates
// and what the guest pays shows how much work was done.
func TestHostileCallsOfWASI(t *testing.T) {
	const pages = 16
	functions := wasiFunctions(t)
	cfg := wasiConfig(wasiGuest(functions, 0, pages))
	cfg.Limits.Fuel = 50_000_000
	p := load(t, cfg)
	for name, fill := range hostileMemories {
		t.Run(name, func(t *testing.T) {
			start := make([]byte, pages*page)
			fill(start)
			inst := acquire(t, p)
			defer func() { inst.Release() }()
			calls := 0
			call := func(n int, args []uint64) {
				inst.Dialect().Fill(func(to []byte) { copy(to, start) })
				inst.Dialect().Fill(func(to []byte) { putArgs(to, args) })
				errno, err := inst.Dialect().CallExport(t.Context(), wasiCall, uint64(n))
				if err := checkAnswer(functions[n].name, errno, err); err != nil {
					t.Errorf("%d: %v", args, err)
				}
				if used := inst.FuelUsed(); used < 100 {
					t.Errorf("%s(%d) costs %d", functions[n].name, args, used)
				}
				if calls++; err != nil {
					inst.Release()
					inst = acquire(t, p)
				}
			}
			random := rand.New(rand.NewPCG(1, 2))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for n, f := range functions {
				benign := wasiCalls[slices.IndexFunc(wasiCalls, func(c wasiCallOf) bool { return c.name == f.name })].args
				args := make([]uint64, len(benign))
				for place := range benign {
					for _, number := range hostileNumbers {
						for i := range args {
							args[i] = 0 // Standard input.
							if benign[i] != fd {
								args[i] = benign[i]
							}
						}
						args[place] = number
						call(n, args)
					}
				}
				for _, number := range hostileNumbers {
					for i := range args {
						args[i] = number
					}
					call(n, args)
				}
				for range 50 {
					for i := range args {
						args[i] = hostileNumbers[random.IntN(len(hostileNumbers))]
						if i == 0 {
							args[i] = random.Uint64N(4)
						}
					}
					call(n, args)
				}
			}
			runtime.ReadMemStats(&after)
			t.Logf("%d calls allocate %d bytes", calls, after.TotalAlloc-before.TotalAlloc)
			if each := (after.TotalAlloc - before.TotalAlloc) / uint64(calls); each > 16<<10 {
				t.Errorf("a call allocates %d bytes", each)
			}
		})
	}
}

// TestWASIChargesFuel calls each function with the largest work that it accepts.
func TestWASIChargesFuel(t *testing.T) {
	const pages, size = 1024, 1024 * page // 64 MiB.
	functions := wasiFunctions(t)
	guest := wasiGuest(functions, 0, pages)
	list := func(n int, at, length uint32) func(memory []byte) {
		return func(memory []byte) {
			for i := range n {
				binary.LittleEndian.PutUint32(memory[inAt+8*i:], at)
				binary.LittleEndian.PutUint32(memory[inAt+8*i+4:], length)
			}
		}
	}
	path := func(memory []byte) { copy(memory[pathAt:], bytes.Repeat([]byte("a/"), size/2)) }
	const large = size - pathAt
	const limit = 100_000_000
	var plugins []*host.Plugin
	for _, grants := range [][]string{nil, {host.GrantRandom, host.GrantClock}} {
		cfg := wasiConfig(guest)
		cfg.Grants, cfg.Reset, cfg.Limits.Fuel = grants, host.ResetPerCall, limit
		plugins = append(plugins, load(t, cfg))
	}
	for _, test := range []struct {
		name  string
		call  string
		args  []uint64
		fill  func(memory []byte)
		errno uint64
		// fuel is what the guest pays at least; more than the limit ends the call.
		fuel int64
	}{
		{name: "as many buffers as are read at once", call: "fd_read", args: []uint64{0, inAt, 1024, 0}, fuel: 16 * 1024},
		{name: "a buffer more than are read", call: "fd_read", args: []uint64{0, inAt, 1025, 0}, errno: 28},
		{name: "as many buffers as are written at once", call: "fd_write", args: []uint64{1, inAt, 1024, 0}, fuel: 16 * 1024},
		{name: "a buffer more than are written", call: "fd_write", args: []uint64{1, inAt, 1025, 0}, errno: 28},
		{name: "buffers whose number wraps", call: "fd_write", args: []uint64{1, inAt, 1<<29 + 1, 0}, errno: 28},
		{name: "all of memory is written", call: "fd_write", args: []uint64{1, inAt, 1, 0}, fill: list(1, 0, size), fuel: size / 8},
		{name: "all of memory is written a thousand times", call: "fd_write", args: []uint64{1, inAt, 1000, 0}, fill: list(1000, 0, size), fuel: 1000 * size / 8},
		{name: "millions of buffers are read from a place", call: "fd_pread", args: []uint64{0, 0, size / 8, 0, 0}, errno: 8},
		{name: "millions of buffers are written to a place", call: "fd_pwrite", args: []uint64{1, 0, size / 8, 0, 0}, errno: 8},
		{name: "millions of buffers are received", call: "sock_recv", args: []uint64{0, 0, size / 8, 0, 0, 0}, errno: 8},
		{name: "a directory of 64 MiB is read", call: "fd_readdir", args: []uint64{0, 0, size, 0, 0}, errno: 8},
		{name: "random bytes fill a fourth of memory", call: "random_get", args: []uint64{1 << 20, size / 4}, fuel: size},
		{name: "random bytes fill all of memory, which is more than the fuel", call: "random_get", args: []uint64{0, size}, fuel: 4 * size},
		{name: "as many events as are waited for", call: "poll_oneoff", args: []uint64{outAt, inAt, 64, 0}, fuel: 20 * 64},
		{name: "millions of events", call: "poll_oneoff", args: []uint64{0, 0, 1 << 28, 0}, errno: 28},
		{name: "opens a path of 64 MiB", call: "path_open", args: []uint64{1, 0, pathAt, large, 0, 0, 0, 0, 0}, fill: path, errno: 54},
		{name: "opens a path of 64 MiB below nothing", call: "path_open", args: []uint64{3, 0, pathAt, large, 0, 0, 0, 0, 0}, fill: path, errno: 8},
		{name: "makes a directory of 64 MiB", call: "path_create_directory", args: []uint64{1, pathAt, large}, fill: path, errno: 54},
		{name: "looks at a path of 64 MiB", call: "path_filestat_get", args: []uint64{1, 0, pathAt, large, 0}, fill: path, errno: 54},
		{name: "changes the times of a path of 64 MiB", call: "path_filestat_set_times", args: []uint64{1, 0, pathAt, large, 0, 0, 0}, fill: path, errno: 54},
		{name: "links a path of 64 MiB", call: "path_link", args: []uint64{1, 0, pathAt, large, 1, pathAt, large}, fill: path, errno: 54},
		{name: "reads a link of 64 MiB", call: "path_readlink", args: []uint64{1, pathAt, large, 0, size, 0}, fill: path, errno: 54},
		{name: "removes a directory of 64 MiB", call: "path_remove_directory", args: []uint64{1, pathAt, large}, fill: path, errno: 54},
		{name: "renames a path of 64 MiB", call: "path_rename", args: []uint64{1, pathAt, large, 1, pathAt, large}, fill: path, errno: 54},
		{name: "makes a symbolic link of 64 MiB", call: "path_symlink", args: []uint64{pathAt, large, 1, pathAt, large}, fill: path, errno: 54},
		{name: "removes a path of 64 MiB", call: "path_unlink_file", args: []uint64{1, pathAt, large}, fill: path, errno: 54},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, p := range plugins {
				inst := acquire(t, p)
				inst.Dialect().Fill(func(memory []byte) {
					if test.fill != nil {
						test.fill(memory)
					}
					putArgs(memory, test.args)
				})
				n := slices.IndexFunc(functions, func(f wasiFunction) bool { return f.name == test.call })
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				errno, err := inst.Dialect().CallExport(t.Context(), wasiCall, uint64(n))
				runtime.ReadMemStats(&after)
				used := inst.FuelUsed()
				if test.fuel > limit {
					if !errors.Is(err, host.ErrFuel) {
						t.Errorf("got error number %d, error %v, want %v", errno, err, host.ErrFuel)
					}
				} else if err != nil || errno != test.errno {
					t.Errorf("got error number %d, error %v, want %d", errno, err, test.errno)
				}
				if want := max(100, min(test.fuel, limit)); used < want {
					t.Errorf("costs %d, want at least %d", used, want)
				}
				// The stack of a call that was stopped is a string.
				if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
					t.Errorf("allocates %d bytes", allocated)
				}
				if test.call == "random_get" && test.fuel > limit && inst.Dialect().Memory()[size-1] != 0 {
					t.Error("the fuel ended after the work")
				}
				inst.Release()
			}
		})
	}
}

// TestLoopsOverWASIAreStopped calls each function for ever, and many times without
// a loop: a guest does not look at its fuel in between.
func TestLoopsOverWASIAreStopped(t *testing.T) {
	functions := wasiFunctions(t)
	for n, f := range functions {
		if f.name == "proc_exit" {
			continue
		}
		cfg := wasiConfig(wasiGuest(functions, n, 1))
		const fuel = 20_000
		cfg.Limits.Fuel = fuel
		p := load(t, cfg)
		for _, export := range []host.ExportIndex{wasiForever, wasiStraight} {
			for _, call := range wasiCalls {
				if call.name != f.name {
					continue
				}
				inst := acquire(t, p)
				inst.Dialect().Fill(wasiMemory)
				args := slices.Clone(call.args)
				for i := range args {
					if args[i] == fd {
						args[i] = 1
					}
				}
				inst.Dialect().Fill(func(to []byte) { putArgs(to, args) })
				_, err := inst.Dialect().CallExport(t.Context(), export, uint64(n))
				made := binary.LittleEndian.Uint32(inst.Dialect().Memory()[countAt:])
				// A call costs 100, and what the host is owed 4096 at most.
				if !errors.Is(err, host.ErrFuel) || made > (fuel+4096)/100 {
					t.Errorf("%s(%d): %d calls with %d of fuel, error %v", call.name, args, made, fuel, err)
				}
				inst.Release()
			}
		}
	}
}

// looked is a context that ends when it was asked for its error so many times.
type looked struct {
	context.Context
	left int
}

func (c *looked) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestWorkOfWASIEndsWithTheCall holds that a call which is cancelled does not go on
// to the end of what a single function was asked for.
func TestWorkOfWASIEndsWithTheCall(t *testing.T) {
	const size = 256 * page
	functions := wasiFunctions(t)
	n := slices.IndexFunc(functions, func(f wasiFunction) bool { return f.name == "random_get" })
	cfg := wasiConfig(wasiGuest(functions, n, 256))
	cfg.Limits.Fuel = math.MaxInt64
	p := load(t, cfg)
	for name, export := range map[string]host.ExportIndex{"in one call": wasiCall, "in many, without a loop": wasiStraight} {
		t.Run(name, func(t *testing.T) {
			inst := acquire(t, p)
			defer inst.Release()
			inst.Dialect().Fill(func(to []byte) { putArgs(to, []uint64{page, size - page}) })
			_, err := inst.Dialect().CallExport(&looked{t.Context(), 4}, export, uint64(n))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want %v", err, context.Canceled)
			}
			if memory := inst.Dialect().Memory(); memory[page] == 0 || memory[size-1] != 0 {
				t.Errorf("the first byte is %d, the last %d", memory[page], memory[size-1])
			}
		})
	}
}

// wasiCaller calls functions of WASI by their names, as guests of one plugin.
type wasiCaller struct {
	t         *testing.T
	functions []wasiFunction
	plugin    *host.Plugin
}

func newWASICaller(t *testing.T, reset host.ResetPolicy, instances int) wasiCaller {
	functions := wasiFunctions(t)
	cfg := wasiConfig(wasiGuest(functions, 0, 1))
	cfg.Reset, cfg.Limits.Instances = reset, instances
	return wasiCaller{t, functions, load(t, cfg)}
}

// call calls a function and returns its error number; an exit is 1000 and more.
func (c wasiCaller) call(inst *host.Instance, name string, args ...uint64) uint64 {
	c.t.Helper()
	inst.Dialect().Fill(func(to []byte) { putArgs(to, args) })
	n := slices.IndexFunc(c.functions, func(f wasiFunction) bool { return f.name == name })
	errno, err := inst.Dialect().CallExport(c.t.Context(), wasiCall, uint64(n))
	var exit *sys.ExitError
	if errors.As(err, &exit) {
		return 1000 + uint64(exit.ExitCode())
	} else if err != nil {
		c.t.Fatal(err)
	}
	return errno
}

// TestStateOfWASIBelongsToTheSnapshot holds that a call finds the streams, the
// clock and the random numbers as they were after the start, whenever it finds
// memory so, and only then.
func TestStateOfWASIBelongsToTheSnapshot(t *testing.T) {
	// look returns all that a guest sees of the state of WASI.
	look := func(c wasiCaller, inst *host.Instance) (seen [8]uint64) {
		for stream := range uint64(3) {
			seen[stream] = c.call(inst, "fd_fdstat_get", stream, outAt)
		}
		seen[3] = c.call(inst, "fd_read", 0, inAt, 0, outAt)
		seen[4] = c.call(inst, "fd_write", 1, inAt, 0, outAt)
		c.call(inst, "clock_time_get", 0, 0, outAt)
		c.call(inst, "clock_time_get", 1, 0, outAt+8)
		c.call(inst, "random_get", outAt+16, 8)
		for i := range 3 {
			seen[5+i] = binary.LittleEndian.Uint64(inst.Dialect().Memory()[outAt+8*i:])
		}
		return seen
	}
	// use changes all of it.
	use := func(c wasiCaller, inst *host.Instance) {
		inst.Dialect().Fill(wasiMemory)
		for stream := range uint64(3) {
			c.call(inst, "fd_fdstat_set_flags", stream, 1)
			c.call(inst, "fd_renumber", stream, (stream+1)%3)
			c.call(inst, "fd_close", stream)
		}
		c.call(inst, "poll_oneoff", inAt+0x100, outAt, 1, out2At) // Sleep for a second.
	}
	for name, test := range map[string]struct {
		reset      host.ResetPolicy
		trap, kept bool
	}{
		"reset for each call":                {reset: host.ResetPerCall},
		"reset for each call, and one traps": {reset: host.ResetPerCall, trap: true},
		"reset behind a trap":                {reset: host.ResetOnError, trap: true},
		"new instance behind a trap":         {reset: host.ResetNever, trap: true},
		"no trap":                            {reset: host.ResetOnError, kept: true},
		"no trap, and no reset":              {reset: host.ResetNever, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newWASICaller(t, test.reset, 1)
			var want [8]uint64
			for n := range 4 {
				inst := acquire(t, c.plugin)
				got := look(c, inst)
				switch {
				case n == 0:
					if want = got; [5]uint64(want[:]) != [5]uint64{} {
						t.Errorf("a guest begins with %d", want)
					}
				case test.kept && (got[0] != 8 || got[1] != 8 || got[2] != 8 || got[5] < want[5]+1_000_000_000):
					t.Errorf("call %d: got %d, want what the call before left", n, got)
				case !test.kept && got != want:
					t.Errorf("call %d: got %d, want %d", n, got, want)
				}
				use(c, inst)
				if test.trap {
					c.call(inst, "proc_exit", 3)
				}
				inst.Release()
			}
		})
	}
	t.Run("another instance", func(t *testing.T) {
		c := newWASICaller(t, host.ResetOnError, 3)
		first, second := acquire(t, c.plugin), acquire(t, c.plugin)
		defer first.Release()
		defer second.Release()
		want := look(c, first)
		use(c, first)
		if got := look(c, second); got != want {
			t.Errorf("the second instance begins with %d, the first with %d", got, want)
		}
		use(c, second)
		third := acquire(t, c.plugin)
		defer third.Release()
		if got := look(c, third); got != want {
			t.Errorf("the third instance begins with %d, the first with %d", got, want)
		}
	})
}

// TestOutputOfAStartSectionIsNotThatOfACall holds that what a start section
// prints when an instance is made from the snapshot is not in the error of the
// first call.
func TestOutputOfAStartSectionIsNotThatOfACall(t *testing.T) {
	p := load(t, config("wasi/printsatstart"))
	for _, inst := range []*host.Instance{acquire(t, p), acquire(t, p)} {
		if inst.Calling() != "" {
			t.Errorf("an idle instance runs %s", inst.Calling())
		}
		_, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0)
		var trap *host.TrapError
		if !errors.As(err, &trap) || trap.Output != "" {
			t.Errorf("got %#v", err)
		}
		inst.Release()
	}
}

// wazeroDir returns the directory of wazero's module, whose tests have programs
// of several toolchains.
func wazeroDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	if err != nil {
		t.Skipf("find the module of wazero: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// TestProgramsSeeWhatTheySeeInWazero runs programs of Go, TinyGo, Rust, Zig and C
// that look for files, terminals, sockets and timers, and compares what they print
// and how they exit.
func TestProgramsSeeWhatTheySeeInWazero(t *testing.T) {
	dir := filepath.Join(wazeroDir(t), "imports", "wasi_snapshot_preview1")
	for _, program := range []struct {
		toolchain string
		source    host.Source
		runs      [][]string
	}{
		{"Go", buildProgram(t), [][]string{{"world", "a", "b"}, {"upper"}, {"exit"}, {"close"}}},
		{"TinyGo", host.File(filepath.Join(dir, "testdata/tinygo/wasi.wasm")), [][]string{{"ls", "."}, {"stat"}, {"sock"}}},
		{"TinyGo's cat", host.File(filepath.Join(dir, "example/testdata/tinygo/cat.wasm")), [][]string{{"file"}}},
		{"Rust", host.File(filepath.Join(dir, "testdata/cargo-wasi/wasi.wasm")), [][]string{{"ls", "."}, {"stat"}, {"none"}}},
		{"Rust's cat", host.File(filepath.Join(dir, "example/testdata/cargo-wasi/cat.wasm")), [][]string{{"file"}, {"/etc/passwd"}}},
		{"Zig", host.File(filepath.Join(dir, "testdata/zig/wasi.wasm")), [][]string{{"ls", "."}, {"stat"}}},
		{"Zig's cat", host.File(filepath.Join(dir, "example/testdata/zig/cat.wasm")), [][]string{{"file"}}},
		{"C", host.File(filepath.Join(dir, "testdata/zig-cc/wasi.wasm")), [][]string{
			{"ls", "."}, {"stat"}, {"poll"}, {"poll", "0", "10"}, {"sleepmillis", "10"}, {"open-rdonly"}, {"open-wronly"}, {"sock"}, {"none"},
		}},
		{"C's cat", host.File(filepath.Join(dir, "example/testdata/zig-cc/cat.wasm")), [][]string{{"file"}}},
	} {
		t.Run(program.toolchain, func(t *testing.T) {
			if race.Enabled && program.toolchain == "Go" {
				t.Skip("takes most of a minute to compile under the race detector")
			}
			ctx := t.Context()
			module, err := program.source.Fetch(ctx)
			if err != nil {
				t.Fatal(err)
			}
			rt := wazero.NewRuntime(ctx)
			defer rt.Close(ctx)
			wasi_snapshot_preview1.MustInstantiate(ctx, rt)
			compiled, err := rt.CompileModule(ctx, module)
			if err != nil {
				t.Fatal(err)
			}
			p := loadGo(t, guest{host.Config{Name: "program", Module: host.ModuleConfig{Source: program.source}, Limits: host.Limits{Instances: 1}}, host.Adapter{
				Kind:     abi.KindAdmission,
				Dialects: []host.Dialect{{Name: "wasi", Command: true, Detect: func(*host.Module) bool { return true }}},
			}})
			const stdin = "what is typed\nin two lines\n"
			for _, args := range program.runs {
				args = append([]string{"program"}, args...)
				var wantOut, wantErr strings.Builder
				_, err := rt.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithArgs(args...).
					WithStdin(strings.NewReader(stdin)).WithStdout(&wantOut).WithStderr(&wantErr))
				want := fmt.Sprintf("%sexit %d", wantOut.String(), exitCode(t, err))
				if exitCode(t, err) != 0 {
					want += "\n" + wantErr.String()
				}
				inst := acquire(t, p)
				out, err := inst.Dialect().Run(ctx, args, []byte(stdin))
				got := fmt.Sprintf("%sexit %d", out, exitCode(t, err))
				var trap *host.TrapError
				if errors.As(err, &trap) && exitCode(t, err) != 0 {
					got += "\n" + trap.Output
				}
				inst.Release()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%q (-wazero +got):\n%s", args, diff)
				}
			}
		})
	}
}

// exitCode returns the exit code of a program, -1 if it trapped.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	var exit *sys.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(int32(exit.ExitCode()))
	}
	return -1
}

// FuzzWASI calls any function with any arguments, which lie at the beginning of
// its memory, followed by whatever they point to.
func FuzzWASI(f *testing.F) {
	functions := wasiFunctions(f)
	for _, call := range wasiCalls {
		memory := make([]byte, out2At)
		wasiMemory(memory)
		putArgs(memory, call.args)
		f.Add(byte(slices.IndexFunc(functions, func(f wasiFunction) bool { return f.name == call.name })), memory)
	}
	cfg := wasiConfig(wasiGuest(functions, 0, 1))
	cfg.Reset, cfg.Limits.Fuel = host.ResetPerCall, 10_000_000
	p := load(f, cfg)
	f.Fuzz(func(t *testing.T, function byte, memory []byte) {
		if int(function) >= len(functions) {
			t.Skip()
		}
		inst := acquire(t, p)
		defer inst.Release()
		inst.Dialect().Fill(func(to []byte) { copy(to, memory) })
		errno, err := inst.Dialect().CallExport(t.Context(), wasiCall, uint64(function))
		if err := checkAnswer(functions[function].name, errno, err); err != nil {
			t.Error(err)
		}
		if used := inst.FuelUsed(); used < 100 {
			t.Errorf("%s costs %d", functions[function].name, used)
		}
	})
}
