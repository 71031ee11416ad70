package kube137_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// newPeerWorld loads testdata/peer/present.wasm.
func newPeerWorld(t *testing.T, instances int, logger *slog.Logger) *world {
	t.Helper()
	w := &world{t: t, events: events.NewFakeRecorder(100)}
	w.handle = &kube137test.Handle{Recorder: w.events}
	for _, name := range []string{"a", "b", "n1"} {
		w.handle.Nodes = append(w.handle.Nodes, kube137test.NewNodeInfo(zoned(name, "z")))
	}
	raw := fmt.Sprintf(`{"module": {"file": "../testdata/peer/present.wasm"}, "limits": {"instances": %d}, "grants": ["events", "waiting-pods"], "guestConfig": {"x": 1}}`, instances)
	p, err := kube137.New("peer", shared, func(c *sched.PluginConfig) { c.Logger = logger })(t.Context(), &runtime.Unknown{Raw: []byte(raw)}, w.handle)
	if err != nil {
		t.Fatal(err)
	}
	w.p = p.(kube137.Plugin)
	t.Cleanup(func() { _ = w.p.Close(context.Background()) })
	return w
}

// TestPeer goes through a cycle with a guest of the peer's ABI, on several
// instances, with other Pods between.
func TestPeer(t *testing.T) {
	out := guarded.NewLog()
	w := newPeerWorld(t, 3, slog.New(out))
	node := w.handle.Nodes[2]
	pod := noted("p")
	w.handle.Waiting = []*kube137test.WaitingPod{{Pod: noted("waiter")}}
	state := w.start(pod)
	narrowed, _ := w.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), state, pod, nil)
	if diff := cmp.Diff(&fwk.PreFilterResult{NodeNames: sets.New("n1", "b")}, narrowed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	letter := string(rune('a' + pod.Size()%26))
	filter := func(state fwk.CycleState, want string) {
		t.Helper()
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				if got := w.filter(state, pod, node); got != "Unschedulable: p"+letter+want {
					t.Errorf("got %s, want p%s%s", got, letter, want)
				}
				w.start(noted("other")) // A guest has one cycle at a time.
			})
		}
		wg.Wait()
	}
	filter(state, " n1")
	extensions := w.p.(fwk.PreFilterPlugin).PreFilterExtensions()
	clone := state.Clone()
	extensions.RemovePod(t.Context(), clone, pod, kube137test.PodInfo{Pod: noted("v")}, node)
	extensions.AddPod(t.Context(), clone, pod, kube137test.PodInfo{Pod: noted("w")}, node)
	filter(clone, "-v+w n1")
	filter(state, " n1")

	w.p.(fwk.PreScorePlugin).PreScore(t.Context(), state, pod, []fwk.NodeInfo{w.handle.Nodes[1], w.handle.Nodes[0]})
	filter(state, `s["b","a"] n1`)
	if score, status := w.p.(fwk.ScorePlugin).Score(t.Context(), state, pod, node); score != int64(len(`pxs["b","a"]`)) || !status.IsSuccess() {
		t.Errorf("got %d, %s", score, text(status))
	}
	scores := fwk.NodeScoreList{{Name: "a", Score: 1}, {Name: "b", Score: 2}}
	if status := w.p.(fwk.ScorePlugin).ScoreExtensions().NormalizeScore(t.Context(), state, pod, scores); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	if diff := cmp.Diff(fwk.NodeScoreList{{Name: "a", Score: 10}, {Name: "b", Score: 20}}, scores); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	unknown := fwk.NodeScoreList{{Name: "c"}}
	failing := w.start(noted("failing")) // Its failure ends the cycle.
	if status := w.p.(fwk.ScorePlugin).ScoreExtensions().NormalizeScore(t.Context(), failing, noted("failing"), unknown); !strings.Contains(status.Message(), `the node "c" has no score`) {
		t.Errorf("got %s", text(status))
	}
	w.p.(fwk.ReservePlugin).Reserve(t.Context(), state, pod, "n1")
	status, timeout := w.p.(fwk.PermitPlugin).Permit(t.Context(), state, pod, "n1")
	if got, want := text(status), "Wait: p"+letter+`s["b","a"]rn1`; got != want || timeout != 5*time.Second {
		t.Errorf("got %s for %s, want %s", got, timeout, want)
	}
	if got := w.event(); got != "Normal Seen 100%" {
		t.Errorf("got event %q", got)
	}
	if got := w.handle.Waiting[0].Result(); got != "rejected by peer: rejected by a guest" {
		t.Errorf("got %q", got)
	}
	// Other cycles go by while the Pod is bound.
	for range 5 {
		w.start(noted("other"))
	}
	if got, want := text(w.p.(fwk.PreBindPlugin).PreBind(t.Context(), state, pod, "n1")), "Error: p"+letter+`s["b","a"]rn1 {"x":1}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if result, status := w.p.(fwk.PreBindPlugin).PreBindPreFlight(t.Context(), state, pod, "n1"); result.AllowParallel || !status.IsSuccess() {
		t.Errorf("got %v, %s", result, text(status))
	}
	if status := w.p.(fwk.BindPlugin).Bind(t.Context(), state, pod, "n1"); !status.IsSkip() {
		t.Errorf("got %s, want Skip", text(status))
	}
	w.p.(fwk.PostBindPlugin).PostBind(t.Context(), state, pod, "n1")
	unbound := w.start(pod)
	w.p.(fwk.ReservePlugin).Reserve(t.Context(), unbound, pod, "n1")
	w.p.(fwk.ReservePlugin).Unreserve(t.Context(), unbound, pod, "n1")
	for _, want := range []string{`level=INFO msg="p`, "guest.key=value", "level=ERROR msg=p", "plugin=peer function=unreserve"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, out.String())
		}
	}
	result, status := w.p.(fwk.PostFilterPlugin).PostFilter(t.Context(), w.start(pod), pod, kube137test.NodeStatuses{ByName: map[string]*fwk.Status{"a": fwk.NewStatus(fwk.Unschedulable)}})
	want := &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatedNodeName: "n7", NominatingMode: fwk.ModeOverride}}
	if diff := cmp.Diff(want, result); diff != "" || !status.IsSuccess() {
		t.Errorf("%s (-want +got):\n%s", text(status), diff)
	}
}

func TestPeerEvents(t *testing.T) {
	w := newPeerWorld(t, 1, nil)
	list, err := w.p.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel}},
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.All}},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPeerFirstDesign(t *testing.T) {
	p := load(t, host.Config{Name: "first", Module: host.ModuleConfig{File: "../testdata/peer/first.wasm"}, Limits: host.Limits{Instances: 2}})
	if _, ok := p.(fwk.FilterPlugin); !ok {
		t.Fatal("the plugin does not filter")
	}
	if _, ok := p.(fwk.EnqueueExtensions); ok {
		t.Error("the plugin has no enqueue, and implements EnqueueExtensions")
	}
	small, large := zoned("n", ""), zoned("n", strings.Repeat("z", 1000))
	c := &cycle{t, p, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("p", 500)}}, kube137test.NewCycleState()}
	for range 2 {
		if got, want := text(c.filter(small)), "UnschedulableAndUnresolvable: the Pod is larger than the node"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := text(c.filter(large)); got != "Success" {
			t.Errorf("got %s", got)
		}
	}
}

func TestPeerWithWrongExports(t *testing.T) {
	_, err := kube137.Load(t.Context(), shared, sched.PluginConfig{Config: host.Config{Name: "wrong", Module: host.ModuleConfig{File: "../testdata/peer/wrong.wasm"}}}, nil)
	for _, want := range []string{`export "score" is () -> i32, want () -> i64`, `export "permit" is (i32) -> i64, want () -> i64`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	var export *host.ExportError
	if !errors.As(err, &export) {
		t.Errorf("got %T, want a *host.ExportError", err)
	}
}

func TestPeerNeedsGrants(t *testing.T) {
	_, err := kube137.Load(t.Context(), shared, sched.PluginConfig{Config: host.Config{Name: "peer", Module: host.ModuleConfig{File: "../testdata/peer/present.wasm"}}}, nil)
	for _, want := range []string{`handle.eventrecorder.eventf needs the grant "events"`, `handle.get_waiting_pod needs the grant "waiting-pods"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
