package conformance_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

func nodeOf(n Node) *framework.NodeInfo {
	info := framework.NewNodeInfo(nodeObject(n.Object))
	for _, pod := range n.Pods {
		p := podOf(pod)
		p.Spec.NodeName = n.Name
		info.Add(p)
	}
	info.Requested.MilliCPU, info.Allocatable.MilliCPU = n.Requested, n.Allocatable
	for name, size := range n.Images {
		info.Images = append(info.Images, schedmsg.Image{Name: name, Size: size, NumNodes: 1})
	}
	return info
}

func nodesOf(nodes []Node) (list framework.Nodes) {
	for _, n := range nodes {
		list = append(list, nodeOf(n))
	}
	return list
}

// recorder keeps the events that are reported about a Pod.
type recorder struct {
	about  *corev1.Pod
	events []string
}

func (r *recorder) record(regarding, _ runtime.Object, eventType, reason, action, note string) {
	if regarding != r.about {
		reason = fmt.Sprintf("%s about %v", reason, regarding)
	}
	r.events = append(r.events, fmt.Sprintf("%s %s %s: %s", eventType, reason, action, note))
}

// statusesOf are those of nodes, as the engine takes them.
func statusesOf(statuses []NodeStatus) func() []schedmsg.NodeStatus {
	return func() (list []schedmsg.NodeStatus) {
		for _, n := range statuses {
			list = append(list, schedmsg.NodeStatus{NodeName: n.Node, Code: codeOf(n.Status), Message: n.Status.Reason})
		}
		return list
	}
}

// codeOf returns the code that has the name.
func codeOf(s Status) abi.Code {
	for code := abi.Success; code.Known(); code++ {
		if code.String() == s.Code {
			return code
		}
	}
	panic("no code " + s.Code)
}

func TestCycle(t *testing.T) { run(t, "cycle", onCases(cycleCases)) }

func cycleCases(t *testing.T, rt *host.Runtime, guest string, s *Suite) {
	for _, c := range s.Cycle {
		t.Run(c.Name, func(t *testing.T) {
			w := newCycle(t, rt, guest, c)
			defer w.p.Close(context.Background())
			for n, step := range c.Steps {
				t.Run(fmt.Sprint("step ", n, " ", step.Call), func(t *testing.T) { w.step(t, step) })
			}
			w.check(t)
		})
	}
}

// cycle is the scheduling of a Pod in the way of a case.
type cycle struct {
	c      CycleCase
	p      *sched.Plugin
	handle *framework.Handle
	events *recorder
	pod    *corev1.Pod
	// trials are the states of the cycle, by number.
	trials map[int]*sched.Cycle
}

func newCycle(t *testing.T, rt *host.Runtime, guest string, c CycleCase) *cycle {
	w := &cycle{c: c, pod: podOf(c.Pod)}
	w.events = &recorder{about: w.pod}
	w.handle = &framework.Handle{Snapshot: nodesOf(c.Nodes), Recorder: w.events.record, Informers: framework.NewInformers()}
	claims := w.handle.Informers[corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")]
	for _, c := range c.Claims {
		err := claims.Add(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: c.VolumeName},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pods := w.handle.Informers[corev1.SchemeGroupVersion.WithResource("pods")]
	if err := pods.Add(w.pod); err != nil {
		t.Fatal(err)
	}
	for _, pod := range c.Waiting {
		w.handle.Waiting = append(w.handle.Waiting, &framework.WaitingPod{Pod: podOf(pod.Object), Pending: pod.PendingPlugins})
	}
	w.p = load(t, rt, guest, w.handle, 1, `, "grants": ["events", "waiting-pods", "objects", "state"], "objects": [{"resource": "v1/persistentvolumeclaims"}, {"resource": "v1/pods", "index": [{"label": "app"}]}]`)
	return w
}

func (w *cycle) node(name string) *framework.NodeInfo {
	n, _ := w.handle.Node(name).(*framework.NodeInfo)
	return n
}

func (w *cycle) step(t *testing.T, step CycleStep) {
	if step.Change != nil {
		for i, n := range w.handle.Snapshot {
			if n.Node().Name == step.Change.Name {
				w.handle.Snapshot[i] = nodeOf(*step.Change)
			}
		}
		return
	}
	if step.Call == "prefilter" {
		w.trials = map[int]*sched.Cycle{0: w.p.Begin(w.pod)}
	}
	if w.trials[step.Trial] == nil {
		w.trials[step.Trial] = w.trials[0].Clone()
	}
	w.events.events = nil
	got := w.call(t, step, w.trials[step.Trial])
	got.Events = w.events.events
	if step.Want.Code == "" {
		step.Want.Code = "Success"
	}
	if diff := cmp.Diff(step, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// call makes the call of a step, and returns the step with the results that there
// were.
func (w *cycle) call(t *testing.T, step CycleStep, state *sched.Cycle) CycleStep {
	// What returns no status is a Success.
	step.Score, step.Nominated, step.Milliseconds, step.Parallel = 0, nil, 0, false
	var status *sched.Status
	switch step.Call {
	case "prefilter":
		_, status = w.p.PreFilter(state, nil)
	case "addpod":
		status = w.p.AddPod(state, podOf(*step.Other), w.node(step.Node))
	case "removepod":
		status = w.p.RemovePod(state, podOf(*step.Other), w.node(step.Node))
	case "filter":
		status = w.p.Filter(state, w.node(step.Node))
	case "postfilter":
		var result *sched.Nomination
		result, status = w.p.PostFilter(state, statusesOf(step.Statuses))
		if result != nil && result.Override {
			step.Nominated = &result.NodeName
		}
	case "prescore":
		var nodes framework.Nodes
		for _, name := range step.Nodes {
			nodes = append(nodes, w.node(name))
		}
		status = w.p.PreScore(state, nodes)
	case "score":
		step.Score, status = w.p.Score(state, w.node(step.Node))
	case "reserve":
		status = w.p.Reserve(state, w.pod, step.Node)
	case "unreserve":
		w.p.Unreserve(state, w.pod, step.Node)
	case "permit":
		var timeout time.Duration
		status, timeout = w.p.Permit(state, w.pod, step.Node)
		step.Milliseconds = timeout.Milliseconds()
	case "prebindpreflight":
		step.Parallel, status = w.p.PreBindPreFlight(state, w.pod, step.Node)
	case "prebind":
		status = w.p.PreBind(t.Context(), state, w.pod, step.Node)
	case "bind":
		status = w.p.Bind(state, w.pod, step.Node)
	case "postbind":
		w.p.PostBind(state, w.pod, step.Node)
	default:
		t.Fatalf("there is no call %q", step.Call)
	}
	step.Want = statusOf(status)
	return step
}

// check compares what became of the Pods that waited.
func (w *cycle) check(t *testing.T) {
	for i, pod := range w.c.Waiting {
		want := ""
		switch pod.Want {
		case "":
		case "allowed":
			want = "allowed by guest"
		default:
			want = "rejected by guest" + pod.Want[len("rejected"):]
		}
		if got := w.handle.Waiting[i].Result(); got != want {
			t.Errorf("the Pod %s was %q, want %q", pod.Name, got, want)
		}
	}
}
