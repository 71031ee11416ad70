package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// maxSeries is the most series that an agent with four plugins has: a fleet multiplies them.
const maxSeries = 200

// TestSeries counts the series of an agent in each mode, when all of it has worked.
func TestSeries(t *testing.T) {
	built, cache, api := plugins(t), t.TempDir(), newNodeServer(t, nil)
	var four strings.Builder
	for _, p := range []struct{ name, more string }{
		{"group-identity", "levels: [QOS, Pod]"},
		{"cpuset", "levels: [Pod, Container], selector: {qosClasses: [Guaranteed]}"},
		{"batch-resource", "levels: [Pod, Container], selector: {qosClasses: [BestEffort]}"},
		{"cpu-normalization", "levels: [Pod, Container], selector: {qosClasses: [Burstable]}, guestConfig: {ratioPercent: 120}"},
	} {
		fmt.Fprintf(&four, "- {name: %s, module: {file: %s}, failurePolicy: KeepLast, %s}\n", p.name, built["/etc/kubewasm/plugins/"+p.name+".wasm"], p.more)
	}
	for _, mode := range []string{"standalone", "nri", "runtimeHook", "standalone and nri"} {
		t.Run(mode, func(t *testing.T) {
			root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
			if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf("cacheDir: %s\ncgroup: {root: %s, driver: cgroupfs}\nhttp: {address: '127.0.0.1:0'}\nnode: %s\nplugins:\n%s", cache, root, api.config, &four)
			for name, section := range map[string]string{
				"standalone":  fmt.Sprintf("standalone: {file: %s}\n", list),
				"nri":         fmt.Sprintf("nri: {socket: %s}\n", filepath.Join(t.TempDir(), "nri.sock")),
				"runtimeHook": fmt.Sprintf("runtimeHook: {socket: %s}\n", filepath.Join(t.TempDir(), "hook.sock")),
			} {
				if strings.Contains(mode, name) {
					text += section
				}
			}
			_, a := configured(t, text, slog.New(slog.DiscardHandler))
			// Each event of a runtime about each class, as a node has them in a day.
			for stage := abi.PreRunPodSandbox; stage.Known(); stage++ {
				for level := abi.LevelQOS; level.Known(); level++ {
					for class := abi.QOSGuaranteed; class <= abi.QOSBestEffort; class++ {
						req := &hookmsg.Request{Stage: stage, Level: level, QOSClass: class}
						if level != abi.LevelQOS {
							req.Pod = hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}
						}
						if level == abi.LevelContainer {
							req.Container = hookmsg.ContainerMeta{Name: "nginx", ID: "c1"}
						}
						if _, err := a.engine.Decide(t.Context(), req); err != nil {
							t.Fatal(err)
						}
						if stage != abi.PreCreateContainer {
							continue
						}
						late, cancel := context.WithCancel(t.Context())
						cancel()
						a.engine.Decide(late, req) // Which the caller did not wait for.
					}
				}
			}
			// What the four decide on the pods of a node.
			a.state.Put(cgroup.Target{Cgroup: "kubepods/podg", PodUID: "g", Level: abi.LevelPod, Resources: &hookmsg.Resources{
				CPUBvt: new(int64(2)), CPUShares: new(int64(300)), CFSQuotaUS: new(int64(5000)), CPUSetCPUs: new("0-1"), MemoryLimitBytes: new(int64(4096)),
			}})
			a.enforcer.Enforce(t.Context())
			families, err := a.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			var each []string
			for _, f := range families {
				series := 0
				for _, m := range f.Metric {
					switch {
					case m.Histogram != nil:
						series += len(m.Histogram.Bucket) + 3 // And +Inf, the sum and the count.
					case m.Summary != nil:
						series += len(m.Summary.Quantile) + 2
					default:
						series++
					}
				}
				n += series
				each = append(each, fmt.Sprintf("%4d %s", series, f.GetName()))
			}
			if n > maxSeries {
				t.Errorf("there are %d series, want at most %d:\n%s", n, maxSeries, strings.Join(each, "\n"))
			}
			t.Logf("%d series", n)
		})
	}
}
