package wasmbin

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// make nightly runs a hundred thousand modules of each source, .ci/run some thousand.
var (
	differentialModules = flag.Int("differential", 200, "`modules` of each source that TestDifferential runs")
	differentialSeed    = flag.Uint64("differential.seed", 1, "`number` of the first module")
)

// TestDifferential holds that rewriting changes nothing but what it is for, on generated
// modules: random code of the patterns that the rewriter and its pass look for, as it is and
// with instructions changed, mutations of the specification suite, and what binaryen's wasm-opt
// makes of random bytes where it is installed. Each is valid before and after or neither. It
// comes to the same results on the interpreter as it is and on both engines as it is rewritten,
// with and without the pass of package gowasm. Without the pass it spends the same fuel as with
// a charge for each instruction.
func TestDifferential(t *testing.T) {
	suite, valid := specModules(t)
	sources := map[string]func(t *testing.T, r *rand.Rand) []byte{
		"patterns": func(_ *testing.T, r *rand.Rand) []byte { return randomModule(r) },
		"mutated patterns": func(_ *testing.T, r *rand.Rand) []byte {
			bin := randomModule(r)
			mutateCode(r, bin)
			return bin
		},
		"newer features": func(_ *testing.T, r *rand.Rand) []byte { return randomOf(r, true) },
		"mutated newer features": func(_ *testing.T, r *rand.Rand) []byte {
			bin := randomOf(r, true)
			mutateCode(r, bin)
			return bin
		},
		"mutations": func(_ *testing.T, r *rand.Rand) []byte { return mutate(r, suite, valid) },
	}
	if file, err := exec.LookPath("wasm-opt"); err == nil {
		sources["wasm-opt"] = func(t *testing.T, r *rand.Rand) []byte { return translateToFuzz(t, file, r) }
	} else if os.Getenv("CI") != "" {
		t.Error("wasm-opt is not installed")
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			var c tallyOfDifferences
			var next atomic.Uint64
			var workers sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				workers.Go(func() {
					for !t.Failed() {
						n := next.Add(1) - 1
						if n >= uint64(*differentialModules) {
							return
						}
						seed := *differentialSeed + n
						bin := source(t, rand.New(rand.NewPCG(seed, 7)))
						if bin == nil {
							continue
						}
						if err := differences(t.Context(), bin, &c); err != nil {
							file := filepath.Join(os.TempDir(), fmt.Sprintf("differential-%s-%d.wasm", name, seed))
							t.Errorf("-differential.seed %d -differential 1, %s: %v", seed, file, err)
							if err := os.WriteFile(file, bin, 0o600); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			workers.Wait()
			t.Logf("%d modules: %d invalid before and after, %d refused by a limit, %d executed with %d calls, of which %d trapped; fuel compared %d times; %d modules changed by the pass, in %d of which a call trapped earlier",
				c.modules.Load(), c.invalid.Load(), c.limited.Load(), c.executed.Load(), c.calls.Load(), c.traps.Load(), c.fuel.Load(), c.changed.Load(), c.early.Load())
		})
	}
}

// tallyOfDifferences counts what was compared.
type tallyOfDifferences struct {
	modules, invalid, limited, executed, calls, traps, fuel, changed, early atomic.Int64
}

var differentialOptions = Options{MaxMemoryPages: fuzzPages, MaxTableElements: 10_000}

// differences returns an error that says how a module and what is made of it differ.
func differences(ctx context.Context, bin []byte, c *tallyOfDifferences) error {
	c.modules.Add(1)
	opts := differentialOptions
	opts.Meter, opts.StackBytes = true, maxStack
	valid, validErr := false, error(nil)
	if m, err := Decode(bin); err == nil && !slices.ContainsFunc(m.Codes, func(c Code) bool { return c.NumLocals > 1000 }) {
		valid, validErr = acceptedBy(withoutCustoms(bin), wazero.NewRuntimeConfigInterpreter())
	} else if validErr = err; err == nil {
		return nil
	}
	opts.Validate = func(bin []byte) error {
		if !valid {
			return validErr
		}
		return nil
	}
	if validErr != nil && strings.HasPrefix(validErr.Error(), "wazero: ") {
		return nil // It panicked.
	}
	metered, info, err := Rewrite(bin, opts)
	switch {
	case err == nil && !valid:
		return fmt.Errorf("rewritten, though wazero refuses the module: %w", validErr)
	case errors.Is(err, ErrInternal):
		return err
	case slices.ContainsFunc([]error{ErrReserved, ErrMemoryLimit, ErrTableLimit, ErrTooManyLocals, ErrUnsupported, ErrElements},
		func(limit error) bool { return errors.Is(err, limit) }):
		c.limited.Add(1)
		return nil
	case err != nil && strings.Contains(err.Error(), "unknown instruction 0xfd"):
		c.limited.Add(1) // wazero takes the second byte of a vector opcode for an instruction.
		return nil
	case err != nil && valid:
		return fmt.Errorf("refused by the rewriter, though wazero takes the module: %w", err)
	case err != nil:
		c.invalid.Add(1)
		return nil
	}
	opts.Validate, opts.Pass, opts.ExpandRemainders = nil, TestPass, true
	passed, _, err := Rewrite(bin, opts)
	if err != nil {
		return fmt.Errorf("refused with the pass: %w", err)
	}
	unpassed := opts
	unpassed.Pass = nil
	if same, _, err := Rewrite(bin, unpassed); err != nil {
		return err
	} else if !bytes.Equal(same, passed) {
		c.changed.Add(1)
	}
	plain, _, err := Rewrite(bin, differentialOptions)
	if err != nil {
		return fmt.Errorf("refused without metering: %w", err)
	}
	run, ok := newDifferentialRun(bin, info)
	if !ok {
		for name, out := range map[string][]byte{"metered": metered, "with the pass": passed, "without metering": plain} {
			if ok, err := acceptedBy(out, wazero.NewRuntimeConfigInterpreter()); !ok {
				return fmt.Errorf("%s: wazero refuses it: %w", name, err)
			}
		}
		return nil
	}
	c.executed.Add(1)

	compiled, err := run.do(ctx, metered, wazero.NewRuntimeConfigCompiler(), run.calls)
	if err != nil {
		return fmt.Errorf("metered, compiler: %w", err)
	}
	steps := len(compiled.steps)
	want, err := run.do(ctx, plain, wazero.NewRuntimeConfigInterpreter().WithCloseOnContextDone(true), steps)
	if err != nil {
		return fmt.Errorf("plain, interpreter: %w", err)
	}
	if diff := want.differs(compiled, true); diff != "" {
		return fmt.Errorf("plain on the interpreter -, metered on the compiler +\n%s", diff)
	}
	c.calls.Add(int64(steps))
	for _, s := range want.steps {
		if s.Err != "" {
			c.traps.Add(1)
		}
	}
	interpreted, err := run.do(ctx, metered, wazero.NewRuntimeConfigInterpreter(), steps)
	if err != nil {
		return fmt.Errorf("metered, interpreter: %w", err)
	}
	if diff := compiled.differs(interpreted, true); diff != "" {
		return fmt.Errorf("metered, on the compiler -, on the interpreter +\n%s", diff)
	}
	if diff := cmp.Diff(compiled.fuel, interpreted.fuel); diff != "" && compiled.exhausted+interpreted.exhausted == 0 {
		return fmt.Errorf("fuel of each call, on the compiler -, on the interpreter +\n%s", diff)
	}
	if err := run.profiled(ctx, bin, compiled, steps); err != nil {
		return err
	}
	each, err := countEach(withoutCustoms(bin))
	if err != nil {
		return fmt.Errorf("count each instruction: %w", err)
	}
	counted, err := run.do(ctx, each, wazero.NewRuntimeConfigInterpreter(), steps)
	if err != nil {
		return fmt.Errorf("each instruction counted: %w", err)
	}
	for i := range min(len(compiled.fuel), len(counted.fuel)) {
		if compiled.steps[i].Err != "" || run.throws {
			continue // The rest of the straight code was charged.
		}
		c.fuel.Add(1)
		if compiled.fuel[i] != counted.fuel[i] {
			return fmt.Errorf("step %d: %d fuel, each instruction counted %d", i, compiled.fuel[i], counted.fuel[i])
		}
	}
	for name, config := range map[string]wazero.RuntimeConfig{"compiler": wazero.NewRuntimeConfigCompiler(), "interpreter": wazero.NewRuntimeConfigInterpreter()} {
		got, err := run.do(ctx, passed, config, steps)
		if err != nil {
			return fmt.Errorf("with the pass, %s: %w", name, err)
		}
		// A stack beyond the memory traps at the first of several accesses, and one beyond
		// 4 GiB does not begin anew: from there on the two are different guests.
		same := true
		if at := slices.IndexFunc(got.steps, func(s executedStep) bool { return strings.Contains(s.Err, "out of bounds memory access") }); at >= 0 {
			if at < len(want.steps) && !strings.Contains(want.steps[at].Err, "out of bounds memory access") {
				c.early.Add(1)
			}
			got.steps, got.end, same = got.steps[:at], "", false
		}
		if diff := want.differs(got, same); diff != "" {
			return fmt.Errorf("plain on the interpreter -, with the pass on the %s +\n%s", name, diff)
		}
	}
	return nil
}

// acceptedBy reports whether wazero compiles a module.
func acceptedBy(bin []byte, config wazero.RuntimeConfig) (ok bool, err error) {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(allFeatures).WithDebugInfoEnabled(false))
	defer func() {
		_ = r.Close(ctx)
		if p := recover(); p != nil {
			ok, err = false, fmt.Errorf("wazero: %v", p)
		}
	}()
	_, err = r.CompileModule(ctx, bin)
	return err == nil, err
}

// differentialRun says what is executed of a module.
type differentialRun struct {
	imports []Extern
	exports []Extern
	globals []string
	memory  bool
	floats  bool // NaNs differ from engine to engine
	throws  bool
	calls   int
}

// newDifferentialRun reports false for a module that needs more than functions of numbers.
func newDifferentialRun(bin []byte, info *Info) (*differentialRun, bool) {
	numbers := func(f FuncType) bool {
		for _, t := range slices.Concat(f.Params, f.Results) {
			if t.IsRef() || t == V128 {
				return false
			}
		}
		return true
	}
	run := &differentialRun{memory: info.Memory != nil}
	for _, g := range info.Globals {
		if g.Type == I32 || g.Type == I64 {
			run.globals = append(run.globals, g.Name)
		}
	}
	m, err := Decode(bin)
	if err != nil {
		return nil, false
	}
	for i := range m.Codes {
		s := scanner{reader: reader{buf: m.Codes[i].Body}}
		for s.next() {
			if s.op>>8 == prefixAtomic {
				return nil, false // wazero's engines trap in different orders, and the host has none.
			}
			run.throws = run.throws || s.op == OpThrow || s.op == OpThrowRef || s.op == OpTryTable
			run.floats = run.floats || s.op>>8 == prefixVec || s.op > 0x8a && s.op < 0xbc
		}
	}
	for _, i := range info.Imports {
		if i.Kind != ExternFunc || !numbers(i.Func) {
			return nil, false
		}
		run.imports = append(run.imports, i)
	}
	for _, e := range info.Exports {
		if e.Kind == ExternFunc && numbers(e.Func) {
			run.exports = append(run.exports, e)
		}
	}
	if info.Memory != nil && info.Memory.Shared {
		return nil, false // It may wait for ever.
	}
	run.exports = run.exports[:min(len(run.exports), 20)]
	run.calls = 1 + 3*len(run.exports)
	return run, true
}

// executedStep is what the instantiation or a call came to.
type executedStep struct {
	Name    string
	Results []uint64
	Err     string
}

// executed is what a module did.
type executed struct {
	steps []executedStep
	fuel  []int64
	paths []int64 // the sum of a profile, for each step
	trace uint64  // a hash of what it called
	end   string  // its memory and globals, hashed
	// exhausted counts the calls that used the stack up, which depends on the frames.
	exhausted int
}

// profiled holds that a profile changes nothing, and that its sum is the fuel of each call.
func (run *differentialRun) profiled(ctx context.Context, bin []byte, want *executed, steps int) error {
	opts := differentialOptions
	opts.Meter, opts.StackBytes, opts.Profile = true, maxStack, true
	for name, coroutines := range map[string]*Coroutines{"profiled": nil, "profiled as one of Go": TestCoroutines} {
		opts.Coroutines = coroutines
		profiled, _, err := Rewrite(bin, opts)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		got, err := run.do(ctx, profiled, wazero.NewRuntimeConfigCompiler(), steps)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if diff := want.differs(got, true); diff != "" {
			return fmt.Errorf("metered -, %s +\n%s", name, diff)
		}
		if want.exhausted+got.exhausted != 0 {
			continue
		}
		for i, spent := range got.fuel {
			// A trap loses what a function has counted, but not in a profile.
			trapped := i < len(got.steps) && got.steps[i].Err != ""
			if i >= len(want.fuel) || want.fuel[i] > spent || want.fuel[i] < spent && !trapped {
				return fmt.Errorf("fuel of each call, metered -, %s +\n%s", name, cmp.Diff(want.fuel, got.fuel))
			}
		}
		if diff := cmp.Diff(got.fuel, got.paths); diff != "" {
			return fmt.Errorf("%s: fuel of each call -, of its paths +\n%s", name, diff)
		}
	}
	return nil
}

func (e *executed) differs(other *executed, whole bool) string {
	n := min(len(e.steps), len(other.steps))
	if diff := cmp.Diff(e.steps[:n], other.steps[:n]); diff != "" {
		return diff
	}
	if len(e.steps) != len(other.steps) || e.end == "" || other.end == "" {
		return ""
	}
	if whole && e.trace != other.trace {
		return "they call other functions, or with other arguments"
	}
	if trapped := slices.ContainsFunc(e.steps, func(s executedStep) bool { return s.Err != "" }); !trapped || whole {
		return cmp.Diff(e.end, other.end)
	}
	return ""
}

// do instantiates a module and makes so many steps, or fewer if the fuel is used up.
func (run *differentialRun) do(ctx context.Context, bin []byte, config wazero.RuntimeConfig, most int) (_ *executed, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	pages, profiled := uint32(fuzzPages), bytes.Contains(bin, []byte(ProfilerModule))
	if profiled {
		pages = MaxPages // The call tree needs more; the guest's memory is capped by its rewriting.
	}
	r := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(allFeatures).WithMemoryLimitPages(pages).WithDebugInfoEnabled(false))
	defer func() {
		_ = r.Close(context.Background())
		if p := recover(); p != nil {
			err = fmt.Errorf("wazero panicked: %v", p)
		}
	}()
	out := &executed{}
	if err := run.stubs(ctx, r, &out.trace); err != nil {
		return nil, err
	}
	var tree *testTree
	if profiled {
		if tree, err = newTestTree(ctx, r); err != nil {
			return nil, err
		}
	}
	granted, calls := int64(0), 0
	_, err = r.NewHostModuleBuilder(YieldModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, mod api.Module, _ []uint64) {
			fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
			if granted > 0 {
				panic(errFuel)
			}
			granted = fuzzFuel - int64(fuel.Get())
			tree.grant(granted)
			fuel.Set(fuzzFuel)
		}), nil, nil).Export(YieldName).Instantiate(ctx)
	if err != nil {
		return nil, err
	}
	done := func(name string, results []uint64, err error) bool {
		calls++
		o := outcomeOf(results, err)
		if errors.Is(err, errFuel) || strings.Contains(o.err, "module closed with context") {
			return true
		}
		if strings.Contains(o.err, "stack overflow") {
			out.exhausted++
			return true
		}
		out.steps = append(out.steps, executedStep{name, append([]uint64{}, o.results...), o.err})
		return false
	}
	mod, err := r.InstantiateWithConfig(ctx, bin, wazero.NewModuleConfig().WithName("guest").WithStartFunctions())
	if done("instantiate", nil, err) || err != nil {
		if err != nil && !strings.HasPrefix(out.describe(), "start") && strings.Contains(err.Error(), "invalid") {
			return nil, err
		}
		return out, nil
	}
	fuel, _ := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
	out.fuel = append(out.fuel, spentFuel(fuel, granted))
	out.paths = append(out.paths, tree.take(ctx, fuel))
	r2 := rand.New(rand.NewPCG(uint64(len(run.exports)), 3))
	for range 3 {
		for _, e := range run.exports {
			var args []uint64
			for _, p := range e.Func.Params {
				args = append(args, argument(r2, p))
			}
			if calls >= most {
				out.end = run.state(mod)
				return out, nil
			}
			granted = 0
			if fuel != nil {
				fuel.Set(fuzzFuel)
				granted = fuzzFuel
				tree.refill(fuzzFuel)
			}
			if stack, ok := mod.ExportedGlobal(StackGlobal).(api.MutableGlobal); ok {
				stack.Set(maxStack)
			}
			results, err := mod.ExportedFunction(e.Name).Call(ctx, args...)
			if done(e.Name, canonical(results, e.Func.Results), err) {
				return out, nil
			}
			out.fuel = append(out.fuel, spentFuel(fuel, granted))
			out.paths = append(out.paths, tree.take(ctx, fuel))
		}
	}
	out.end = run.state(mod)
	return out, nil
}

func (e *executed) describe() string {
	if len(e.steps) == 0 {
		return ""
	}
	return e.steps[0].Err
}

func spentFuel(fuel api.MutableGlobal, granted int64) int64 {
	if fuel == nil {
		return 0
	}
	return granted - int64(fuel.Get())
}

// state is a hash of the memory and the globals, unless the module has floats in it.
func (run *differentialRun) state(mod api.Module) string {
	h := fnv.New64a()
	if run.memory {
		mem := mod.Memory()
		fmt.Fprint(h, mem.Size())
		if !run.floats {
			data, _ := mem.Read(0, mem.Size())
			h.Write(data)
		}
	}
	for _, name := range run.globals {
		if g := mod.ExportedGlobal(name); g != nil && !run.floats {
			fmt.Fprint(h, g.Get())
		}
	}
	return fmt.Sprintf("%x", h.Sum64())
}

// stubs gives a runtime the functions that a module imports. What they return depends on what
// they are called with, and on how often.
func (run *differentialRun) stubs(ctx context.Context, r wazero.Runtime, trace *uint64) error {
	builders := map[string]wazero.HostModuleBuilder{}
	seen := map[[2]string]bool{}
	for _, i := range run.imports {
		if seen[[2]string{i.Module, i.Name}] {
			continue
		}
		seen[[2]string{i.Module, i.Name}] = true
		b := builders[i.Module]
		if b == nil {
			b = r.NewHostModuleBuilder(i.Module)
			builders[i.Module] = b
		}
		b.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			h := fnv.New64a()
			fmt.Fprint(h, i.Name, *trace)
			for _, v := range canonical(slices.Clone(stack[:len(i.Func.Params)]), i.Func.Params) {
				_ = binary.Write(h, binary.LittleEndian, v)
			}
			*trace = h.Sum64()
			for n, t := range i.Func.Results {
				stack[n] = argument(rand.New(rand.NewPCG(*trace, uint64(n))), t)
			}
		}), valueTypes(i.Func.Params), valueTypes(i.Func.Results)).Export(i.Name)
	}
	for _, b := range builders {
		if _, err := b.Instantiate(ctx); err != nil {
			return err
		}
	}
	return nil
}

func valueTypes(list []ValType) []api.ValueType {
	out := make([]api.ValueType, len(list))
	for i, t := range list {
		out[i] = api.ValueType(t)
	}
	return out
}

// argument is a number of a type, of those that matter now and then.
func argument(r *rand.Rand, t ValType) uint64 {
	numbers := []uint64{0, 1, 2, 3, 7, 8, 64, 255, 1 << 15, 1<<16 - 1, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, 1<<64 - 1, r.Uint64(), r.Uint64N(1000)}
	v := numbers[r.IntN(len(numbers))]
	switch t {
	case I32:
		return uint64(uint32(v))
	case F32:
		return uint64(math.Float32bits(float32(int32(v)) / 4))
	case F64:
		return math.Float64bits(float64(int64(v)) / 4)
	}
	return v
}

// canonical makes one NaN of all: which one an operation returns is open.
func canonical(values []uint64, list []ValType) []uint64 {
	for i := range min(len(values), len(list)) {
		switch v := values[i]; list[i] {
		case F32:
			if values[i] = uint64(uint32(v)); math.IsNaN(float64(math.Float32frombits(uint32(v)))) {
				values[i] = 0x7fc00000
			}
		case F64:
			if math.IsNaN(math.Float64frombits(v)) {
				values[i] = 0x7ff8000000000000
			}
		case I32:
			values[i] = uint64(uint32(v))
		}
	}
	return values
}

// specModules are the small modules of the specification suite, all and those that are valid.
func specModules(t testing.TB) (all, valid [][]byte) {
	for suite := range specSuites {
		for _, file := range specFiles(t, suite, "*.wasm") {
			bin, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if len(bin) < 20_000 {
				all = append(all, bin)
			}
		}
	}
	slices.SortFunc(all, bytes.Compare)
	for _, bin := range all {
		if ok, _ := acceptedBy(bin, wazero.NewRuntimeConfigInterpreter()); ok {
			valid = append(valid, bin)
		}
	}
	return all, valid
}

// alike are instructions that take and leave the same.
var alike = [][]byte{
	{0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x71, 0x71, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78,
		0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f},
	{0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x83, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a},
	{0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a},
	{0x45, 0x67, 0x68, 0x69, 0xc0, 0xc1},
	{0x79, 0x7a, 0x7b, 0xc2, 0xc3, 0xc4},
	{0x28, 0x2c, 0x2d, 0x2e, 0x2f}, {0x29, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35},
	{0x36, 0x3a, 0x3b}, {0x37, 0x3c, 0x3d, 0x3e},
	{OpBr, OpBrIf}, {OpBlock, OpLoop}, {OpLocalGet, OpLocalTee}, {OpLocalSet, OpLocalTee},
}

// mutateCode changes instructions of a module to others, mostly so that it stays valid.
func mutateCode(r *rand.Rand, bin []byte) bool {
	m, err := Decode(bin)
	if err != nil || len(m.Codes) == 0 {
		return false
	}
	changed := false
	for range 1 + r.IntN(8) {
		c := &m.Codes[r.IntN(len(m.Codes))]
		type place struct {
			op, at int
			imm    uint32
		}
		var places []place
		for s := (scanner{reader: reader{buf: c.Body}}); s.next(); {
			places = append(places, place{s.op, s.at, s.imm})
		}
		if len(places) == 0 {
			continue
		}
		p := places[r.IntN(len(places))]
		for _, list := range alike {
			if slices.Contains(list, byte(p.op)) && p.op < 0xfb && r.IntN(2) == 0 {
				c.Body[p.at] = list[r.IntN(len(list))] // The body is part of bin.
				changed = true
			}
		}
		switch {
		case p.op == OpI32Const || p.op == OpI64Const:
			if c.Body[p.at+1] < 0x80 {
				c.Body[p.at+1] = []byte{0, 0, 1, 2, 0x7f, 0x40, 8, byte(r.IntN(0x80))}[r.IntN(8)]
				changed = true
			}
		case (p.op == OpLocalGet || p.op == OpLocalSet || p.op == OpBr || p.op == OpBrIf) && p.imm < 0x80:
			c.Body[p.at+1] = byte(r.IntN(int(p.imm) + 2))
			changed = true
		}
	}
	return changed
}

// mutate changes some instructions or some bytes of a module.
func mutate(r *rand.Rand, suite, valid [][]byte) []byte {
	if r.IntN(3) > 0 {
		suite = valid
	}
	bin := bytes.Clone(suite[r.IntN(len(suite))])
	if len(bin) < 9 || r.IntN(3) > 0 && mutateCode(r, bin) {
		return bin
	}
	interesting := []byte{0, 1, 2, 3, 4, 5, OpEnd, OpBr, OpBrIf, OpBrTable, OpReturn, OpCall, OpDrop, OpSelect, OpLocalGet, OpLocalSet, OpLocalTee,
		OpI32Eqz, OpI32LtS, OpI32GtU, OpI32And, OpI64And, 0x40, 0x7f, 0x7e, 0x80, 0xff}
	for range 1 + r.IntN(3) {
		at := 8 + r.IntN(len(bin)-8)
		switch r.IntN(6) {
		case 0:
			bin[at] ^= 1 << r.IntN(8)
		case 1:
			bin[at] = interesting[r.IntN(len(interesting))]
		case 2:
			bin[at]++
		case 3:
			bin[at] = byte(r.Uint32())
		case 4: // Two instructions, or what lies there, change places.
			n := min(1+r.IntN(4), len(bin)-at)
			m := min(1+r.IntN(4), len(bin)-at-n)
			copy(bin[at:], slices.Concat(bin[at+n:at+n+m], bin[at:at+n]))
		default: // Written over with what stands elsewhere.
			from := 8 + r.IntN(len(bin)-8)
			n := min(1+r.IntN(8), len(bin)-max(at, from))
			copy(bin[at:at+n], bytes.Clone(bin[from:from+n]))
		}
	}
	return bin
}

// translateToFuzz has binaryen make a module of random bytes.
func translateToFuzz(t *testing.T, file string, r *rand.Rand) []byte {
	dir, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		t.Error(err)
		return nil
	}
	defer os.RemoveAll(dir)
	data := make([]byte, 200+r.IntN(4000))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.wasm")
	if err := os.WriteFile(in, data, 0o600); err != nil {
		t.Error(err)
		return nil
	}
	args := []string{in, "-ttf", "-o", out, "--denan", "-q", "--enable-bulk-memory", "--enable-sign-ext", "--enable-mutable-globals",
		"--enable-nontrapping-float-to-int", "--enable-multivalue"}
	if level := r.IntN(4); level > 0 {
		args = append(args, fmt.Sprint("-O", level))
	}
	if text, err := exec.Command(file, args...).CombinedOutput(); err != nil {
		t.Errorf("wasm-opt %v: %v\n%s", args, err, text)
		return nil
	}
	bin, err := os.ReadFile(out)
	if err != nil {
		t.Error(err)
	}
	return bin
}
