package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

func shares(n int64) *hookmsg.Resources { return &hookmsg.Resources{CPUShares: &n} }

// A weight tells the conversion if one of them alone makes it of the shares.
func TestFindConversion(t *testing.T) {
	for _, c := range []struct {
		name   string
		level  abi.Level
		weight string
		shares []int64
		fixed  cgroup.WeightConversion
		want   cgroup.WeightConversion
	}{
		{"of runc 1.3.2", abi.LevelContainer, "59", []int64{512}, 0, cgroup.WeightQuadratic},
		{"of runc 1.3.1", abi.LevelContainer, "20", []int64{512}, 0, cgroup.WeightLinear},
		{"the kernel's default, of runc 1.3.2", abi.LevelContainer, "100", []int64{1024}, 0, cgroup.WeightQuadratic},
		{"the kernel's default, of a pod: the kubelet has not written yet", abi.LevelPod, "100", []int64{1024}, 0, 0},
		{"of the kubelet 1.37", abi.LevelPod, "39", []int64{1024}, 0, cgroup.WeightLinear},
		{"of a kubelet that converts as the runtime", abi.LevelPod, "59", []int64{512}, 0, cgroup.WeightQuadratic},
		{"no CPU asked for: both make 1 of it", abi.LevelContainer, "1", []int64{2}, 0, 0},
		{"of another writer", abi.LevelContainer, "77", []int64{512}, 0, 0},
		{"decided before a restart", abi.LevelContainer, "20", []int64{300, 512}, 0, cgroup.WeightLinear},
		{"either, by what was asked for and what was decided", abi.LevelContainer, "20", []int64{512, 124}, 0, 0},
		{"an idle cgroup", abi.LevelContainer, "0", []int64{512}, 0, 0},
		{"no cgroup", abi.LevelContainer, "", []int64{512}, 0, 0},
		{"one that is configured", abi.LevelContainer, "20", []int64{512}, cgroup.WeightQuadratic, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range map[string]string{"cgroup.controllers": "cpu", "web/cpu.weight": c.weight} {
				file = filepath.Join(root, file)
				if text == "" {
					continue
				}
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			a := applier(t, cgroup.ApplierConfig{Root: root, Weight: c.fixed})
			if got := a.FindConversion(c.level, "web", c.shares...); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	if got := cgroup.WeightQuadratic.Weight(124); got != 20 {
		t.Errorf("124 shares are %d, and the case of either is none", got)
	}
}

// The runtime and the kubelet are upgraded below an Enforcer, which writes the weights of each
// cgroup as they do. On cgroup v2.
func TestEnforceTakesTheConversionThatIsInForce(t *testing.T) {
	tree := cgrouptest.New(t)
	if !tree.V2 {
		t.Skip("cgroup v1 has the shares themselves")
	}
	const quadratic, linear = cgroup.WeightQuadratic, cgroup.WeightLinear
	var state cgroup.State
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	weights := map[string]string{}
	// run makes a pod and a container of it, as a kubelet and a runtime with some conversions do.
	run := func(uid string, asked int64, kubelet, runtime cgroup.WeightConversion) (pod, container string) {
		t.Helper()
		pod, container = tree.Make("pod"+uid), tree.Make("pod"+uid+"/web")
		tree.Write(pod, "cpu.weight", strconv.FormatInt(kubelet.Weight(asked), 10))
		tree.Write(container, "cpu.weight", strconv.FormatInt(runtime.Weight(asked), 10))
		(*facts.Store)(state.Facts()).Learn(facts.Subject{PodUID: uid}, func(f *facts.Facts) { f.Cgroup, f.Asked = pod, shares(asked) })
		(*facts.Store)(state.Facts()).Learn(facts.Subject{PodUID: uid, ContainerID: "web"}, func(f *facts.Facts) { f.Cgroup, f.Asked = container, shares(asked) })
		return pod, container
	}
	decide := func(path, uid string, level abi.Level, n int64, is cgroup.WeightConversion) {
		state.Put(cgroup.Target{Cgroup: path, PodUID: uid, Level: level, Resources: shares(n)})
		weights[path] = strconv.FormatInt(is.Weight(n), 10)
	}
	hold := func(when string) {
		t.Helper()
		for range 2 {
			if report := e.Enforce(t.Context()); report.Err != nil {
				t.Fatal(report.Err)
			}
			for path, want := range weights {
				if got := tree.Read(path, "cpu.weight"); got != want {
					t.Errorf("%s: cpu.weight of %s is %s, want %s", when, path, got, want)
				}
			}
		}
	}
	// Nothing was asked for a, which does not tell; b, on which nothing is decided, does.
	podA, webA := run("a", 2, linear, linear)
	_, _ = run("b", 512, linear, linear)
	decide(podA, "a", abi.LevelPod, 300, linear)
	decide(webA, "a", abi.LevelContainer, 300, linear)
	hold("an older runtime")

	// The runtime is upgraded. What it makes has its conversion, the rest as it was.
	podC, webC := run("c", 512, linear, quadratic)
	decide(podC, "c", abi.LevelPod, 400, linear)
	decide(webC, "c", abi.LevelContainer, 400, quadratic)
	podD, webD := run("d", 2, linear, quadratic)
	decide(podD, "d", abi.LevelPod, 500, linear)
	decide(webD, "d", abi.LevelContainer, 500, quadratic)
	hold("a new runtime")

	// So is the kubelet.
	podE, webE := run("e", 512, quadratic, quadratic)
	decide(podE, "e", abi.LevelPod, 600, quadratic)
	decide(webE, "e", abi.LevelContainer, 600, quadratic)
	hold("a new kubelet")

	// Another writer's weight, which the other conversion makes of the shares, is put back.
	tree.Write(webE, "cpu.weight", strconv.FormatInt(linear.Weight(600), 10))
	hold("a weight that another writer has changed")

	// An update by the runtime, which holds what it was told.
	tree.Write(webC, "cpu.weight", strconv.FormatInt(linear.Weight(700), 10))
	decide(webC, "c", abi.LevelContainer, 700, linear)
	hold("an older runtime updates a container")

	// An agent that starts anew, and decides the same.
	e = enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	if report := e.Enforce(t.Context()); len(report.Changes) != 0 {
		t.Errorf("after a restart it writes %v", report.Changes)
	}
	hold("after a restart")
}
