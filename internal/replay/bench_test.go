package replay_test

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// BenchmarkRecording compares calls that are recorded with those that are not, in turn, so that
// the load of the machine falls on both. It reports the least times.
func BenchmarkRecording(b *testing.B) {
	module, err := os.ReadFile(filepath.Join("..", "..", "host", "testdata", "good.wasm"))
	if err != nil {
		b.Fatal(err)
	}
	rt, dir := newRuntime(b), b.TempDir()
	load := func(cfg *record.Config) *host.Plugin {
		p, err := rt.Load(b.Context(), host.Config{
			Name: "good", Module: host.ModuleConfig{Bytes: module}, GuestConfig: []byte(`{"zone": "a"}`), Record: cfg, Limits: host.Limits{Instances: 1},
		}, host.Adapter{Kind: abi.KindScheduler})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	off, on := load(nil), load(&record.Config{Path: dir, MaxBytes: 256 << 20, QueueBytes: 1 << 30})
	const batch = 1000
	run := func(p *host.Plugin) time.Duration {
		start := time.Now()
		for n := range uint64(batch) {
			inst, err := p.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if _, err := inst.Call(b.Context(), abi.Filter, 0, 0, n); err != nil {
				b.Fatal(err)
			}
			inst.Release()
		}
		return time.Since(start)
	}
	calls := uint64(0)
	least := [2]time.Duration{time.Hour, time.Hour}
	for range max(20, b.N/batch) {
		least[0], least[1] = min(least[0], run(off)), min(least[1], run(on))
		// What is measured is the caller's time: the queue is empty before each batch.
		for calls += batch; ; goruntime.Gosched() {
			if s := rt.Recorders()[dir]; s.Recorded+s.Dropped >= calls {
				break
			}
		}
	}
	b.ReportMetric(float64(least[0].Nanoseconds())/batch, "off-ns/call")
	b.ReportMetric(float64(least[1].Nanoseconds())/batch, "on-ns/call")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(rt.Recorders()[dir].Dropped), "dropped")
}
