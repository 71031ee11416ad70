package wasmbin

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"

	"github.com/tetratelabs/wazero"
)

// TestListsOfManyFunctions compares what the compiler holds at a time, for modules with functions of
// two shapes in turn, with the estimate of what it keeps of all together and of the largest alone.
// With -families above 1 it tries each kind of values in each shape of code.
func TestListsOfManyFunctions(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiles large modules")
	}
	const slack = 8 << 20 // The module, and machine code that is done.
	kinds, shapes := kindsOfValues(), shapesOfCode()
	often := []string{"operands across ifs", "locals across ifs that return", "locals across arms that set a local", "locals across loops that set a local", "locals across branches that carry a local each"}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, s := range slices.Sorted(maps.Keys(shapes)) {
			name := fmt.Sprintf("%s across %s", kind, s)
			if *families == 1 && !slices.Contains(often, name) {
				continue
			}
			var m module
			m.Memories = []Limits{{Min: 1}}
			m.fn("callee", nil, nil, nil)
			for n := range 10 {
				size := []struct{ values, times int }{{600, 60}, {30, 1200}}[n%2]
				addFamily(&m, kinds[kind], shapes[s], size.values, size.times)
			}
			m.Elements = []Element{{Flags: 3, Funcs: []uint32{0, uint32(len(m.Codes) - 1)}}}
			bin := m.Encode()
			rewritten, _ := rewriteFor(t, bin, Options{Meter: true, StackBytes: maxStack})
			of := complexitiesOf(t, bin)
			estimate := heldTogether(of)
			for i := range of {
				estimate = max(estimate, heldTogether(of)+of[i].bytes())
			}
			if live := liveWhileCompiling(t, rewritten); live > estimate+slack {
				t.Errorf("%s: the estimate is %d bytes, the compiler holds %d", name, estimate, live)
			} else {
				t.Logf("%s: %d MB of %d", name, live>>20, estimate>>20)
			}
		}
	}
}

// TestRectanglesThatCoverOneAnotherCountOnce has the figures of a policy of Kubewarden in Go, whose
// largest function has 6,880 blocks and reads 662 values, beside 104 that have less of both.
func TestRectanglesThatCoverOneAnotherCountOnce(t *testing.T) {
	for name, test := range map[string]struct {
		of   []rectangle
		want uint64
	}{
		"none":         {nil, 0},
		"one":          {[]rectangle{{3, 4}}, 12},
		"the same":     {[]rectangle{{3, 4}, {3, 4}}, 12},
		"within":       {[]rectangle{{3, 4}, {2, 1}}, 12},
		"a corner":     {[]rectangle{{3, 4}, {10, 1}}, 19},
		"three":        {[]rectangle{{1, 10}, {10, 1}, {5, 5}}, 35},
		"beyond count": {[]rectangle{{maxComplexity, maxComplexity}, {1, 1}}, maxComplexity},
	} {
		if got := covered(test.of); got != test.want {
			t.Errorf("%s: got %d, want %d", name, got, test.want)
		}
	}
	of := []complexity{{blocks: 6880, reads: 662, meeting: 100, merges: 30, edges: 120}}
	for range 104 {
		of = append(of, complexity{blocks: 2500, reads: 150, meeting: 80, merges: 50, edges: 150})
	}
	if got := heldTogether(of); got > 200<<20 {
		t.Errorf("the estimate is %d MB", got>>20)
	}
}

// liveWhileCompiling returns the most bytes that a garbage collection leaves while a module is
// compiled, beyond those before.
func liveWhileCompiling(t *testing.T, bin []byte) (live uint64) {
	t.Helper()
	read := func() uint64 {
		runtime.GC()
		s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(s)
		return s[0].Value.Uint64()
	}
	before := read()
	ctx := t.Context()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigCompiler().WithCoreFeatures(allFeatures))
	defer r.Close(ctx)
	done := make(chan error)
	go func() {
		_, err := r.CompileModule(ctx, bin)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return live
		default:
		}
		if now := read(); now > before {
			live = max(live, now-before)
		}
	}
}
