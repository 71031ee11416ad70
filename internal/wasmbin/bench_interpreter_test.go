//go:build unix

package wasmbin

import (
	"syscall"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// BenchmarkInterpreter measures a call of each guest, metered, on wazero's interpreter and on
// its compiler. Calls on the interpreter are long, and wait for processors on a busy machine,
// so what counts is processor time. It reports the minimum on the compiler and the ratio of
// the minima.
func BenchmarkInterpreter(b *testing.B) {
	for _, g := range benchGuests(b) {
		b.Run(g.name, func(b *testing.B) {
			bin, _ := rewriteFor(b, g.bin, Options{Meter: true, StackBytes: maxStack, Pass: TestPass})
			compiled := instance(b, wazero.NewRuntimeConfigCompiler(), bin).ExportedFunction(g.fn)
			interpreted := instance(b, wazero.NewRuntimeConfigInterpreter(), bin).ExportedFunction(g.fn)
			// Processor time is counted in microseconds, so that short calls are repeated.
			const calls = 20
			var on, off time.Duration
			for b.Loop() {
				on = least(on, processorTime(b, compiled, g.n, calls)/calls)
				off = least(off, processorTime(b, interpreted, g.n, 1))
			}
			b.ReportMetric(float64(on), "compiler-ns")
			b.ReportMetric(float64(off)/float64(on), "interpreter/compiler")
		})
	}
}

// least returns the smaller of two times, of which 0 is none.
func least(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// processorTime returns how long the process computes while it makes some calls.
func processorTime(b *testing.B, f api.Function, n uint64, calls int) time.Duration {
	now := func() time.Duration {
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			b.Fatal(err)
		}
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	stack := make([]uint64, 1)
	start := now()
	for range calls {
		stack[0] = n
		if err := f.CallWithStack(b.Context(), stack); err != nil {
			b.Fatal(err)
		}
	}
	return now() - start
}
