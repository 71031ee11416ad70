package host_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// zone is the configuration of a real guest, Go's, with the one thing that it asks
// for.
func zone(t testing.TB) guest {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	cfg := guest{host.Config{Name: "zone", Module: host.ModuleConfig{File: file}}, host.Adapter{Kind: abi.KindScheduler}}
	node := labelled()
	encoder := (*objects.FieldSet)(nil).Node() // Of all fields.
	object := func(name string, answer func(inst *host.Instance, stack []uint64) uint32, params ...abi.ValueType) host.Import {
		return host.Import{
			Module: abi.ModuleObjects, Name: name, Params: params, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) { stack[0] = uint64(answer(inst, stack)) },
		}
	}
	refuse := func(inst *host.Instance) []byte { return nil }
	cfg.Imports = []host.Import{
		object("object", func(inst *host.Instance, stack []uint64) uint32 {
			return inst.Write(uint32(stack[1]), uint32(stack[2]), encoder.Append(nil, node))
		}, abi.I64, abi.I32, abi.I32),
		object("object_part", func(inst *host.Instance, stack []uint64) uint32 {
			return inst.Write(uint32(stack[3]), uint32(stack[4]), encoder.AppendPart(nil, node, uint32(stack[1]), stack[2]))
		}, abi.I64, abi.I32, abi.I64, abi.I32, abi.I32),
		object("object_entry", func(inst *host.Instance, stack []uint64) uint32 {
			value, ok := encoder.Entry(node, uint32(stack[1]), string(inst.Read(uint32(stack[2]), uint32(stack[3]))))
			if n := inst.Write(uint32(stack[4]), uint32(stack[5]), []byte(value)); ok {
				return n
			}
			return abi.NoEntry
		}, abi.I64, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
	}
	// The SDK imports all that a plugin may need; Filter calls none of it.
	for _, name := range []string{
		"node_scores", "node_names", "node_name", "node_statuses", "pod_group", "placement",
	} {
		cfg.Imports = append(cfg.Imports, host.ToGuest(abi.KindScheduler.Module(), name, refuse))
	}
	for _, name := range []string{
		"result_scores", "result_node_names", "result_cluster_events", "result_nominated_node_name",
		"result_sign_fragments", "result_nominations", "result_placements", "result_victims", "result_pods",
	} {
		cfg.Imports = append(cfg.Imports, host.FromGuest(abi.KindScheduler.Module(), name, func(*host.Instance, []byte) {}))
	}
	cfg.Imports = append(cfg.Imports, host.Import{
		Module: abi.KindScheduler.Module(), Name: "result_score", Params: []abi.ValueType{abi.I64}, Func: func(*host.Instance, []uint64) {},
	})
	return cfg
}

// labelled is a Node of 4 KB, whose metadata are those of a Pod, too.
func labelled() *corev1.Node {
	labels := map[string]string{}
	for i := range byte(40) {
		labels["example.com/a-label-with-a-long-name-as-is-usual-"+string('a'+i%26)+string('a'+i/26)] = "and-its-value-which-is-shorter"
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: labels}}
}

// filter is what the scheduler asks a plugin for one Pod and one Node.
func filter(t testing.TB, inst *host.Instance, ref uint32) {
	t.Helper()
	pod, node := uint64(abi.MakeRef(ref, 1)), uint64(abi.MakeRef(ref, 2))
	if _, err := inst.Call(t.Context(), abi.PreFilter, uint64(abi.MakeRef(ref, 3)), pod); err != nil {
		t.Fatal(err)
	}
	if _, err := inst.Call(t.Context(), abi.Filter, uint64(abi.MakeRef(ref, 3)), pod, node); err != nil {
		t.Fatal(err)
	}
}

func loadWith(t testing.TB, cfg guest, plain bool) *host.Plugin {
	t.Helper()
	if !plain {
		return loadGo(t, cfg)
	}
	rt := newRuntime(t)
	rt.UsePlainMemory()
	return loadIn(t, rt, cfg)
}

var memories = map[string]bool{"copy on write": false, "plain": true}

// BenchmarkReset takes an instance, runs a Go guest and gives it back.
func BenchmarkReset(b *testing.B) {
	for name, plain := range memories {
		for call, run := range map[string]func(*host.Instance){
			"nothing": func(*host.Instance) {},
			"filter":  func(inst *host.Instance) { filter(b, inst, 1) },
			"trap": func(inst *host.Instance) {
				if _, err := inst.Call(b.Context(), abi.Filter, 0, 0, 0); err == nil {
					b.Fatal("no trap")
				}
			},
		} {
			for policy, reset := range map[string]host.ResetPolicy{"on error": host.ResetOnError, "per call": host.ResetPerCall} {
				b.Run(name+"/"+call+"/"+policy, func(b *testing.B) {
					cfg := zone(b)
					cfg.Reset = reset
					p := loadWith(b, cfg, plain)
					var release time.Duration
					for b.Loop() {
						inst := acquire(b, p)
						run(inst)
						start := time.Now()
						inst.Release()
						release += time.Since(start)
					}
					b.ReportMetric(float64(release.Nanoseconds())/float64(b.N), "ns/release")
				})
			}
		}
	}
}

// BenchmarkInstantiate makes instances of a Go guest: by its start, or from the
// snapshot; without anything more, or with one call.
func BenchmarkInstantiate(b *testing.B) {
	for name, plain := range memories {
		for from, reset := range map[string]host.ResetPolicy{"start": host.ResetNever, "snapshot": host.ResetOnError} {
			for call, run := range map[string]func(*host.Instance){
				"no call": func(*host.Instance) {},
				"filter":  func(inst *host.Instance) { filter(b, inst, 1) },
			} {
				b.Run(name+"/"+from+"/"+call, func(b *testing.B) {
					cfg := zone(b)
					cfg.Reset = reset
					cfg.Limits.Instances = 64
					p := loadWith(b, cfg, plain)
					held := make([]*host.Instance, 0, 64)
					release := func() {
						for _, inst := range held {
							inst.Release()
						}
						held = held[:0]
					}
					for b.Loop() {
						if len(held) == 64 {
							b.StopTimer()
							release()
							if err := p.Close(context.Background()); err != nil {
								b.Fatal(err)
							}
							p = loadWith(b, cfg, plain)
							b.StartTimer()
						}
						inst := acquire(b, p)
						run(inst)
						held = append(held, inst)
					}
					release()
				})
			}
		}
	}
}
