package hookmetrics_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/hookmetrics"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// values returns the series of a registry that are not 0, durations without what
// they took.
func values(t *testing.T, m *hookmetrics.Metrics) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if v != 0 {
				got[strings.TrimPrefix(f.GetName(), "kubewasm_hooks_")+"{"+strings.Join(labels, ",")+"}"] = v
			}
		}
	}
	return got
}

func TestDecisions(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	metrics := hookmetrics.New(nil)
	plugin := func(name string, order int, policy host.FailurePolicy) hooks.PluginConfig {
		return hooks.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{File: file}, Args: []string{name}}, Order: order, FailurePolicy: policy}
	}
	engine, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Observer: metrics, Plugins: []hooks.PluginConfig{
		plugin("strict", 0, host.Fail), plugin("lenient", 1, host.Ignore),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for _, call := range []struct {
		ctx         context.Context
		annotations map[string]string
	}{
		{t.Context(), map[string]string{"strict": "cpu_shares 5"}},
		{t.Context(), nil},
		{t.Context(), map[string]string{"strict": "cpu_shares 5", "lenient": "error it is Monday"}},
		{t.Context(), map[string]string{"strict": "error it is Monday"}},
		{canceled, nil},
		{late, nil},
	} {
		engine.Decide(call.ctx, &hookmsg.Request{Stage: abi.PreCreateContainer, Level: abi.LevelContainer, PodAnnotations: call.annotations})
	}
	want := map[string]float64{
		"decisions_total{decided,PreCreateContainer}":  2,
		"decisions_total{nothing,PreCreateContainer}":  1,
		"decisions_total{failed,PreCreateContainer}":   1,
		"decisions_total{canceled,PreCreateContainer}": 1,
		"decisions_total{timeout,PreCreateContainer}":  1,
		"decision_duration_seconds{}":                  6,
		"failures_total{status,lenient,Ignore}":        1,
		"failures_total{status,strict,Fail}":           1,
	}
	if diff := cmp.Diff(want, values(t, metrics)); diff != "" {
		t.Error(diff)
	}
}

func TestPasses(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		t.Helper()
		err := os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o755)
		if err := errors.Join(err, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("cgroup.controllers", "cpu\n")
	write("a/cpu.weight", "100\n")
	write("a/cpu.max", "max 100000\n")
	for _, dryRun := range []bool{false, true} {
		t.Run(fmt.Sprintf("dry run %t", dryRun), func(t *testing.T) {
			applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root})
			if err != nil {
				t.Fatal(err)
			}
			defer applier.Close()
			state := new(cgroup.State)
			metrics := hookmetrics.New(state)
			enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{
				State: state, Applier: applier,
				DryRun: dryRun, Contention: cgroup.Contention{Repairs: 2, Period: time.Hour, Backoff: time.Hour}, Observer: metrics,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer enforcer.Close()
			// The first is written, the second has no file.
			quota := int64(50_000)
			state.Put(cgroup.Target{Cgroup: "a", Resources: &hookmsg.Resources{CFSQuotaUS: &quota, MemoryHighBytes: new(int64(1 << 20))}})
			enforcer.Enforce(t.Context())
			for _, drift := range []string{"60000 100000\n", "70000 100000\n", "80000 100000\n"} {
				write("a/cpu.max", drift)
				enforcer.Enforce(t.Context())
			}
			got := values(t, metrics)
			delete(got, "files_compared_total{}")
			want := map[string]float64{
				"pass_duration_seconds{}": 4, "cgroups{}": 1, "refusals_total{unsupported}": 1, "files_left_alone{refused}": 1,
				"drifts_total{cfs_quota_us}": 2, "repairs_total{cfs_quota_us}": 2, "writes_total{cfs_quota_us}": 3,
				"contended_total{cfs_quota_us}": 1, "files_left_alone{contended}": 1,
			}
			if dryRun {
				want = map[string]float64{
					"pass_duration_seconds{}": 4, "cgroups{}": 1, "refusals_total{unsupported}": 1, "files_left_alone{refused}": 1,
					"drifts_total{cfs_quota_us}": 3,
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A name that is not UTF-8 would make Prometheus panic.
func TestNamesOfPlugins(t *testing.T) {
	metrics := hookmetrics.New(nil)
	metrics.Failed(t.Context(), &hookmsg.Request{}, "\xff", host.Ignore, false, errors.New("x"))
	if got := values(t, metrics)["failures_total{other,\uFFFD,Ignore}"]; got != 1 {
		t.Errorf("it was counted %v times", got)
	}
}
