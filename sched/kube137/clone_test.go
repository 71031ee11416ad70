package kube137_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// callCounter counts the calls of each function.
type callCounter struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *callCounter) Called(_ context.Context, call host.CallEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = map[string]int{}
	}
	c.calls[call.Function]++
}

func (*callCounter) Built(context.Context, host.BuildEvent) {}
func (*callCounter) Refused(context.Context, string, error) {}
func (*callCounter) Restarted(plugin string, replaced bool) {}
func (c *callCounter) of(f abi.Function) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[f.String()]
}

// goroutines is how many the framework tries out on.
const goroutines = 16

// onNodes runs f for each node on as many goroutines as the framework has.
func onNodes(nodes []fwk.NodeInfo, f func(fwk.NodeInfo)) {
	work := make(chan fwk.NodeInfo, len(nodes))
	for _, n := range nodes {
		work <- n
	}
	close(work)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for n := range work {
				f(n)
			}
		})
	}
	wg.Wait()
}

// spreading is a Pod that is spread over the zones of a cluster by
// examples/sched/topology-spread.
type spreading struct {
	p     kube137.Plugin
	calls callCounter
	pod   *corev1.Pod
	nodes []fwk.NodeInfo
}

// newSpreading makes a cluster of nodes in two zones with a Pod on each, but for the last
// node, which is in the second zone.
func newSpreading(t *testing.T, nodes, instances int, args string, opts ...func(*sched.PluginConfig)) *spreading {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../../examples/sched/topology-spread")
	if err != nil {
		t.Fatal(err)
	}
	web := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), Labels: map[string]string{"app": "web"}}}
	}
	s := &spreading{pod: web("new")}
	s.pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
	for i := range nodes {
		n := node(fmt.Sprint("n", i), []string{"a", "b"}[i%2])
		if i == nodes-1 {
			s.nodes = append(s.nodes, kube137test.NewNodeInfo(n))
		} else {
			s.nodes = append(s.nodes, kube137test.NewNodeInfo(n, web(fmt.Sprint("w", i))))
		}
	}
	raw := fmt.Sprintf(`{"module": {"file": %q}, "limits": {"instances": %d}%s}`, file, instances, args)
	p, err := kube137.New("spread", shared, append([]func(*sched.PluginConfig){func(c *sched.PluginConfig) { c.Observer = &s.calls }}, opts...)...)(t.Context(), &runtime.Unknown{Raw: []byte(raw)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.p = p.(kube137.Plugin)
	t.Cleanup(func() {
		if err := s.p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *spreading) begin(t *testing.T) fwk.CycleState {
	t.Helper()
	state := kube137test.NewCycleState()
	if _, status := s.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), state, s.pod, s.nodes); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	return state
}

func (s *spreading) filter(ctx context.Context, state fwk.CycleState, n fwk.NodeInfo) string {
	return text(s.p.(fwk.FilterPlugin).Filter(ctx, state, s.pod, n))
}

const tooMany = "Unschedulable: node(s) didn't match pod topology spread constraints"

// TestDryRunsDoNotRunPreFilterAgain tries out on 200 nodes what preemption would do: zone a
// has one Pod more than zone b, so that a node of a fits without its Pod only.
func TestDryRunsDoNotRunPreFilterAgain(t *testing.T) {
	for _, instances := range []int{1, 2} {
		t.Run(fmt.Sprint(instances, " instances"), func(t *testing.T) {
			s := newSpreading(t, 200, instances, "")
			state := s.begin(t)
			extensions := s.p.(fwk.PreFilterPlugin).PreFilterExtensions()
			onNodes(s.nodes, func(n fwk.NodeInfo) {
				clone := state.Clone()
				want := "Success"
				if n.Node().Labels[corev1.LabelTopologyZone] == "a" {
					want = tooMany
				}
				check := func(state fwk.CycleState, want string) {
					if got := s.filter(t.Context(), state, n); got != want {
						t.Errorf("%s: got %s, want %s", n.Node().Name, got, want)
					}
				}
				check(clone, want)
				for _, pod := range n.GetPods() {
					if status := extensions.RemovePod(t.Context(), clone, s.pod, pod, n); !status.IsSuccess() {
						t.Error(status.AsError())
					}
					check(clone, "Success")
					twin := clone.Clone()
					if status := extensions.AddPod(t.Context(), twin, s.pod, pod, n); !status.IsSuccess() {
						t.Error(status.AsError())
					}
					check(twin, want)
					check(clone, "Success")
				}
				check(state, want)
			})
			if got := s.calls.of(abi.PreFilter); got > instances {
				t.Errorf("PreFilter ran %d times, want once for each instance at most", got)
			}
			if got := s.calls.of(abi.CloneCycle); got == 0 {
				t.Error("nothing was cloned")
			}
			if stats := kube137.Stats(s.p); stats.Waiting != 0 || stats.Idle != stats.Instances {
				t.Errorf("instances leaked: %+v", stats)
			}
		})
	}
}

// TestNominatedPodsDoNotRunPreFilterAgain filters as the framework does where each node has
// a nominated Pod, and goes on with the cycle that was cloned.
func TestNominatedPodsDoNotRunPreFilterAgain(t *testing.T) {
	calls := &callCounter{}
	w := newWorld(t, 1, "", func(c *sched.PluginConfig) { c.Observer = calls })
	pod := noted("p", "filter", "trace")
	state := w.start(pod)
	extensions := w.p.(fwk.PreFilterPlugin).PreFilterExtensions()
	var nodes []fwk.NodeInfo
	for i := range 150 {
		nodes = append(nodes, kube137test.NewNodeInfo(zoned(fmt.Sprint("n", i), "a")))
	}
	onNodes(nodes, func(n fwk.NodeInfo) {
		clone := state.Clone()
		if status := extensions.AddPod(t.Context(), clone, pod, kube137test.PodInfo{Pod: noted("nominated")}, n); !status.IsSuccess() {
			t.Error(status.AsError())
		}
		if got, want := w.filter(clone, pod, n), "Unschedulable: prefilter:p +nominated@"+n.Node().Name; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got, want := w.filter(state, pod, n), "Unschedulable: prefilter:p"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	if status := w.p.(fwk.ReservePlugin).Reserve(t.Context(), state, pod, "n1"); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	status, _ := w.p.(fwk.PermitPlugin).Permit(t.Context(), state, noted("p", "permit", "wait"), "n1")
	if got, want := text(status), "Wait: prefilter:p reserve:n1 n1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := calls.of(abi.PreFilter); got != 1 {
		t.Errorf("PreFilter ran %d times, want 1", got)
	}
}

// TestACloneIsMadeOfTheNearest holds that a clone of a clone does not repeat what happened
// in the first one, as long as the instance knows it.
func TestACloneIsMadeOfTheNearest(t *testing.T) {
	calls := &callCounter{}
	w := newWorld(t, 1, "", func(c *sched.PluginConfig) { c.Observer = calls })
	pod := noted("p", "filter", "trace")
	var state fwk.CycleState = w.start(pod)
	n := kube137test.NewNodeInfo(zoned("n", "a"))
	want := "Unschedulable: prefilter:p"
	const steps = 300 // More than clones have slots.
	for i := range steps {
		// The one that is left behind is never asked for again.
		state = state.Clone()
		other := kube137test.PodInfo{Pod: noted(fmt.Sprint("v", i%7))}
		if status := w.p.(fwk.PreFilterPlugin).PreFilterExtensions().RemovePod(t.Context(), state, pod, other, n); !status.IsSuccess() {
			t.Fatal(status.AsError())
		}
		want += fmt.Sprintf(" -v%d@n", i%7)
	}
	if got := w.filter(state, pod, n); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for f, want := range map[abi.Function]int{abi.PreFilter: 1, abi.RemovePod: steps, abi.CloneCycle: steps} {
		if got := calls.of(f); got != want {
			t.Errorf("%s ran %d times, want %d", f, got, want)
		}
	}
}

// TestStatesThatCannotBeCloned are replayed: PreFilter runs for each clone.
func TestStatesThatCannotBeCloned(t *testing.T) {
	calls := &callCounter{}
	w := newWorld(t, 1, "", func(c *sched.PluginConfig) { c.Observer = calls })
	pod := noted("p", "filter", "trace", "clone", "opaque")
	state := w.start(pod)
	n := kube137test.NewNodeInfo(zoned("n", "a"))
	for i := range 3 {
		clone := state.Clone()
		if status := w.p.(fwk.PreFilterPlugin).PreFilterExtensions().AddPod(t.Context(), clone, pod, kube137test.PodInfo{Pod: noted("v")}, n); !status.IsSuccess() {
			t.Fatal(status.AsError())
		}
		if got, want := w.filter(clone, pod, n), "Unschedulable: prefilter:p +v@n"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := calls.of(abi.PreFilter); got != 2+i {
			t.Errorf("PreFilter ran %d times, want %d", got, 2+i)
		}
	}
}

// TestAFailureOfACloneIsItsOwn holds that the guest is not asked again in a clone on which it has
// failed, that the failure says so, and that it leaves nothing behind for the cycle and other clones.
func TestAFailureOfACloneIsItsOwn(t *testing.T) {
	w := newWorld(t, 2, "")
	pod := noted("p", "filter", "trace", "clone", "panic")
	state := w.start(pod)
	n := kube137test.NewNodeInfo(zoned("n", "a"))
	onNodes(make([]fwk.NodeInfo, 20), func(fwk.NodeInfo) {
		clone := state.Clone()
		status := w.p.(fwk.PreFilterPlugin).PreFilterExtensions().AddPod(t.Context(), clone, pod, kube137test.PodInfo{Pod: noted("v")}, n)
		if got := text(status); !status.IsError() || !strings.Contains(got, "clone: ") || !strings.Contains(got, "Clone fails") {
			t.Errorf("got %s, want an Error that says that Clone fails", got)
		}
		for _, again := range []fwk.CycleState{clone, clone.Clone()} {
			if got, want := w.filter(again, pod, n), "Error: addpod has failed in this scheduling cycle: "; !strings.HasPrefix(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if got, want := w.filter(state, pod, n), "Unschedulable: prefilter:p"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	if got, want := w.filter(w.start(pod), pod, n), "Unschedulable: prefilter:p"; got != want {
		t.Errorf("in another cycle got %s, want %s", got, want)
	}
	if stats := kube137.Stats(w.p); stats.Waiting != 0 || stats.Idle != stats.Instances {
		t.Errorf("instances leaked: %+v", stats)
	}

	p := loadScripted(t, abi.MaskOf(abi.PreFilter, abi.AddPod, abi.CloneCycle), abi.Success, 30)
	c := begin(t, p, noted("p"))
	status := p.(fwk.PreFilterPlugin).PreFilterExtensions().AddPod(t.Context(), c.state.Clone(), c.pod, kube137test.PodInfo{Pod: noted("v")}, n)
	if got, want := text(status), "Error: clone: because"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestAPodIsFetchedOnce holds that PreFilter fetches of the Pods of nodes what it reads, once
// for each of their versions, whatever else happens to the nodes.
func TestAPodIsFetchedOnce(t *testing.T) {
	m := &meter{}
	s := newSpreading(t, 100, 1, "", func(c *sched.PluginConfig) { c.Observer = m })
	// fuel returns what PreFilter takes: the least of two, since a collection of garbage may
	// come in between.
	fuel := func(times int) int64 {
		least := int64(1 << 62)
		for range times {
			before := m.fuel[abi.PreFilter.String()]
			s.begin(t)
			least = min(least, m.fuel[abi.PreFilter.String()]-before)
		}
		return least
	}
	first, again := fuel(1), fuel(2)
	// A host function takes 100, and of each of 100 Pods one field at least is read.
	if first < again+100*100 {
		t.Errorf("the first PreFilter takes %d, the second %d", first, again)
	}
	n := s.nodes[0].(*kube137test.NodeInfo)
	other := s.pod.DeepCopy()
	other.Name, other.UID = "other", "other"
	n.AddPodInfo(kube137test.PodInfo{Pod: other})
	if got := fuel(1); got > again+again/10+10_000 {
		t.Errorf("with one Pod more PreFilter takes %d, before %d", got, again)
	}
}

// TestNodesThatAreNotUsedCostNothing holds that PreFilter is handed no more than the way to
// ask for its nodes.
func TestNodesThatAreNotUsedCostNothing(t *testing.T) {
	m := &meter{}
	w := newWorld(t, 1, "", func(c *sched.PluginConfig) { c.Observer = m })
	prefilter := func(nodes []fwk.NodeInfo) int64 {
		before := m.fuel[abi.PreFilter.String()]
		if _, status := w.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), noted("p"), nodes); !status.IsSuccess() {
			t.Fatal(status.AsError())
		}
		return m.fuel[abi.PreFilter.String()] - before
	}
	many := make([]fwk.NodeInfo, 5000)
	for i := range many {
		many[i] = kube137test.NewNodeInfo(zoned(fmt.Sprint("n", i), "a"))
	}
	prefilter(many[:1])
	least := [2]int64{1 << 62, 1 << 62} // A collection of garbage may come in between.
	for range 5 {
		least[0], least[1] = min(least[0], prefilter(many[:1])), min(least[1], prefilter(many))
	}
	if least[1] > least[0]+least[0]/4 {
		t.Errorf("PreFilter takes %d with %d nodes, %d with one", least[1], len(many), least[0])
	}
}

func (*callCounter) CacheHits(string, string, uint64) {}
