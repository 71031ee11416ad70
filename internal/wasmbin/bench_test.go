package wasmbin

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// benchSlice is the fuel between two yields, about a millisecond.
const benchSlice = 10_000_000

// compiled keeps the code of large guests, which several tests run.
var compiled = wazero.NewCompilationCache()

// instance instantiates a guest on the compiler, or on the interpreter, with
// WASI and a meter that always refills.
func instance(t testing.TB, config wazero.RuntimeConfig, bin []byte) api.Module {
	t.Helper()
	ctx := context.Background()
	if len(bin) > 1<<20 {
		config = config.WithCompilationCache(compiled)
	}
	r := wazero.NewRuntimeWithConfig(ctx, config.WithCoreFeatures(allFeatures))
	t.Cleanup(func() { _ = r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	_, err := r.NewHostModuleBuilder(YieldModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(func(_ context.Context, mod api.Module, _ []uint64) {
			fuel := mod.ExportedGlobal(FuelGlobal).(api.MutableGlobal)
			fuel.Set(fuel.Get() + benchSlice)
		}), nil, nil).Export(YieldName).Instantiate(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(func(uint32, uint32) {}).
		Export("get_random_string").Instantiate(ctx) // for tinyGoGuest
	if err != nil {
		t.Fatal(err)
	}
	mod, err := r.InstantiateWithConfig(ctx, bin, wazero.NewModuleConfig().WithStartFunctions("_initialize", "_start").WithArgs("guest"))
	if err != nil {
		t.Fatalf("instantiate: %v", err)
	}
	return mod
}

// benchGuest is a function to measure, with the argument to measure it with.
type benchGuest struct {
	name string
	bin  []byte
	fn   string
	n    uint64
}

// benchGuests are tight loops and a recursion, the worst cases, and work of
// guests of standard Go and TinyGo.
func benchGuests(t testing.TB) []benchGuest {
	var m module
	m.Memories = []Limits{{Min: 1}}
	loop := func(body ...any) []any { // while (n != 0) { body; n-- }
		return append(append([]any{OpBlock, BlockTypeEmpty, OpLoop, BlockTypeEmpty, get(0), 0x45, OpBrIf, 1}, body...),
			get(0), i32c(1), 0x6b, set(0), OpBr, 0, OpEnd, OpEnd)
	}
	// x = x*31 + n
	arith := loop(get(1), i64c(31), 0x7e, get(0), OpI64ExtendI32U, 0x7c, set(1))
	m.fn("arith", types(I32), types(I64), types(I64), append(arith, get(1))...)
	// sum += memory[n & 0xffff]; memory[n & 0xffff] = sum
	bytes := loop(get(1), get(0), i32c(0xffff), 0x71, 0x2d, 0, 0, 0x6a, set(1), get(0), i32c(0xffff), 0x71, get(1), 0x3a, 0, 0)
	m.fn("bytes", types(I32), types(I32), types(I32), append(bytes, get(1))...)
	// a loop with arms: if (n&1) x+=3 else x^=n; if (n&6 == 0) x*=5
	branchy := loop(get(0), i32c(1), 0x71, OpIf, BlockTypeEmpty, get(1), i32c(3), 0x6a, set(1), OpElse, get(1), get(0), 0x73, set(1), OpEnd,
		get(0), i32c(6), 0x71, 0x45, OpIf, BlockTypeEmpty, get(1), i32c(5), 0x6c, set(1), OpEnd)
	m.fn("branchy", types(I32), types(I32), types(I32), append(branchy, get(1))...)
	m.fn("fib", types(I32), types(I32), nil, get(0), i32c(2), 0x49, OpIf, int(I32), get(0), OpElse,
		get(0), i32c(1), 0x6b, OpCall, 3, get(0), i32c(2), 0x6b, OpCall, 3, 0x6a, OpEnd)
	bin := m.Encode()
	return []benchGuest{
		{"arith", bin, "arith", 1_000_000},
		{"bytes", bin, "bytes", 1_000_000},
		{"branchy", bin, "branchy", 1_000_000},
		{"fib", bin, "fib", 25},
		{"gojson", goGuest(t), "work", 2},
		{"gohash", goGuest(t), "hash", 64},
		{"gosort", goGuest(t), "sorted", 2000},
		{"tinygofib", tinyGoGuest(t), "fibonacci", 25},
		{"tinygostring", tinyGoGuest(t), "string_manipulation", 300},
		{"tinygomatrix", tinyGoGuest(t), "random_mat_mul", 40},
	}
}

// BenchmarkMetering measures a call of each guest plain, metered, metered after the pass of
// package gowasm, and metered without the limit of the stack. The last row is wazero's own
// way to stop a guest, which is to watch the context. It goes round them in turn and reports
// the minimum of each, so that the ratios hold on a noisy machine. The time per operation
// that the framework reports is that of a round.
func BenchmarkMetering(b *testing.B) {
	for _, g := range benchGuests(b) {
		b.Run(g.name, func(b *testing.B) {
			fuel, _ := rewriteFor(b, g.bin, Options{Meter: true})
			metered, _ := rewriteFor(b, g.bin, Options{Meter: true, StackBytes: maxStack})
			passed, _ := rewriteFor(b, g.bin, Options{Meter: true, StackBytes: maxStack, Pass: TestPass})
			config := wazero.NewRuntimeConfigCompiler()
			functions := []api.Function{
				instance(b, config, g.bin).ExportedFunction(g.fn),
				instance(b, config, metered).ExportedFunction(g.fn),
				instance(b, config, fuel).ExportedFunction(g.fn),
				instance(b, config.WithCloseOnContextDone(true), g.bin).ExportedFunction(g.fn),
				instance(b, config, passed).ExportedFunction(g.fn),
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			best := slices.Repeat([]time.Duration{math.MaxInt64}, len(functions))
			stack := make([]uint64, 1)
			for b.Loop() {
				for i, f := range functions {
					stack[0] = g.n
					start := time.Now()
					if err := f.CallWithStack(ctx, stack); err != nil {
						b.Fatal(err)
					}
					best[i] = min(best[i], time.Since(start))
				}
			}
			b.ReportMetric(float64(best[0]), "plain-ns")
			b.ReportMetric(float64(best[1])/float64(best[0]), "metered/plain")
			b.ReportMetric(float64(best[2])/float64(best[0]), "fuel/plain")
			b.ReportMetric(float64(best[3])/float64(best[0]), "context/plain")
			b.ReportMetric(float64(best[4])/float64(best[0]), "pass/plain")
		})
	}
}

// BenchmarkYield measures the way to the host and back, with a yield function
// that looks up the fuel and refills it.
func BenchmarkYield(b *testing.B) {
	g := newMetered(b, wazero.NewRuntimeConfigCompiler(), endless()["loop"])
	yields := 0
	b.ReportAllocs()
	for b.Loop() {
		yields = 0
		g.yield = func(int64) (int64, error) {
			if yields++; yields == 1000 {
				return 0, errFuel
			}
			return 0, nil
		}
		if _, _, err := g.call("f", 0); !errors.Is(err, errFuel) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/1000, "ns/yield")
}

// BenchmarkCompile measures what metering costs wazero's compiler.
func BenchmarkCompile(b *testing.B) {
	guest := goGuest(b)
	metered, _ := rewriteFor(b, guest, Options{Meter: true})
	for _, v := range []struct {
		name string
		bin  []byte
	}{{"plain", guest}, {"metered", metered}} {
		b.Run(v.name, func(b *testing.B) {
			for b.Loop() {
				r := wazero.NewRuntimeWithConfig(b.Context(), wazero.NewRuntimeConfigCompiler())
				if _, err := r.CompileModule(b.Context(), v.bin); err != nil {
					b.Fatal(err)
				}
				_ = r.Close(b.Context())
			}
			b.ReportMetric(float64(len(v.bin)), "bytes")
		})
	}
}

func BenchmarkRewrite(b *testing.B) {
	bin := goGuest(b)
	for name, pass := range map[string]Pass{"plain": nil, "pass": TestPass} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(bin)))
			for b.Loop() {
				if _, _, err := Rewrite(bin, Options{Meter: true, MaxMemoryPages: 1024, Pass: pass}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
