package wasmbin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// allFeatures is everything that wazero has.
const allFeatures = api.CoreFeaturesV2 | experimental.CoreFeaturesThreads | experimental.CoreFeaturesTailCall |
	experimental.CoreFeaturesExtendedConst | experimental.CoreFeaturesExceptionHandling |
	experimental.CoreFeaturesTypedFunctionReferences

// specSuites are the parts of the WebAssembly specification suite in wazero's
// module, with the features that wazero runs them with.
var specSuites = map[string]api.CoreFeatures{
	"v1":                        api.CoreFeaturesV1,
	"v2":                        api.CoreFeaturesV2,
	"threads":                   api.CoreFeaturesV2 | experimental.CoreFeaturesThreads,
	"tail-call":                 api.CoreFeaturesV2 | experimental.CoreFeaturesTailCall,
	"extended-const":            api.CoreFeaturesV2 | experimental.CoreFeaturesExtendedConst,
	"typed-function-references": api.CoreFeaturesV2 | experimental.CoreFeaturesTypedFunctionReferences | experimental.CoreFeaturesTailCall,
	"exception-handling": api.CoreFeaturesV2 | experimental.CoreFeaturesExceptionHandling |
		experimental.CoreFeaturesTailCall | experimental.CoreFeaturesTypedFunctionReferences,
}

// wazeroDir is where the module of wazero is, with the suite and with guests.
var wazeroDir = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/tetratelabs/wazero").Output()
	return strings.TrimSpace(string(out)), err
})

// specFiles returns the files of a suite that the pattern matches.
func specFiles(t testing.TB, suite, pattern string) []string {
	t.Helper()
	dir, err := wazeroDir()
	if err != nil {
		t.Fatalf("find the module of wazero: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "internal", "integration_test", "spectest", suite, "testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("find %s in %s/%s: %d files, %v", pattern, dir, suite, len(files), err)
	}
	return files
}

type specScript struct {
	Commands []specCommand `json:"commands"`
}

type specCommand struct {
	Type       string      `json:"type"`
	Line       int         `json:"line"`
	Name       string      `json:"name"`
	Filename   string      `json:"filename"`
	As         string      `json:"as"`
	ModuleType string      `json:"module_type"`
	Text       string      `json:"text"`
	Expected   []specValue `json:"expected"`
	Action     struct {
		Type   string      `json:"type"`
		Module string      `json:"module"`
		Field  string      `json:"field"`
		Args   []specValue `json:"args"`
	} `json:"action"`
}

type specValue struct {
	Type     string `json:"type"`
	LaneType string `json:"lane_type"`
	Value    any    `json:"value"`
}

// lane is a value, or a lane of one, that is expected or passed: bits of a
// width, or any NaN, or anything.
type lane struct {
	width    int
	bits     uint64
	nan, any bool
}

func (v specValue) lanes(t testing.TB) []lane {
	width := func(typ string) int {
		n, err := strconv.Atoi(strings.TrimLeft(typ, "if"))
		if err != nil {
			return 64 // references
		}
		return n
	}
	parse := func(typ string, value any) lane {
		l := lane{width: width(typ)}
		s, ok := value.(string)
		switch {
		case !ok: // any reference
			l.any = true
		case s == "null":
		case strings.HasPrefix(s, "nan"):
			l.nan = true
		case strings.HasPrefix(s, "-"):
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				t.Fatalf("parse %q: %v", s, err)
			}
			l.bits = uint64(n) & (math.MaxUint64 >> (64 - l.width))
		default:
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Fatalf("parse %q: %v", s, err)
			}
			if l.bits = n; typ == "externref" {
				l.bits++ // as in wazero, where 0 is the null reference
			}
		}
		return l
	}
	if v.Type != "v128" {
		return []lane{parse(v.Type, v.Value)}
	}
	var lanes []lane
	for _, x := range v.Value.([]any) {
		lanes = append(lanes, parse(v.LaneType, x))
	}
	return lanes
}

// words returns the value as wazero passes it.
func (v specValue) words(t testing.TB) []uint64 {
	lanes := v.lanes(t)
	if len(lanes) == 1 {
		return []uint64{lanes[0].bits}
	}
	words := make([]uint64, 2)
	for i, l := range lanes {
		words[i*l.width/64] |= l.bits << (i * l.width % 64)
	}
	return words
}

// matches reports whether wazero's results are the expected ones.
func matches(t testing.TB, expected []specValue, results []uint64) bool {
	for _, e := range expected {
		for i, l := range e.lanes(t) {
			word := i * l.width / 64
			if word >= len(results) {
				return false
			}
			got := results[word] >> (i * l.width % 64) & (math.MaxUint64 >> (64 - l.width))
			switch {
			case l.any:
			case l.nan && l.width == 32:
				if !math.IsNaN(float64(math.Float32frombits(uint32(got)))) {
					return false
				}
			case l.nan:
				if !math.IsNaN(math.Float64frombits(got)) {
					return false
				}
			case got != l.bits:
				return false
			}
		}
		results = results[len(e.words(t)):]
	}
	return len(results) == 0
}

// specWorld runs the commands of one script, plain or rewritten.
type specWorld struct {
	t       testing.TB
	runtime wazero.Runtime
	rewrite func([]byte) ([]byte, error) // nil to run plain
	dir     string
	modules map[string]api.Module
	last    api.Module
	granted map[api.Module]int64 // the fuel that each instance got
	yields  int
}

// specSlice is the fuel between two yields: little, so that the suite yields
// often.
const specSlice = 1000

func newSpecWorld(t testing.TB, config wazero.RuntimeConfig, dir string, rewrite func([]byte) ([]byte, error)) *specWorld {
	ctx := t.Context()
	w := &specWorld{t: t, rewrite: rewrite, dir: dir, modules: map[string]api.Module{}, granted: map[api.Module]int64{}}
	w.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	t.Cleanup(func() { _ = w.runtime.Close(context.Background()) })
	if rewrite != nil {
		instantiateMeter(t, w.runtime, func(mod api.Module, fuel api.MutableGlobal) {
			w.yields++
			w.granted[mod] += specSlice - int64(fuel.Get())
			fuel.Set(specSlice)
		})
	}
	file := filepath.Join(dir, "..", "..", "testdata", "spectest.wasm")
	if out := w.instantiate(file, "spectest"); out.err != "" {
		t.Fatalf("instantiate %s: %s", file, out.err)
	}
	return w
}

// instantiateMeter gives a runtime the yield function.
func instantiateMeter(t testing.TB, r wazero.Runtime, yield func(api.Module, api.MutableGlobal)) {
	t.Helper()
	_, err := r.NewHostModuleBuilder(YieldModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, mod api.Module, _ []uint64) {
			yield(mod, mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal))
		}), nil, nil).Export(YieldName).Instantiate(t.Context())
	if err != nil {
		t.Fatalf("instantiate the meter: %v", err)
	}
}

// specOutcome is what a command came to. An error is its first line, which
// names the kind of a trap.
type specOutcome struct {
	results []uint64
	err     string
	refused bool // by Rewrite itself
}

func outcomeOf(results []uint64, err error) specOutcome {
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		if _, rest, ok := strings.Cut(line, "] failed: "); ok && strings.HasPrefix(line, "start function[") {
			line = "start function failed: " + rest // without its index, which moves
		}
		return specOutcome{err: line}
	}
	return specOutcome{results: results}
}

func (w *specWorld) instantiate(file, name string) specOutcome {
	bin, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.rewrite != nil {
		if bin, err = w.rewrite(bin); err != nil {
			return specOutcome{err: err.Error(), refused: true}
		}
	}
	mod, err := w.runtime.InstantiateWithConfig(w.t.Context(), bin, wazero.NewModuleConfig().WithName(name))
	if err == nil {
		w.last = mod
		w.granted[mod] += 0
	}
	return outcomeOf(nil, err)
}

// spent is the fuel that all instances have used up to now.
func (w *specWorld) spent() (n int64) {
	for mod, granted := range w.granted {
		if fuel := mod.ExportedGlobal(FuelGlobal); fuel != nil {
			n += granted - int64(fuel.Get())
		}
	}
	return n
}

// unbalanced returns how much stack is missing, of which there must be none
// behind a call that has returned, and sets it anew.
func (w *specWorld) unbalanced() (n int64) {
	for mod := range w.granted {
		if stack := mod.ExportedGlobal(StackGlobal); stack != nil {
			n += maxStack - int64(int32(uint32(stack.Get())))
			stack.(api.MutableGlobal).Set(maxStack)
		}
	}
	return n
}

func (w *specWorld) act(c *specCommand) specOutcome {
	mod := w.last
	if c.Action.Module != "" {
		mod = w.modules[c.Action.Module]
	}
	if c.Action.Type == "get" {
		return specOutcome{results: []uint64{mod.ExportedGlobal(c.Action.Field).Get()}}
	}
	var args []uint64
	for _, a := range c.Action.Args {
		args = append(args, a.words(w.t)...)
	}
	return outcomeOf(mod.ExportedFunction(c.Action.Field).Call(w.t.Context(), args...))
}

// do executes a command. as is the name under which the next command registers
// the module.
func (w *specWorld) do(c *specCommand, as string) specOutcome {
	switch c.Type {
	case "module", "assert_unlinkable", "assert_uninstantiable", "assert_invalid", "assert_malformed":
		last := w.last
		out := w.instantiate(filepath.Join(w.dir, c.Filename), as)
		if c.Type != "module" {
			w.last = last
		} else if c.Name != "" {
			w.modules[c.Name] = w.last
		}
		return out
	default:
		return w.act(c)
	}
}

// specTally counts commands by kind and outcome.
type specTally struct {
	sync.Mutex
	n map[string]int
}

func (s *specTally) add(key string, n int) {
	s.Lock()
	defer s.Unlock()
	s.n[key] += n
}

// TestSpecSuiteRunsTheSameRewritten runs the WebAssembly specification suite
// four times: plain and rewritten with metering on the compiler, rewritten on
// the interpreter, and with a charge for each single instruction. It compares
// every result, trap and refusal, with each other and with what the suite
// expects, and the fuel.
func TestSpecSuiteRunsTheSameRewritten(t *testing.T) {
	if testing.Short() {
		t.Skip("runs half a minute")
	}
	tally := &specTally{n: map[string]int{}}
	t.Run("suites", func(t *testing.T) {
		for suite, features := range specSuites {
			for _, file := range specFiles(t, suite, "*.json") {
				t.Run(suite+"/"+strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
					t.Parallel()
					runSpecScript(t, file, features, tally)
				})
			}
		}
	})
	for _, key := range slices.Sorted(maps.Keys(tally.n)) {
		t.Logf("%6d %s", tally.n[key], key)
	}
}

func runSpecScript(t *testing.T, file string, features api.CoreFeatures, tally *specTally) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var script specScript
	if err := json.Unmarshal(data, &script); err != nil {
		t.Fatal(err)
	}
	metered := func(bin []byte) ([]byte, error) {
		out, _, err := Rewrite(bin, Options{Meter: true, StackBytes: maxStack, LimitComplexity: true})
		return out, err
	}
	passed := func(bin []byte) ([]byte, error) {
		out, _, err := Rewrite(bin, Options{Meter: true, Pass: TestPass})
		return out, err
	}
	compiler := wazero.NewRuntimeConfigCompiler().WithCoreFeatures(features)
	interpreter := wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features)
	dir := filepath.Dir(file)
	plain, rewritten := newSpecWorld(t, compiler, dir, nil), newSpecWorld(t, compiler, dir, metered)
	others := []*specWorld{newSpecWorld(t, interpreter, dir, metered), newSpecWorld(t, compiler, dir, countEach), newSpecWorld(t, compiler, dir, passed)}
	for i := range script.Commands {
		c := &script.Commands[i]
		where := fmt.Sprintf("%s:%d %s %s", filepath.Base(file), c.Line, c.Type, c.Action.Field)
		if c.ModuleType == "text" {
			tally.add("left out: "+c.Type+" of a text module: there is no binary, and wazero has no text parser", 1)
			continue
		}
		if c.Type == "register" {
			continue // done with the module before it
		}
		as := ""
		if i+1 < len(script.Commands) && script.Commands[i+1].Type == "register" {
			as = script.Commands[i+1].As
		}
		before := rewritten.spent()
		want, got := plain.do(c, as), rewritten.do(c, as)
		spent := rewritten.spent() - before
		if n := rewritten.unbalanced(); n != 0 && got.err == "" {
			t.Errorf("%s: %d bytes of stack are not given back", where, n)
		}
		if c.Type != "assert_invalid" && c.Type != "assert_malformed" {
			for i, other := range others {
				before := other.spent()
				if out := other.do(c, as); out.err != got.err && c.Type != "assert_exhaustion" {
					t.Errorf("%s: rewritten %q, in world %d %q", where, got.err, i, out.err)
				}
				if i < 2 { // A guest of Go spends less.
					compareFuel(t, where, c, i == 1, got.err, spent, other.spent()-before, tally)
				}
			}
		}
		if got.refused && want.err != "" {
			tally.add("refused by Rewrite, by wazero too: "+c.Type, 1)
			continue
		}
		if strings.HasSuffix(want.err, "but got funcref") && got.err == "" {
			// (table (ref ...) (ref.null func)): wazero takes the null for a
			// reference to function 0 and lets it pass, if there is a function.
			// Here the only one is yield.
			tally.add("left out: "+c.Type+": wazero accepts ref.null func for a non-nullable table if there is a function 0", 1)
			continue
		}
		validation := c.Type == "assert_invalid" || c.Type == "assert_malformed"
		if want.err != got.err && !(validation && want.err != "" && got.err != "") {
			t.Errorf("%s: plain %q, rewritten %q", where, want.err, got.err)
			continue
		}
		switch c.Type {
		case "assert_return":
			for _, out := range []specOutcome{want, got} {
				if out.err != "" || !matches(t, c.Expected, out.results) {
					t.Errorf("%s(%v): %v %s, want %v", where, c.Action.Args, out.results, out.err, c.Expected)
				}
			}
		case "action":
			if diff := cmp.Diff(want.results, got.results); diff != "" {
				t.Errorf("%s: plain -, rewritten +\n%s", where, diff)
			}
		}
		switch kind := c.Type; {
		case c.Type == "assert_trap" || c.Type == "assert_exhaustion" || c.Type == "assert_exception":
			tally.add("same: "+kind+": "+want.err, 1)
		case want.err == "":
			tally.add("same: "+kind, 1)
		case want.err == got.err:
			tally.add("same: "+kind+": refused by wazero in the same words", 1)
		default:
			tally.add("same: "+kind+": refused by wazero in other words", 1)
		}
	}
	tally.add("yields", rewritten.yields)
}

// compareFuel checks that a command spent the same fuel as in another world. In
// the world that counts each instruction a trap or an exception spends less, as
// the rest of the region that it cuts short is not counted.
func compareFuel(t *testing.T, where string, c *specCommand, counted bool, err string, spent, other int64, tally *specTally) {
	thrown := strings.Contains(where, "throw") || strings.Contains(where, "try_table")
	switch {
	case c.Type == "assert_exhaustion":
		tally.add("fuel left out: assert_exhaustion: the depth of the stack depends on the size of frames", 1)
	case spent == other && counted:
		tally.add("fuel: exactly the instructions that ran", 1)
	case spent == other:
		tally.add("fuel: the same on the interpreter", 1)
	case counted && spent > other && err != "":
		tally.add("fuel: more than the instructions that ran, because of a trap", 1)
	case counted && spent > other && thrown:
		tally.add("fuel: more than the instructions that ran, because of an exception", 1)
	default:
		t.Errorf("%s: spent %d, in the other world %d (each instruction counted: %v)", where, spent, other, counted)
	}
}

// countEach rewrites like Rewrite, but with a charge in front of each
// instruction, which is easy to be sure of.
func countEach(bin []byte) ([]byte, error) {
	m, err := Decode(bin)
	if err != nil {
		return nil, err
	}
	rw := &rewriter{Module: m, opts: Options{Meter: true}, info: &Info{}, yield: m.imported(ExternFunc)}
	code := func() error {
		b := rw.bodies()
		for i := range m.Codes {
			c := &m.Codes[i]
			locals := uint64(len(rw.types[m.Functions[i]].Params)) + c.NumLocals
			bulk, err := b.scan(0, c, locals)
			if err != nil {
				return err
			}
			rw.refers = rw.refers || b.refers
			b.reference = locals + 1
			var edits []edit
			for _, e := range b.edits {
				if e.kind >= editIndex && e.kind < editSave { // It counts in the global.
					edits = append(edits, e)
				}
			}
			s := scanner{reader: reader{buf: c.Body}}
			var constant uint32
			for s.next() {
				cost := uint64(1)
				switch {
				case free(s.op):
					cost = 0
				case s.op == OpMemoryCopy || s.op == OpMemoryFill || s.op == OpMemoryInit:
					if constant < (leafCost+1)*BytesPerFuel { // Longer ones are among the edits.
						cost += uint64(constant / BytesPerFuel)
					}
				}
				constant = s.constant()
				edits = append(edits, edit{at: s.at, end: s.at, kind: editCharge, cost: cost})
			}
			slices.SortStableFunc(edits, func(a, b edit) int { return 64*(a.at-b.at) + int(a.kind) - int(b.kind) }) // Charges first.
			b.edits = edits
			c.Body = b.emit(nil, c.Body, locals, 0)
			if bulk || b.refers {
				c.LocalGroups += 2
				c.Locals = append(c.Locals, 1, byte(I32), 1, byte(FuncRef))
			}
		}
		return nil
	}
	for _, step := range []func() error{rw.capMemory, rw.capTables, rw.describe, code, rw.indexes, rw.addMeter} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return m.Encode(), nil
}

// TestRoundTripOfTheSpecSuite decodes and encodes all binaries of the
// specification suite.
func TestRoundTripOfTheSpecSuite(t *testing.T) {
	var same, shorter, refused int
	for suite := range specSuites {
		for _, file := range specFiles(t, suite, "*.wasm") {
			bin, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Decode(bin)
			if err != nil {
				refused++
				continue
			}
			out := m.Encode()
			again, err := Decode(out)
			if err != nil {
				t.Errorf("%s: decode what was encoded: %v", file, err)
				continue
			}
			switch {
			case bytes.Equal(bin, out):
				same++
			case len(out) < len(bin) && bytes.Equal(again.Encode(), out):
				shorter++ // padded integers or empty sections
			default:
				t.Errorf("%s: encoded to %d bytes, want at most %d, and the same each time", file, len(out), len(bin))
			}
		}
	}
	t.Logf("%d equal to the byte, %d shorter (padded integers, empty sections), %d malformed", same, shorter, refused)
}
