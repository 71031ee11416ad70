package kube137_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// TestHammerCycles schedules many Pods as the framework may: one scheduling cycle
// after the other, each with parallel filters and preemption's dry runs, and any
// number of binding cycles beside them that end by PostBind, by Unreserve or not
// at all. Guests trap and loop now and then, and the module is swapped meanwhile.
// Every answer must be that of its own cycle. Run it with -race.
func TestHammerCycles(t *testing.T) {
	w := newWorld(t, 3, `, "limits": {"timeout": "30ms"}`)
	file, err := guestbuild.Build(t.Context(), "../testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	module, err := host.File(file).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h := &hammer{world: w, r: rand.New(rand.NewPCG(11, 21))}
	for i := range 4 {
		h.nodes = append(h.nodes, kube137test.NewNodeInfo(zoned(fmt.Sprint("n", i), "a")))
	}
	w.handle.Nodes = h.nodes
	var binding sync.WaitGroup
	for i := range 60 {
		if i%20 == 10 {
			// A custom section makes it another module that does the same.
			other := append(append([]byte(nil), module...), 0, 3, 1, byte('a'+i/20), 0)
			if err := w.p.Swap(t.Context(), host.Bytes(other), ""); err != nil {
				t.Fatal(err)
			}
		}
		h.schedule(i, &binding)
	}
	binding.Wait()
	if stats := kube137.Stats(w.p); stats.Waiting != 0 || stats.Idle != stats.Instances {
		t.Errorf("instances leaked: %+v", stats)
	}
}

// hammer is the scheduler of the test.
type hammer struct {
	*world
	r     *rand.Rand
	nodes []*kube137test.NodeInfo
}

// schedule runs the scheduling cycle of a Pod and starts its binding cycle.
func (h *hammer) schedule(i int, binding *sync.WaitGroup) {
	t, ctx := h.t, h.t.Context()
	name := fmt.Sprint("p", i)
	// The state of every other Pod can be cloned.
	pod := noted(name, "filter", "trace", "permit", "wait", "prebind", "data", "clone", []string{"", "opaque"}[i%2])
	state := h.start(pod)
	want := "prefilter:" + name
	infos := make([]fwk.NodeInfo, len(h.nodes))
	for n := range h.nodes {
		infos[n] = h.nodes[n]
	}
	seed := h.r.Uint64()
	var wg sync.WaitGroup
	for n, info := range infos {
		wg.Go(func() { h.expect(state, pod, info, want) })
		wg.Go(func() { h.dryRun(state, pod, info, want, seed>>n) })
	}
	// Pods whose guest fails, at the same time.
	wg.Go(func() {
		bad := noted("bad"+name, "filter", []string{"panic", "loop"}[i%2])
		status := h.p.(fwk.FilterPlugin).Filter(ctx, h.start(bad), bad, infos[0])
		if !status.IsError() {
			t.Errorf("a guest that fails says %s", text(status))
		}
	})
	wg.Wait()
	if i%3 == 0 {
		if status := h.p.(fwk.PreScorePlugin).PreScore(ctx, state, pod, infos[:2]); !status.IsSuccess() {
			t.Error(status.AsError())
		}
		for _, info := range infos {
			wg.Go(func() { h.expect(state, pod, info, want+" prescore:n0,n1") })
		}
		wg.Wait()
	}
	if i%5 == 4 {
		return // It fits nowhere: the framework forgets the cycle.
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = "n1"
	if status := h.p.(fwk.ReservePlugin).Reserve(ctx, state, assumed, "n1"); !status.IsSuccess() {
		t.Error(status.AsError())
	}
	status, _ := h.p.(fwk.PermitPlugin).Permit(ctx, state, assumed, "n1")
	if !status.IsWait() || !strings.HasPrefix(status.Message(), want) || !strings.HasSuffix(status.Message(), "reserve:n1 n1") {
		t.Errorf("permit says %s, want the trace of %s", text(status), name)
	}
	wait := time.Duration(seed%20) * time.Millisecond
	binding.Go(func() { h.bind(state, assumed, want, i, time.After(wait)) })
}

// bind runs the binding cycle when the Pod has waited.
func (h *hammer) bind(state fwk.CycleState, pod *corev1.Pod, want string, i int, waited <-chan time.Time) {
	ctx := context.WithoutCancel(h.t.Context())
	<-waited
	switch i % 4 {
	case 0: // The wait was in vain, or another plugin failed: perhaps twice.
		h.p.(fwk.ReservePlugin).Unreserve(ctx, state, pod, "n1")
		h.p.(fwk.ReservePlugin).Unreserve(ctx, state, pod, "n1")
		return
	case 1: // The scheduler gives up.
		return
	}
	// A guest that failed meanwhile has lost what it knew of the cycle, and PreScore, which asks
	// about nodes, cannot be repeated. It runs in every third cycle.
	if _, status := h.p.(fwk.PreBindPlugin).PreBindPreFlight(ctx, state, pod, "n1"); i%3 == 0 && gone(status) {
		return
	} else if !status.IsSuccess() {
		h.t.Errorf("prebindpreflight says %s", text(status))
	}
	status := h.p.(fwk.PreBindPlugin).PreBind(ctx, state, pod, "n1")
	if i%3 == 0 && gone(status) {
		return
	}
	if got := status.Message(); !strings.HasPrefix(got, want) || !strings.Contains(got, "reserve:n1 claim of ") {
		h.t.Errorf("prebind says %s, want the trace of %s", text(status), pod.Name)
	}
	if status := h.p.(fwk.BindPlugin).Bind(ctx, state, pod, "n1"); !status.IsSkip() && (i%3 != 0 || !gone(status)) {
		h.t.Errorf("bind says %s", text(status))
	}
	h.p.(fwk.PostBindPlugin).PostBind(ctx, state, pod, "n1")
}

// gone reports whether a status says that a step cannot be repeated.
func gone(status *fwk.Status) bool {
	return strings.HasPrefix(text(status), "Error: replay prescore: the cycle's instance is gone, ")
}

func (h *hammer) expect(state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo, want string) {
	if got := h.filter(state, pod, info); got != "Unschedulable: "+want {
		h.t.Errorf("got  %s\nwant %s", got, want)
	}
}

// dryRun takes Pods away and puts some back, on a clone.
func (h *hammer) dryRun(state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo, want string, seed uint64) {
	extensions := h.p.(fwk.PreFilterPlugin).PreFilterExtensions()
	clone := state.Clone()
	for i := range 4 {
		victim := noted(fmt.Sprintf("v%d", i))
		change, sign := extensions.RemovePod, "-"
		if seed>>(4*i)&1 == 1 {
			change, sign = extensions.AddPod, "+"
		}
		if status := change(h.t.Context(), clone, pod, kube137test.PodInfo{Pod: victim}, info); !status.IsSuccess() {
			h.t.Error(status.AsError())
		}
		want += fmt.Sprintf(" %s%s@%s", sign, victim.Name, info.Node().Name)
		h.expect(clone, pod, info, want)
		if seed>>(4*i+1)&1 == 1 {
			clone = clone.Clone()
		}
	}
}
