package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/sched/kube137"

	admissionv1 "k8s.io/api/admission/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// Ordinary guests do ordinary work with a tenth of what the host gives by
// default, so that users need not set limits before a guest misbehaves.
func TestDefaultLimitsAreTenTimesWhatGuestsNeed(t *testing.T) {
	given := host.DefaultLimits()
	limits := host.Limits{
		MemoryBytes: given.MemoryBytes / 10, Fuel: given.Fuel / 10, StackBytes: given.StackBytes / 10,
		OutputBytes: given.OutputBytes / 10, ResultBytes: given.ResultBytes / 10, Instances: 1,
	}
	tests := []struct {
		dir, config string
		work        func(t *testing.T, rt *host.Runtime, cfg host.Config)
	}{
		{"../../examples/sched/zone", `{"defaultZones": ["eu-central-1a", "eu-central-1b"]}`, schedules},
		{"../../examples/sched/image-locality", ``, schedules},
		{"../../examples/admission/required-labels", `{"labels": ["app", "team"], "registries": ["registry.example.com/"]}`, reviews},
		{"../../examples/admission/resource-defaults", `{"cpu": "100m", "memory": "128Mi"}`, reviews},
		{"../../examples/hooks/batch-resource", `{"cfsQuota": true, "ratioPercent": 120}`, decides},
		{"../../examples/hooks/cpu-from-annotation", ``, decides},
		{"../../examples/hooks/cpu-normalization", `{"ratioPercent": 120}`, decides},
		{"../../examples/hooks/cpuset", `{"sharePools": [{"node": 0, "cpuset": "0-3"}, {"node": 1, "cpuset": "4-7"}]}`, decides},
		{"../../examples/hooks/gpu-environment", `{"library": "/opt/libvgpu.so"}`, decides},
		{"../../examples/hooks/group-identity", `{"lsr": 2, "ls": 2, "be": -1}`, decides},
	}
	for _, test := range tests {
		t.Run(path.Base(test.dir), func(t *testing.T) {
			file, err := guestbuild.Build(t.Context(), test.dir)
			if err != nil {
				t.Fatal(err)
			}
			rt, err := host.NewRuntime(host.RuntimeConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.WithoutCancel(t.Context()))
			needs := &needs{}
			test.work(t, rt, host.Config{Name: "p", Module: host.ModuleConfig{File: file}, GuestConfig: []byte(test.config), Limits: limits, Observer: needs})
			t.Logf("a call takes up to %d fuel, an instance %.1f MB", needs.fuel, float64(rt.MemoryInUse())/1e6)
		})
	}
}

// needs is the observer that notes the dearest call.
type needs struct{ fuel int64 }

func (n *needs) Called(_ context.Context, c host.CallEvent) { n.fuel = max(n.fuel, c.Fuel) }
func (*needs) Built(context.Context, host.BuildEvent)       {}
func (*needs) Refused(context.Context, string, error)       {}
func (*needs) Restarted(string, bool)                       {}

// schedules runs cycles of a Pod over Nodes, each of which changes every other
// time.
func schedules(t *testing.T, rt *host.Runtime, cfg host.Config) {
	p, err := kube137.Load(t.Context(), rt, sched.PluginConfig{Config: cfg}, nil)
	if err != nil {
		t.Fatal(err)
	}
	infos := make([]fwk.NodeInfo, 100)
	for cycle := range 20 {
		for i := range infos {
			infos[i] = kube137test.NewNodeInfo(node(cycle/2*len(infos)+i, 12))
		}
		state, pod := kube137test.NewCycleState(), pod()
		pod.Name = fmt.Sprint("web-", cycle)
		if p, ok := p.(fwk.PreFilterPlugin); ok {
			if _, s := p.PreFilter(t.Context(), state, pod, infos); s.Code() == fwk.Error {
				t.Fatal(s)
			}
		}
		for _, info := range infos {
			if p, ok := p.(fwk.FilterPlugin); ok {
				if s := p.Filter(t.Context(), state, pod, info); s.Code() == fwk.Error {
					t.Fatal(s)
				}
			}
			if p, ok := p.(fwk.ScorePlugin); ok {
				if _, s := p.Score(t.Context(), state, pod, info); s.Code() == fwk.Error {
					t.Fatal(s)
				}
			}
		}
	}
}

// reviews has Pods admitted that are created, small ones and some of a megabyte.
func reviews(t *testing.T, rt *host.Runtime, cfg host.Config) {
	p, err := admission.Load(t.Context(), rt, admission.PluginConfig{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	engine := admission.NewEngine(p)
	for i := range 300 {
		pod := pod()
		pod.Name = fmt.Sprint("web-", i)
		if i%100 == 99 {
			pod.Annotations["example.com/large"] = strings.Repeat("large ", 1<<20/6)
		}
		body, err := review(pod)
		if err != nil {
			t.Fatal(err)
		}
		request, err := admission.DecodeReview(body)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []*admissionv1.AdmissionResponse{engine.Validate(t.Context(), request), engine.Mutate(t.Context(), request)} {
			if !r.Allowed {
				t.Fatalf("%+v", r)
			}
		}
	}
}

// decides asks a hook about a container.
func decides(t *testing.T, rt *host.Runtime, cfg host.Config) {
	engine, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: cfg}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if _, err := engine.Decide(t.Context(), hookRequest()); err != nil {
			t.Fatal(err)
		}
	}
}

func (*needs) CacheHits(string, string, uint64) {}
