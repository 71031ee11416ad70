package kube137_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// rejecting are the functions with which a guest may reject a Pod that then waits for events.
const rejecting = 1<<abi.PreEnqueue | 1<<abi.PreFilter | 1<<abi.AddPod | 1<<abi.RemovePod | 1<<abi.Filter | 1<<abi.Reserve | 1<<abi.Unreserve | 1<<abi.Permit

// interfaces are those of the framework that a plugin has only if its guest has a function
// of it, since there is no neutral answer.
var interfaces = []struct {
	present func(abi.Mask) bool
	typ     reflect.Type
}{
	{has(abi.QueueSort), reflect.TypeFor[fwk.QueueSortPlugin]()},
	{has(abi.GeneratePlacements), reflect.TypeFor[fwk.PlacementGeneratePlugin]()},
	{has(abi.Filter), reflect.TypeFor[fwk.FilterPlugin]()},
	{has(abi.PostFilter), reflect.TypeFor[fwk.PostFilterPlugin]()},
	{has(abi.Score), reflect.TypeFor[fwk.ScorePlugin]()},
	{func(m abi.Mask) bool { return m.Has(abi.EventsToRegister) || m&rejecting == 0 }, reflect.TypeFor[fwk.EnqueueExtensions]()},
	// Those that are found by a method of another one must not be found by type.
	{has(), reflect.TypeFor[fwk.ScoreExtensions]()},
	{has(), reflect.TypeFor[fwk.PreFilterExtensions]()},
	{has(), reflect.TypeFor[fwk.PlacementScoreExtensions]()},
}

func has(functions ...abi.Function) func(abi.Mask) bool {
	return func(m abi.Mask) bool { return m&abi.MaskOf(functions...) != 0 }
}

// TestInterfaces loads every function alone, every pair of functions and 300
// random sets, and holds that the plugin implements the interfaces that it may not have in
// vain if the guest has these functions, and all others. What it answers without a function
// internal/testkit/e2e/neutral compares in the framework.
func TestInterfaces(t *testing.T) {
	const functions = abi.Function(25)
	var masks []abi.Mask
	for f := range functions {
		for g := range f + 1 {
			masks = append(masks, abi.MaskOf(f, g))
		}
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		masks = append(masks, abi.Mask(1+r.Uint32N(1<<functions-1)))
	}
	for _, mask := range masks {
		p := loadScripted(t, mask, abi.Success, 0)
		for _, i := range interfaces {
			if got, want := reflect.TypeOf(p).Implements(i.typ), i.present(mask); got != want {
				t.Errorf("a guest with %s: implements %s is %v, want %v", mask, i.typ, got, want)
			}
		}
		always := p.(interface {
			fwk.PreEnqueuePlugin
			fwk.PreFilterPlugin
			fwk.PreScorePlugin
			fwk.ReservePlugin
			fwk.PermitPlugin
			fwk.PreBindPlugin
			fwk.BindPlugin
			fwk.PostBindPlugin
			fwk.SignPlugin
			fwk.PodGroupPostFilterPlugin
			fwk.PlacementScorePlugin
		})
		if s, ok := p.(fwk.ScorePlugin); ok && (s.ScoreExtensions() != nil) != mask.Has(abi.NormalizeScore) {
			t.Errorf("a guest with %s: ScoreExtensions is %v", mask, s.ScoreExtensions())
		}
		if (always.PreFilterExtensions() != nil) != (mask&abi.MaskOf(abi.AddPod, abi.RemovePod) != 0) {
			t.Errorf("a guest with %s: PreFilterExtensions is %v", mask, always.PreFilterExtensions())
		}
		if (always.PlacementScoreExtensions() != nil) != (mask.Has(abi.ScorePlacement) && mask.Has(abi.NormalizePlacementScore)) {
			t.Errorf("a guest with %s: PlacementScoreExtensions is %v", mask, always.PlacementScoreExtensions())
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// world is a plugin with a scheduler around it.
type world struct {
	t      testing.TB
	p      kube137.Plugin
	handle *kube137test.Handle
	events *events.FakeRecorder
}

// newWorld loads testdata/extensions. args are added to its arguments.
func newWorld(t testing.TB, instances int, args string, opts ...func(*sched.PluginConfig)) *world {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, events: events.NewFakeRecorder(1000)}
	client := fake.NewClientset(
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "ledger"}},
	)
	w.handle = &kube137test.Handle{Recorder: w.events, Informers: informers.NewSharedInformerFactory(client, 0)}
	raw := fmt.Sprintf(`{"module": {"file": %q}, "grants": ["events", "waiting-pods", "objects"], "objects": [{"resource": "v1/persistentvolumeclaims"}]%s}`, file, args)
	opts = append(opts, func(c *sched.PluginConfig) { c.Limits = host.Limits{Instances: instances} })
	p, err := kube137.New("extensions", shared, opts...)(t.Context(), &runtime.Unknown{Raw: []byte(raw)}, w.handle)
	if err != nil {
		t.Fatal(err)
	}
	w.p = p.(kube137.Plugin)
	w.handle.Informers.Start(t.Context().Done())
	w.handle.Informers.WaitForCacheSync(t.Context().Done())
	t.Cleanup(func() {
		if err := w.p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// noted returns a Pod with annotations: key, value, key, value.
func noted(name string, notes ...string) *corev1.Pod {
	annotations := map[string]string{}
	for ; len(notes) > 0; notes = notes[2:] {
		annotations[notes[0]] = notes[1]
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID("uid-" + name), Annotations: annotations}}
}

func zoned(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
}

// start begins a cycle.
func (w *world) start(pod *corev1.Pod) *kube137test.CycleState {
	w.t.Helper()
	state := kube137test.NewCycleState()
	if _, status := w.p.(fwk.PreFilterPlugin).PreFilter(w.t.Context(), state, pod, nil); !status.IsSuccess() {
		w.t.Fatal(status.AsError())
	}
	return state
}

func (w *world) filter(state fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) string {
	return text(w.p.(fwk.FilterPlugin).Filter(w.t.Context(), state, pod, node))
}

// event returns the next event that was reported.
func (w *world) event() string {
	select {
	case e := <-w.events.Events:
		return e
	default:
		return "none"
	}
}

func TestPreEnqueueAndSign(t *testing.T) {
	w := newWorld(t, 1, "")
	if got := text(w.p.(fwk.PreEnqueuePlugin).PreEnqueue(t.Context(), noted("p", "gate", "not yet"))); got != "UnschedulableAndUnresolvable: not yet" {
		t.Errorf("got %s", got)
	}
	if got, want := <-w.events.Events, `Warning FailedScheduling plugin "extensions" keeps the Pod out of the scheduling queue: not yet`; got != want {
		t.Errorf("the event is %q, want %q", got, want)
	}
	if got := text(w.p.(fwk.PreEnqueuePlugin).PreEnqueue(t.Context(), noted("p"))); got != "Success" {
		t.Errorf("got %s", got)
	}
	fragments, status := w.p.(fwk.SignPlugin).SignPod(t.Context(), noted("p", "order", "7"))
	want := []fwk.SignFragment{{Key: "kubewasm.order", Value: json.RawMessage(`"7"`)}, {Key: "kubewasm.list", Value: json.RawMessage("[1, 2]")}}
	if diff := cmp.Diff(want, fragments); diff != "" || !status.IsSuccess() {
		t.Errorf("%s (-want +got):\n%s", text(status), diff)
	}
	if fragments, status := w.p.(fwk.SignPlugin).SignPod(t.Context(), noted("p", "sign", "refuse")); len(fragments) != 0 || text(status) != "Unschedulable: unlike any other" {
		t.Errorf("got %v, %s", fragments, text(status))
	}
}

func TestLessIsATotalOrder(t *testing.T) {
	w := newWorld(t, 1, "")
	less := w.p.(fwk.QueueSortPlugin).Less
	start := time.Unix(1000, 0)
	var list []kube137test.QueuedPod
	for i, order := range []string{"a", "a", "b", "", "b", "c"} {
		list = append(list, kube137test.QueuedPod{Pod: noted(fmt.Sprint("p", i), "order", order), Came: start.Add(time.Duration(i%2) * time.Second)})
	}
	for _, a := range list {
		for _, b := range list {
			if less(a, b) && less(b, a) || a.Pod != b.Pod && !less(a, b) && !less(b, a) || a.Pod == b.Pod && less(a, b) {
				t.Errorf("%s and %s are in no order", a.Pod.Name, b.Pod.Name)
			}
			if x, y := a.Pod.Annotations["order"], b.Pod.Annotations["order"]; x != y && less(a, b) != (x < y) {
				t.Errorf("order %q before %q is %v", x, y, less(a, b))
			} else if x == y && a.Came.Before(b.Came) && !less(a, b) {
				t.Errorf("%s came before %s", a.Pod.Name, b.Pod.Name)
			}
			for _, c := range list {
				if less(a, b) && less(b, c) && !less(a, c) {
					t.Errorf("%s, %s, %s: the order is not transitive", a.Pod.Name, b.Pod.Name, c.Pod.Name)
				}
			}
		}
	}
	// After a failure the order is that of the scheduler, until another version serves.
	bad := kube137test.QueuedPod{Pod: noted("bad", "order", "trap"), Came: start.Add(-time.Hour)}
	if !less(bad, list[0]) || less(list[0], bad) {
		t.Error("the Pod that came first is not first")
	}
	x, y := list[2], list[1]
	if !less(x, y) {
		t.Error("the guest is still asked")
	}
	file, err := guestbuild.Build(t.Context(), "../testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	module, err := host.File(file).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// A custom section makes it another module that does the same.
	if err := w.p.Swap(t.Context(), host.Bytes(append(module, 0, 3, 1, 'x', 0)), ""); err != nil {
		t.Fatal(err)
	}
	if less(x, y) {
		t.Error("the version after a swap is not asked")
	}
}

func TestQueueingHints(t *testing.T) {
	w := newWorld(t, 1, `, "queueTimeout": "1m"`)
	list, err := w.p.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("got %v, %v", list, err)
	}
	var got []fwk.ClusterEvent
	for _, e := range list {
		got = append(got, e.Event)
	}
	want := []fwk.ClusterEvent{
		{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel}, {Resource: fwk.AssignedPod, ActionType: fwk.Delete}, {Resource: fwk.Node, ActionType: fwk.Delete},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list[2].QueueingHintFn != nil {
		t.Error("an event without a hint has one")
	}
	gone := cache.DeletedFinalStateUnknown{Obj: noted("other")}
	tests := map[string]struct {
		event    int
		hint     string
		old, new any
		want     fwk.QueueingHint
		err      string
	}{
		"node added":                  {0, "none to a", nil, zoned("n", "a"), fwk.Queue, ""},
		"node moved":                  {0, "a to b", zoned("n", "a"), zoned("n", "b"), fwk.Queue, ""},
		"node moved elsewhere":        {0, "a to b", zoned("n", "a"), zoned("n", "c"), fwk.QueueSkip, ""},
		"hint that fails":             {0, "error", nil, zoned("n", "a"), fwk.Queue, "no hint"},
		"pod deleted":                 {1, "other", noted("other"), nil, fwk.Queue, ""},
		"other pod deleted":           {1, "mine", noted("other"), nil, fwk.QueueSkip, ""},
		"pod of which news came late": {1, "other", gone, nil, fwk.Queue, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got, err := list[test.event].QueueingHintFn(klog.Background(), noted("p", "hint", test.hint), test.old, test.new)
				if got != test.want || fmt.Sprint(err) != cmpOr(test.err, "<nil>") {
					t.Errorf("got %v, %v", got, err)
				}
			}
		})
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// TestNamesOfScores holds that the names of the nodes are there while the scores are
// normalized, and that a guest that asks for one later is told so.
func TestNamesOfScores(t *testing.T) {
	w := newWorld(t, 1, "")
	node := kube137test.NewNodeInfo(zoned("n1", "a"))
	w.handle.Nodes = []*kube137test.NodeInfo{node}
	pod := noted("p", "normalize", "names", "score", "late")
	state := w.start(pod)
	scores := fwk.NodeScoreList{{Name: "n1", Score: 7}, {Name: "node-2", Score: 7}, {Name: "", Score: 7}}
	score := w.p.(fwk.ScorePlugin)
	if status := score.ScoreExtensions().NormalizeScore(t.Context(), state, pod, scores); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	want := fwk.NodeScoreList{{Name: "n1", Score: 2}, {Name: "node-2", Score: 6}, {Name: ""}}
	if diff := cmp.Diff(want, scores); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
	_, status := score.Score(t.Context(), state, pod, node)
	if got, want := text(status), "the names of nodes were asked for after the call that the nodes were passed to"; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestSnapshotUntilPermit reads all nodes in the functions from Reserve on.
func TestSnapshotUntilPermit(t *testing.T) {
	w := newWorld(t, 2, "")
	w.handle.Nodes = []*kube137test.NodeInfo{kube137test.NewNodeInfo(zoned("n1", "a")), kube137test.NewNodeInfo(zoned("n2", "b"))}
	for name, call := range map[string]func(fwk.CycleState, *corev1.Pod) *fwk.Status{
		"reserve": func(state fwk.CycleState, pod *corev1.Pod) *fwk.Status {
			return w.p.(fwk.ReservePlugin).Reserve(t.Context(), state, pod, "n1")
		},
		"permit": func(state fwk.CycleState, pod *corev1.Pod) *fwk.Status {
			status, _ := w.p.(fwk.PermitPlugin).Permit(t.Context(), state, pod, "n1")
			return status
		},
	} {
		pod := noted("p", "nodes", name)
		if got, want := text(call(w.start(pod), pod)), "Unschedulable: n1=a n2=b"; got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	pod := noted("p", "nodes", "prebind")
	if got, want := text(w.p.(fwk.PreBindPlugin).PreBind(t.Context(), w.start(pod), pod, "n1")), "it belongs to prefilter, postfilter"; !strings.Contains(got, want) {
		t.Errorf("prebind: got %s, want %s", got, want)
	}
}

// TestCycleStateOnEveryInstance goes through a whole cycle with more instances
// than calls at a time: an instance that has seen nothing of it is shown what
// happened, once and in its order.
func TestCycleStateOnEveryInstance(t *testing.T) {
	w := newWorld(t, 3, "")
	n1, n2 := kube137test.NewNodeInfo(zoned("n1", "a")), kube137test.NewNodeInfo(zoned("n2", "b"))
	w.handle.Nodes = []*kube137test.NodeInfo{n1, n2}
	pod := noted("p", "filter", "trace", "permit", "wait", "prebind", "data")
	state := w.start(pod)
	// Calls at the same time, so that every instance takes part.
	filterAll := func(want string) {
		t.Helper()
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() {
				if got := w.filter(state, pod, n1); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			})
		}
		wg.Wait()
	}
	filterAll("Unschedulable: prefilter:p")
	if status := w.p.(fwk.PreScorePlugin).PreScore(t.Context(), state, pod, []fwk.NodeInfo{n2, n1}); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	filterAll("Unschedulable: prefilter:p prescore:n2,n1")
	// What is bound is a copy of the Pod.
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = "n1"
	if status := w.p.(fwk.ReservePlugin).Reserve(t.Context(), state, assumed, "n1"); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	status, timeout := w.p.(fwk.PermitPlugin).Permit(t.Context(), state, assumed, "n1")
	if got, want := text(status), "Wait: prefilter:p prescore:n2,n1 reserve:n1 n1"; got != want || timeout != 90*time.Second {
		t.Errorf("got %s for %s, want %s", got, timeout, want)
	}
	// Other Pods go by meanwhile, more than an instance remembers.
	for i := range 200 {
		w.start(noted(fmt.Sprint("other", i)))
	}
	result, status := w.p.(fwk.PreBindPlugin).PreBindPreFlight(t.Context(), state, assumed, "n1")
	if !status.IsSuccess() || !result.AllowParallel {
		t.Errorf("got %v, %s", result, text(status))
	}
	// The scoring is not shown to an instance that comes to a cycle after it; one
	// that was there still knows it.
	unscored := func(trace string) string { return strings.Replace(trace, "prescore:n2,n1 ", "", 1) }
	if got, want := unscored(text(w.p.(fwk.PreBindPlugin).PreBind(t.Context(), state, assumed, "n1"))), "Error: prefilter:p reserve:n1 claim of "; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s…", got, want)
	}
	w.p.(fwk.PostBindPlugin).PostBind(t.Context(), state, assumed, "n1")
	if got, want := unscored(w.event()), "Normal Bound prefilter:p reserve:n1 n1"; got != want {
		t.Errorf("got event %q, want %q", got, want)
	}
	w.p.(fwk.ReservePlugin).Unreserve(t.Context(), state, assumed, "n1")
	if got, want := unscored(w.event()), "Warning Unreserved prefilter:p reserve:n1 n1"; got != want {
		t.Errorf("got event %q, want %q", got, want)
	}
	if _, status := w.p.(fwk.PreBindPlugin).PreBindPreFlight(t.Context(), state, noted("q"), "n1"); !status.IsSkip() {
		t.Errorf("got %s, want Skip", text(status))
	}
}

// TestDryRunsDoNotMeet clones a cycle as preemption does and takes different Pods
// away from each clone at the same time.
func TestDryRunsDoNotMeet(t *testing.T) {
	for n := range 4 {
		instances, kind := []int{1, 3}[n%2], []string{"", "opaque"}[n/2]
		t.Run(strings.TrimSpace(fmt.Sprint(instances, " instances ", kind)), func(t *testing.T) {
			w := newWorld(t, instances, "")
			pod := noted("p", "filter", "trace", "clone", kind)
			state := w.start(pod)
			extensions := w.p.(fwk.PreFilterPlugin).PreFilterExtensions()
			var wg sync.WaitGroup
			for n := range 6 {
				wg.Go(func() {
					clone := state.Clone()
					node := kube137test.NewNodeInfo(zoned(fmt.Sprint("n", n), "a"))
					want := "prefilter:p"
					check := func(state fwk.CycleState, want string) {
						if got := w.filter(state, pod, node); got != "Unschedulable: "+want {
							t.Errorf("got  %s\nwant %s", got, want)
						}
					}
					for i := range 5 {
						other := noted(fmt.Sprintf("v%d%d", n, i))
						if s := extensions.RemovePod(t.Context(), clone, pod, kube137test.PodInfo{Pod: other}, node); !s.IsSuccess() {
							t.Error(s.AsError())
						}
						want += fmt.Sprintf(" -v%d%d@n%d", n, i, n)
						check(clone, want)
						if i%2 == 0 {
							// A clone of the clone goes its own way.
							twin := clone.Clone()
							if s := extensions.AddPod(t.Context(), twin, pod, kube137test.PodInfo{Pod: other}, node); !s.IsSuccess() {
								t.Error(s.AsError())
							}
							check(twin, want+fmt.Sprintf(" +v%d%d@n%d", n, i, n))
						}
					}
					check(state, "prefilter:p")
				})
			}
			wg.Wait()
		})
	}
}

func TestNodeInfo(t *testing.T) {
	w := newWorld(t, 2, "")
	n := kube137test.NewNodeInfo(zoned("n1", "a"), noted("one"), noted("two"))
	n.Requested.MilliCPU, n.Allocatable.MilliCPU, n.NonZeroRequested.Memory = 1500, 4000, 1<<40
	n.Allocatable.ScalarResources = map[corev1.ResourceName]int64{"example.com/gpu": 8, "example.com/fpga": 1}
	n.UsedPorts = fwk.HostPortInfo{}
	n.UsedPorts.Add("10.0.0.1", "UDP", 53)
	n.UsedPorts.Add("", "", 8080)
	n.PVCRefCounts = map[string]int{"shop/data": 2}
	n.ImageStates = map[string]*fwk.ImageStateSummary{"web:1": {Size: 1 << 33, NumNodes: 3}, "db:2": {Size: 5}}
	w.handle.Nodes = []*kube137test.NodeInfo{n}
	pod := noted("p", "filter", "usage")
	state := w.start(pod)
	const about = "nonzero 1099511627776 gpu 8 0.0.0.0:8080/TCP 10.0.0.1:53/UDP shop/data=2 db:2=5*0 web:1=8589934592*3"
	want := "Unschedulable: 1500/4000 " + about + " one two"
	for range 3 {
		if got := w.filter(state, pod, n); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	// A dry run removes a Pod from a copy: what was passed counts, then the
	// original again.
	dry := n.Snapshot()
	if err := dry.RemovePod(klog.Background(), noted("one")); err != nil {
		t.Fatal(err)
	}
	dry.(*kube137test.NodeInfo).Requested.MilliCPU = 500
	for range 2 {
		if got, want := w.filter(state, pod, dry), "Unschedulable: 500/4000 "+about+" two"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if got := w.filter(state, pod, n); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	near := noted("near", "filter", "neighbour", "neighbour", "n1")
	other := kube137test.NewNodeInfo(zoned("n2", "b"))
	if got := w.filter(w.start(near), near, other); got != "Unschedulable: a 2" {
		t.Errorf("got %s", got)
	}
	far := noted("far", "filter", "neighbour", "neighbour", "n9")
	if got := w.filter(w.start(far), far, other); got != "Unschedulable: no such node" {
		t.Errorf("got %s", got)
	}
	narrowed, _ := w.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), noted("all", "nodes", "snapshot"), nil)
	if diff := cmp.Diff(&fwk.PreFilterResult{NodeNames: sets.New("n1")}, narrowed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPostFilter(t *testing.T) {
	w := newWorld(t, 1, "")
	m := kube137test.NodeStatuses{ByName: map[string]*fwk.Status{"n2": fwk.NewStatus(fwk.Unschedulable, "full", "of Pods"), "n1": fwk.NewStatus(fwk.UnschedulableAndUnresolvable)}}
	pod := noted("p")
	result, status := w.p.(fwk.PostFilterPlugin).PostFilter(t.Context(), w.start(pod), pod, m)
	if got, want := text(status), "Unschedulable: n1=UnschedulableAndUnresolvable;n2=Unschedulable: full, of Pods;"; got != want || result != nil {
		t.Errorf("got %v, %s, want %s", result, got, want)
	}
	pod = noted("q", "nominate", "n7")
	result, status = w.p.(fwk.PostFilterPlugin).PostFilter(t.Context(), w.start(pod), pod, m)
	want := &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatedNodeName: "n7", NominatingMode: fwk.ModeOverride}}
	if diff := cmp.Diff(want, result); diff != "" || !status.IsSuccess() {
		t.Errorf("%s (-want +got):\n%s", text(status), diff)
	}
	// A nomination goes, though there is no other node.
	pod = noted("r", "withdraw", "yes")
	result, status = w.p.(fwk.PostFilterPlugin).PostFilter(t.Context(), w.start(pod), pod, m)
	want = &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}}
	if diff := cmp.Diff(want, result); diff != "" || text(status) != "Unschedulable: nowhere" {
		t.Errorf("%s (-want +got):\n%s", text(status), diff)
	}
}

func TestWaitingPodsAndEvents(t *testing.T) {
	for action, want := range map[string]string{
		"allow":  "allowed by extensions",
		"reject": "rejected by extensions: waiter must go: extensions,gang",
		"leave":  "",
	} {
		t.Run(action, func(t *testing.T) {
			w := newWorld(t, 1, "")
			waiter := &kube137test.WaitingPod{Pod: noted("waiter"), Pending: []string{"extensions", "gang"}}
			w.handle.Waiting = []*kube137test.WaitingPod{waiter}
			pod := noted("p", "permit", action)
			if status, timeout := w.p.(fwk.PermitPlugin).Permit(t.Context(), w.start(pod), pod, "n1"); !status.IsSuccess() || timeout != 0 {
				t.Errorf("got %s, %s", text(status), timeout)
			}
			if waiter.Result() != want {
				t.Errorf("got %q, want %q", waiter.Result(), want)
			}
		})
	}
	w := newWorld(t, 3, "")
	pod := noted("p", "event", "yes", "filter", "trace")
	state := w.start(pod)
	var wg sync.WaitGroup
	for range 9 {
		wg.Go(func() { w.filter(state, pod, kube137test.NewNodeInfo(zoned("n1", "a"))) })
	}
	wg.Wait()
	if first, second := w.event(), w.event(); first != "Normal Seen the Pod p 100%" || second != "none" {
		t.Errorf("got events %q and %q: a replay must report nothing", first, second)
	}
}

// TestListsAreOfTheirCall holds that a call sees a list as it is then, and not as an
// earlier call of the instance has seen it, and that a long one comes whole.
func TestListsAreOfTheirCall(t *testing.T) {
	w := newWorld(t, 1, "")
	claims := w.handle.Informers.Core().V1().PersistentVolumeClaims().Informer().GetStore()
	pod := noted("p", "filter", "claims")
	state, node := w.start(pod), kube137test.NewNodeInfo(zoned("n1", "a"))
	for i, size := range []int{10, 10, 300 << 10} {
		if got, want := w.filter(state, pod, node), fmt.Sprintf("Unschedulable: %d", i+1); got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
		if err := claims.Add(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint("more-", i), Annotations: map[string]string{"pad": strings.Repeat("x", size)},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.filter(state, pod, node); got != "Unschedulable: 4" {
		t.Errorf("there are %s, want 4 on several pages", got)
	}
}

// TestLookupsByTheSchedulersModule holds that a guest which was built before look-ups were of
// k8s.io/api goes on.
func TestLookupsByTheSchedulersModule(t *testing.T) {
	client := fake.NewClientset(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}})
	handle := &kube137test.Handle{Informers: informers.NewSharedInformerFactory(client, 0)}
	args := `{"module": {"file": "../testdata/earlylookup.wasm"}, "grants": ["objects"], "objects": [{"resource": "v1/persistentvolumeclaims"}]}`
	p, err := kube137.New("early", shared)(t.Context(), &runtime.Unknown{Raw: []byte(args)}, handle)
	if err != nil {
		t.Fatal(err)
	}
	defer p.(kube137.Plugin).Close(context.Background())
	handle.Informers.Start(t.Context().Done())
	handle.Informers.WaitForCacheSync(t.Context().Done())
	status := p.(fwk.PreBindPlugin).PreBind(t.Context(), kube137test.NewCycleState(), noted("p"), "n1")
	if got := status.Message(); status.Code() != fwk.Unschedulable || strings.Count(got, "data") != 2 {
		t.Errorf("got %s, want the claim twice", text(status))
	}
}

// group is a fwk.PodGroupInfo.
type group struct {
	fwk.PodGroupInfo
	name string
	pods []*corev1.Pod
}

func (g group) GetType() fwk.EntityKeyType        { return fwk.PodGroupKeyType }
func (g group) GetNamespace() string              { return "shop" }
func (g group) GetName() string                   { return g.name }
func (g group) GetUnscheduledPods() []*corev1.Pod { return g.pods }

// groupState is a fwk.PodGroupCycleState and a fwk.PlacementCycleState.
type groupState struct {
	*kube137test.CycleState
}

func (groupState) GetParentPlacementCycleState() fwk.PlacementCycleState { return nil }

type assignment struct {
	fwk.ProposedAssignment
	pod  *corev1.Pod
	node string
}

func (a assignment) GetPod() *corev1.Pod { return a.pod }
func (a assignment) GetNodeName() string { return a.node }

func TestPodGroups(t *testing.T) {
	w := newWorld(t, 1, "")
	state := groupState{kube137test.NewCycleState()}
	g := group{name: "gang", pods: []*corev1.Pod{noted("a"), noted("b")}}
	post, status := w.p.(fwk.PodGroupPostFilterPlugin).PodGroupPostFilter(t.Context(), state, g, nil)
	want := map[types.NamespacedName]*fwk.NominatingInfo{
		{Namespace: "shop", Name: "a"}: {NominatedNodeName: "node-of-a", NominatingMode: fwk.ModeOverride},
		{Namespace: "shop", Name: "b"}: {NominatedNodeName: "node-of-b", NominatingMode: fwk.ModeOverride},
	}
	if !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	if diff := cmp.Diff(want, post.NominatingInfos); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The scheduler reads the result of a success without a look whether there is
	// one.
	if post, status := w.p.(fwk.PodGroupPostFilterPlugin).PodGroupPostFilter(t.Context(), state, group{name: "empty"}, nil); post == nil || len(post.NominatingInfos) != 0 || !status.IsSuccess() {
		t.Errorf("without nominations got %v, %s", post, text(status))
	}
	parent := &fwk.Placement{Nodes: []fwk.NodeInfo{kube137test.NewNodeInfo(zoned("n1", "a")), kube137test.NewNodeInfo(zoned("n2", "b"))}}
	placements, status := w.p.(fwk.PlacementGeneratePlugin).GeneratePlacements(t.Context(), state, g, parent)
	if !status.IsSuccess() || len(placements.Placements) != 2 {
		t.Fatalf("got %v, %s", placements, text(status))
	}
	for i, p := range placements.Placements {
		if p.Name != fmt.Sprint("gang on n", i+1) || len(p.Nodes) != 1 || p.Nodes[0] != parent.Nodes[i] {
			t.Errorf("placement %d is %+v", i, p)
		}
	}
	if _, status := w.p.(fwk.PlacementGeneratePlugin).GeneratePlacements(t.Context(), state, group{name: "stray"}, parent); !strings.Contains(status.Message(), `has the node "elsewhere", which is not in its parent`) {
		t.Errorf("got %s", text(status))
	}
	scorer := w.p.(fwk.PlacementScorePlugin)
	assignments := &fwk.PodGroupAssignments{Placement: parent, ProposedAssignments: []fwk.ProposedAssignment{assignment{pod: noted("a"), node: "n1"}}}
	score, status := scorer.ScorePlacement(t.Context(), groupState{kube137test.NewCycleState()}, g, assignments)
	if score != 21 || !status.IsSuccess() {
		t.Errorf("got %d, %s", score, text(status))
	}
	scores := []fwk.PlacementScore{{Placement: &fwk.Placement{Name: "abc"}, Score: 9}, {Placement: &fwk.Placement{Name: "z"}, Score: 8}}
	if status := scorer.PlacementScoreExtensions().NormalizePlacementScore(t.Context(), state, g, scores); !status.IsSuccess() || scores[0].Score != 3 || scores[1].Score != 1 {
		t.Errorf("got %v, %s", scores, text(status))
	}
}

func TestFailurePolicy(t *testing.T) {
	for policy, want := range map[string]string{"Fail": "Error: ", "Ignore": "Success"} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, 1, `, "failurePolicy": "`+policy+`", "limits": {"timeout": "50ms"}`)
			for _, action := range []string{"panic", "loop"} {
				pod := noted("p", "filter", action)
				if got := w.filter(w.start(pod), pod, kube137test.NewNodeInfo(zoned("n1", "a"))); !strings.HasPrefix(got, want) {
					t.Errorf("%s: got %s, want %s", action, got, want)
				}
			}
		})
	}
}
