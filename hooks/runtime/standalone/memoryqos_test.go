package standalone_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// The kubelet's feature MemoryQoS sets memory.min, low and high of pods and containers when they are
// made, and never again: a plugin that does not decide them any more gives these amounts back.
func TestReconcilerGivesBackWhatMemoryQoSHasSet(t *testing.T) {
	root := t.TempDir()
	const container = "kubepods/burstable/poda/ac"
	files := func(of string) string { return filepath.Join(root, of) }
	write := func(of, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(files(of)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files(of), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "cpu memory")
	for _, of := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort", "kubepods/burstable/poda"} {
		for file, text := range map[string]string{"cpu.weight": "100", "cpu.max": "max 100000", "memory.min": "0", "memory.low": "0", "memory.high": "max", "memory.max": "max"} {
			write(of+"/"+file, text)
		}
	}
	kubelets := map[string]string{"memory.min": "33554432", "memory.low": "0", "memory.high": "60000000"}
	reset := func(values map[string]string) {
		t.Helper()
		for file, text := range map[string]string{"cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "67108864"} {
			write(container+"/"+file, text)
		}
		for file, text := range values {
			write(container+"/"+file, text)
		}
	}
	read := func() map[string]string {
		t.Helper()
		got := map[string]string{}
		for file := range kubelets {
			b, err := os.ReadFile(files(container + "/" + file))
			if err != nil {
				t.Fatal(err)
			}
			got[file] = strings.TrimSpace(string(b))
		}
		return got
	}
	const decides = "memory_min_bytes 1048576\nmemory_high_bytes 50331648"
	decided := map[string]string{"memory.min": "1048576", "memory.low": "0", "memory.high": "50331648"}
	list := filepath.Join(t.TempDir(), "pods.json")
	engine, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}}, Owns: []string{"memory_min_bytes", "memory_low_bytes", "memory_high_bytes"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.Background())
	for name, c := range map[string]struct{ before, after map[string]string }{
		"the kubelet has set them":                             {kubelets, kubelets},
		"the kubelet has set nothing":                          {map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"}, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"}},
		"an earlier process of the agent has decided the same": {decided, map[string]string{"memory.min": "0", "memory.low": "0", "memory.high": "max"}},
	} {
		t.Run(name, func(t *testing.T) {
			reset(c.before)
			applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root})
			if err != nil {
				t.Fatal(err)
			}
			defer applier.Close()
			state := new(cgroup.State)
			enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: state, Applier: applier})
			if err != nil {
				t.Fatal(err)
			}
			defer enforcer.Close()
			r, err := standalone.New(standalone.Config{Engine: engine, State: state, Enforcer: enforcer, Discovery: standalone.File(list)})
			if err != nil {
				t.Fatal(err)
			}
			sync := func(script string, want map[string]string) {
				t.Helper()
				b, err := json.Marshal(pod("a", script))
				if err == nil {
					err = os.WriteFile(list, b, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, read()); diff != "" {
					t.Errorf("after %q (-want +got):\n%s", script, diff)
				}
			}
			sync("", c.before)
			sync(decides, decided)
			sync(decides, decided)
			sync("", c.after)
		})
	}
}
