package kube137_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// keeper is a scheduler with a guest of testdata/peer/keeps.wasm.
type keeper struct {
	t   *testing.T
	p   kube137.Plugin
	log *guarded.Log
}

func newKeeper(t *testing.T, limits host.Limits) *keeper {
	t.Helper()
	return newKeeperOf(t, host.File("../testdata/peer/keeps.wasm"), limits)
}

func newKeeperOf(t *testing.T, source host.Source, limits host.Limits) *keeper {
	t.Helper()
	k := &keeper{t: t, log: guarded.NewLog()}
	k.p = load(t, host.Config{Name: "keeps", Module: host.ModuleConfig{Source: source}, Limits: limits, Logger: slog.New(k.log)})
	return k
}

// keeperCycle is the cycle of a Pod.
type keeperCycle struct {
	*keeper
	pod   *corev1.Pod
	state fwk.CycleState
}

// begin begins the cycle of a Pod whose name has two letters.
func (k *keeper) begin(name string) *keeperCycle {
	k.t.Helper()
	c := &keeperCycle{k, noted(name), kube137test.NewCycleState()}
	if _, status := k.p.(fwk.PreFilterPlugin).PreFilter(k.t.Context(), c.state, c.pod, nil); !status.IsSuccess() {
		k.t.Errorf("%s: prefilter says %s", name, text(status))
	}
	return c
}

// want compares what a function said with the letters.
func (c *keeperCycle) want(function string, got *fwk.Status, letters string) {
	c.t.Helper()
	if want := "Unschedulable: " + letters; text(got) != want {
		c.t.Errorf("%s: %s says %s, want %s", c.pod.Name, function, text(got), want)
	}
}

func (c *keeperCycle) filter(state fwk.CycleState, node string) *fwk.Status {
	return c.p.(fwk.FilterPlugin).Filter(c.t.Context(), state, c.pod, kube137test.NewNodeInfo(zoned(node, "")))
}

func (c *keeperCycle) score() int64 {
	score, _ := c.p.(fwk.ScorePlugin).Score(c.t.Context(), c.state, c.pod, kube137test.NewNodeInfo(zoned("n", "")))
	return score
}

// schedule runs the cycle up to Permit, on two nodes: it leaves PODffssrw.
func (c *keeperCycle) schedule() {
	c.t.Helper()
	c.want("filter", c.filter(c.state, "n1"), c.pod.Name+"f")
	c.want("filter", c.filter(c.state, "n2"), c.pod.Name+"ff")
	if got := []int64{c.score(), c.score()}; !slices.Equal(got, []int64{5, 6}) {
		c.t.Errorf("%s: score says %d, want 5 and 6: what Filter left is gone", c.pod.Name, got)
	}
	c.reserve(c.pod.Name + "ffss")
}

// reserve runs Reserve and Permit, before which the guest had the letters.
func (c *keeperCycle) reserve(letters string) {
	c.t.Helper()
	c.want("reserve", c.p.(fwk.ReservePlugin).Reserve(c.t.Context(), c.state, c.pod, "n1"), letters+"r")
	status, _ := c.p.(fwk.PermitPlugin).Permit(c.t.Context(), c.state, c.pod, "n1")
	c.want("permit", status, letters+"rw")
}

func (c *keeperCycle) prebind(letters string) {
	c.t.Helper()
	c.want("prebind", c.p.(fwk.PreBindPlugin).PreBind(c.t.Context(), c.state, c.pod, "n1"), letters)
}

func (c *keeperCycle) bind(letters string) {
	c.t.Helper()
	c.want("bind", c.p.(fwk.BindPlugin).Bind(c.t.Context(), c.state, c.pod, "n1"), letters)
}

func (c *keeperCycle) postbind(letters string) {
	c.t.Helper()
	c.p.(fwk.PostBindPlugin).PostBind(context.Background(), c.state, c.pod, "n1")
	c.logged(letters)
}

func (c *keeperCycle) unreserve(letters string) {
	c.t.Helper()
	c.p.(fwk.ReservePlugin).Unreserve(context.Background(), c.state, c.pod, "n1")
	c.logged(letters)
}

func (c *keeperCycle) logged(letters string) {
	c.t.Helper()
	if !strings.Contains(c.log.String(), "msg="+letters+" ") {
		c.t.Errorf("%s: the log has no %s:\n%s", c.pod.Name, letters, c.log.String())
	}
}

// idle holds that no instance is in use, and none held but that of the next cycle.
func (k *keeper) idle(held int) {
	k.t.Helper()
	if s := kube137.Stats(k.p); s.Waiting != 0 || s.Idle != s.Instances || s.Held != held {
		k.t.Errorf("instances leaked: %+v, want %d held", s, held)
	}
}

// TestPeerKeepsItsStateThroughACycle holds that what any function of a guest leaves in
// memory is there in the next one of the same Pod, whatever happens to other Pods.
func TestPeerKeepsItsStateThroughACycle(t *testing.T) {
	for name, instances := range map[string]int{"on one instance": 1, "on several": 4} {
		t.Run(name, func(t *testing.T) {
			k := newKeeper(t, host.Limits{Instances: instances})
			// The bindings of three Pods interleave, more than there are instances, while
			// a fourth is scheduled and a fifth fits nowhere.
			var cycles []*keeperCycle
			for _, name := range []string{"p1", "p2", "p3"} {
				c := k.begin(name)
				c.schedule()
				cycles = append(cycles, c)
			}
			next := k.begin("p4")
			for _, c := range cycles {
				c.prebind(c.pod.Name + "ffssrwb")
				next.want("filter", next.filter(next.state, "n1"), "p4"+strings.Repeat("f", 1+slices.Index(cycles, c)))
			}
			k.begin("p5").filter(next.state, "n1")
			for _, c := range cycles {
				c.bind(c.pod.Name + "ffssrwbB")
			}
			if got := kube137.Stats(k.p).Held; got != 4 {
				t.Errorf("%d instances are held for three Pods and the next, want 4", got)
			}
			cycles[0].postbind("p1ffssrwbBP")
			cycles[1].unreserve("p2ffssrwbBu")
			cycles[2].postbind("p3ffssrwbBP")
			k.idle(1)
		})
	}
}

// TestPeerFiltersOfACycleShareAnInstance holds that Filter, which the framework calls on
// several goroutines, runs on the instance of the cycle each time.
func TestPeerFiltersOfACycleShareAnInstance(t *testing.T) {
	for name, source := range map[string]host.Source{
		"of a guest with PreFilter": host.File("../testdata/peer/keeps.wasm"),
		"of a guest without":        changed(t, "../testdata/peer/keeps.wasm", "prefilter", "prefiltar"),
	} {
		t.Run(name, func(t *testing.T) {
			k := newKeeperOf(t, source, host.Limits{Instances: 4})
			c := k.begin("p1")
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for i := range 16 {
						c.filter(c.state, fmt.Sprint("n", i))
					}
				})
			}
			wg.Wait()
			letters := strings.Repeat("f", 8*16)
			if k.p.Functions().Has(abi.PreFilter) {
				letters = "p1" + letters
			}
			if got, want := c.score(), int64(len(letters)+1); got != want {
				t.Errorf("score says %d, want %d", got, want)
			}
			c.reserve(letters + "s")
			c.unreserve(letters + "srwu")
			k.idle(0)
		})
	}
}

// TestPeerCycleThatPreFilterDidNotBegin holds that one cycle begins if the framework
// calls Filter first, on several goroutines.
func TestPeerCycleThatPreFilterDidNotBegin(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 4})
	c := &keeperCycle{k, noted("p1"), kube137test.NewCycleState()}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { c.filter(c.state, "n") })
	}
	wg.Wait()
	c.reserve("p1ffffffff")
	c.postbind("p1ffffffffrwP")
	k.idle(0)
}

// TestPeerDryRunsLeaveTheCycleAlone holds that copies of a cycle see what happens to
// them, and that the cycle goes on from what its own functions left.
func TestPeerDryRunsLeaveTheCycleAlone(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 2})
	c := k.begin("p1")
	c.want("filter", c.filter(c.state, "n1"), "p1f")
	extensions := k.p.(fwk.PreFilterPlugin).PreFilterExtensions()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			node := kube137test.NewNodeInfo(zoned("n1", ""))
			dry := c.state.Clone()
			c.want("removepod", extensions.RemovePod(t.Context(), dry, c.pod, kube137test.PodInfo{Pod: noted("v")}, node), "p1-")
			again := dry.Clone()
			c.want("addpod", extensions.AddPod(t.Context(), again, c.pod, kube137test.PodInfo{Pod: noted("v")}, node), "p1-+")
			if got := text(c.filter(again, "n1")); !strings.HasPrefix(got, "Unschedulable: p1-+f") {
				t.Errorf("filter of a copy says %s", got)
			}
			if got := text(c.filter(dry, "n1")); !strings.HasPrefix(got, "Unschedulable: p1-f") {
				t.Errorf("filter of a copy says %s", got)
			}
		})
	}
	wg.Wait()
	// PostFilter found nothing to remove, or a nominated Pod was tried out.
	c.want("filter", c.filter(c.state, "n2"), "p1ff")
	c.score()
	c.score()
	c.reserve("p1ffss")
	c.unreserve("p1ffssrwu")
	k.idle(0)
}

// TestPeerGoesOnAfterATrap holds that a guest that traps is not asked again in its cycle, begins
// anew from PreFilter in the next one of the Pod, and that no other Pod has anything of it.
func TestPeerGoesOnAfterATrap(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 2})
	other := k.begin("o1")
	other.schedule()
	c := k.begin("p1")
	c.want("filter", c.filter(c.state, "n1"), "p1f")
	if got := c.filter(c.state, "trap"); !got.IsError() {
		t.Errorf("a trap is %s", text(got))
	}
	const over = "filter has failed in this scheduling cycle: "
	if got := c.filter(c.state, "n1"); !got.IsError() || !strings.Contains(got.Message(), over) {
		t.Errorf("after a trap filter says %s, want an error with %q", text(got), over)
	}
	again := k.begin("p1")
	again.schedule()
	other.prebind("o1ffssrwb")
	again.postbind("p1ffssrwP")
	other.postbind("o1ffssrwbP")
	k.idle(0)
}

// TestPeerHoldsNoMoreThanItMay holds that a Pod for which there is no instance is refused
// at once and by name, and that those that wait go on.
func TestPeerHoldsNoMoreThanItMay(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 1, HeldInstances: 2})
	a, b := k.begin("a1"), (*keeperCycle)(nil)
	a.schedule()
	b = k.begin("b1")
	b.schedule()
	refused := noted("c1")
	_, status := k.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), refused, nil)
	if !status.IsError() || !errors.Is(status.AsError(), host.ErrSaturated) || !strings.Contains(status.Message(), "all 2 of limits.heldInstances are held") {
		t.Errorf("got %s, want an error that names the limit", text(status))
	}
	a.prebind("a1ffssrwb")
	a.postbind("a1ffssrwbP")
	k.begin("c1").schedule()
	b.unreserve("b1ffssrwu")
}

// TestPeerUnreserveEndsABindingTwice holds that Unreserve may come again, as after
// PostBind, and for a Pod that was never reserved.
func TestPeerUnreserveEndsABindingTwice(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 2})
	c := k.begin("p1")
	c.schedule()
	next := k.begin("p2")
	c.unreserve("p1ffssrwu")
	k.p.(fwk.ReservePlugin).Unreserve(t.Context(), c.state, c.pod, "n1")
	stranger := &keeperCycle{k, noted("p3"), kube137test.NewCycleState()}
	stranger.unreserve("p3u")
	next.schedule() // Nothing of it has changed.
	// A group of Pods may be reserved again.
	c.p.(fwk.ReservePlugin).Reserve(t.Context(), c.state, c.pod, "n2")
	k.idle(2)
	c.p.(fwk.ReservePlugin).Unreserve(t.Context(), c.state, c.pod, "n2")
	next.postbind("p2ffssrwP")
	k.idle(0)
}

// TestPeerBindingEndsOnItsVersion swaps the module between Permit and PreBind, and while
// a cycle goes on. The old version goes with its last cycle.
func TestPeerBindingEndsOnItsVersion(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 2})
	bound := k.begin("p1")
	bound.schedule()
	running := k.begin("p2")
	running.want("filter", running.filter(running.state, "n1"), "p2f")
	// b becomes d: (i32.const 98), in LEB128, before the call of $answer.
	if err := k.p.Swap(t.Context(), changed(t, "../testdata/peer/keeps.wasm", "\x41\xe2\x00\x10", "\x41\xe4\x00\x10"), ""); err != nil {
		t.Fatal(err)
	}
	fresh := k.begin("p3")
	fresh.schedule()
	bound.prebind("p1ffssrwb")
	fresh.prebind("p3ffssrwd")
	running.reserve("p2f")
	bound.postbind("p1ffssrwbP")
	fresh.postbind("p3ffssrwdP")
	runtime.KeepAlive(bound)
	runtime.KeepAlive(running)
	bound, running = nil, nil
	for deadline := time.Now().Add(time.Minute); kube137.Stats(k.p).Retired != 0; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("the old version stays, though no cycle needs it")
		}
	}
	k.idle(0)
}

// TestPeerBindingThatNobodyEnds holds that an instance comes back if the framework forgets
// a cycle.
func TestPeerBindingThatNobodyEnds(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 2})
	for _, name := range []string{"p1", "p2", "p3"} {
		k.begin(name).schedule()
	}
	for deadline := time.Now().Add(time.Minute); kube137.Stats(k.p).Held != 0; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("an instance is held for a cycle that is gone")
		}
	}
}

// TestPeerClosesWhilePodsWait holds that Close does not wait for Pods that wait in
// Permit.
func TestPeerClosesWhilePodsWait(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 2})
	c := k.begin("p1")
	c.schedule()
	if err := k.p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	status := k.p.(fwk.PreBindPlugin).PreBind(t.Context(), c.state, c.pod, "n1")
	if !errors.Is(status.AsError(), host.ErrClosed) {
		t.Errorf("got %s, want ErrClosed", text(status))
	}
	k.p.(fwk.PostBindPlugin).PostBind(t.Context(), c.state, c.pod, "n1")
	k.idle(0)
}

// TestPeerWithoutBindingHoldsOneInstance holds that a guest that only chooses nodes has
// one instance, whatever becomes of its Pods.
func TestPeerWithoutBindingHoldsOneInstance(t *testing.T) {
	p := load(t, host.Config{Name: "first", Module: host.ModuleConfig{File: "../testdata/peer/first.wasm"}})
	for i := range 5 {
		c := &cycle{t, p, noted(fmt.Sprint("p", i)), kube137test.NewCycleState()}
		c.preFilter()
		c.filter(zoned("n", ""))
		if status := p.(fwk.ReservePlugin).Reserve(t.Context(), c.state, c.pod, "n"); !status.IsSuccess() {
			t.Errorf("Reserve answers %s", text(status))
		}
		if i%2 == 0 {
			p.(fwk.ReservePlugin).Unreserve(t.Context(), c.state, c.pod, "n")
		} else {
			p.(fwk.PostBindPlugin).PostBind(t.Context(), c.state, c.pod, "n")
		}
	}
	if s := kube137.Stats(p); s.Held != 1 || s.Instances != s.Idle {
		t.Errorf("got %+v, want one held instance", s)
	}
}

// TestHammerPeerCycles schedules Pods one after the other, with parallel Filters and dry
// runs, while others are bound, given up or forgotten, guests trap and the module is
// swapped. Each Pod finds what its own functions left. Run it with -race.
func TestHammerPeerCycles(t *testing.T) {
	k := newKeeper(t, host.Limits{Instances: 2})
	module, err := host.File("../testdata/peer/keeps.wasm").Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 17))
	extensions := k.p.(fwk.PreFilterPlugin).PreFilterExtensions()
	var binding sync.WaitGroup
	for i := range 90 {
		if i%30 == 15 { // A custom section makes it another module.
			other := append(slices.Clone(module), 0, 3, 1, byte('a'+i/30), 0)
			if err := k.p.Swap(t.Context(), host.Bytes(other), ""); err != nil {
				t.Fatal(err)
			}
		}
		c := k.begin(string([]byte{byte('a' + i/26), byte('a' + i%26)}))
		letters, nodes := c.pod.Name, 1+r.IntN(6)
		var wg sync.WaitGroup
		for range nodes {
			letters += "f"
			wg.Go(func() { c.filter(c.state, "n") })
			wg.Go(func() {
				dry := c.state.Clone()
				c.want("removepod", extensions.RemovePod(t.Context(), dry, c.pod, kube137test.PodInfo{Pod: noted("v")}, kube137test.NewNodeInfo(zoned("n", ""))), c.pod.Name+"-")
			})
		}
		wg.Wait()
		switch r.IntN(8) {
		case 0: // It fits nowhere.
			continue
		case 1: // The framework gives the Pod up.
			if got := c.filter(c.state, "trap"); !got.IsError() {
				t.Errorf("a trap is %s", text(got))
			}
			continue
		}
		c.reserve(letters)
		letters += "rw"
		end := r.IntN(4)
		binding.Go(func() {
			c.prebind(letters + "b")
			switch end {
			case 0: // The scheduler forgets it.
			case 1:
				c.unreserve(letters + "bu")
			default:
				c.bind(letters + "bB")
				c.postbind(letters + "bBP")
			}
		})
	}
	binding.Wait()
	for deadline := time.Now().Add(time.Minute); kube137.Stats(k.p).Held > 1; runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatalf("instances are held for cycles that are gone: %+v", kube137.Stats(k.p))
		}
	}
	if s := kube137.Stats(k.p); s.Waiting != 0 || s.Idle != s.Instances {
		t.Errorf("instances leaked: %+v", s)
	}
}
