package kube137

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/internal/preemption"
	"github.com/kubewasm/kubewasm/sched"
)

// evicting is a scheduler that evicts Pods through a client. The Pod "waits" waits in Permit, and the Pod
// "binds" is about to be bound.
type evicting struct {
	fwk.Handle
	client    kubernetes.Interface
	nominated []fwk.PodInfo

	mu   sync.Mutex
	done []string
}

func (h *evicting) did(format string, values ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, fmt.Sprintf(format, values...))
}

func (h *evicting) ClientSet() kubernetes.Interface { return h.client }
func (h *evicting) APICacher() fwk.APICacher        { return nil }
func (h *evicting) ProfileName() string             { return "default-scheduler" }
func (h *evicting) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	for name := range pods {
		h.did("activate %s", name)
	}
}
func (h *evicting) Parallelizer() fwk.Parallelizer            { return inTurn{} }
func (h *evicting) NominatedPodsForNode(string) []fwk.PodInfo { return h.nominated }
func (h *evicting) EventRecorder() events.EventRecorderLogger { return evictingEvents{h: h} }
func (h *evicting) GetPodInPreBind(uid types.UID) fwk.PodInPreBind {
	return evictingPod{h: h, uid: uid}.ifNamed("binds")
}
func (h *evicting) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if uid == "waits" {
		return evictingWaiting{h: h}
	}
	return nil
}

type inTurn struct{}

func (inTurn) Until(_ context.Context, pieces int, work workqueue.DoWorkPieceFunc, _ string) {
	for n := range pieces {
		work(n)
	}
}

type evictingEvents struct {
	events.EventRecorderLogger
	h *evicting
}

func (e evictingEvents) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	e.h.did("event %s of %s: %s", reason, regarding.(*corev1.Pod).Name, fmt.Sprintf(note, args...))
}

type evictingWaiting struct {
	fwk.WaitingPod
	h *evicting
}

func (w evictingWaiting) Preempt(plugin, msg string) bool {
	w.h.did("wait ended by %s: %s", plugin, msg)
	return true
}

type evictingPod struct {
	fwk.PodInPreBind
	h   *evicting
	uid types.UID
}

func (p evictingPod) ifNamed(uid types.UID) fwk.PodInPreBind {
	if p.uid != uid {
		return nil
	}
	return p
}

func (p evictingPod) CancelPod(reason string) bool {
	p.h.did("binding ended: %s", reason)
	return true
}

type namedPod struct {
	fwk.PodInfo
	pod *corev1.Pod
}

func (p namedPod) GetPod() *corev1.Pod { return p.pod }

// podNamed returns a Pod of the scheduler "s".
func podNamed(name string, priority int32) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority, SchedulerName: "s"}}
}

// TestEvictions has Pods of each state evicted, and holds what the API server is told.
func TestEvictions(t *testing.T) {
	ending, low, high := podNamed("ending", 0), podNamed("low", 1), podNamed("high", 5)
	ending.DeletionTimestamp = &metav1.Time{}
	for _, nominated := range []*corev1.Pod{low, high} {
		nominated.Status.NominatedNodeName = "n1"
	}
	client := fake.NewClientset(podNamed("runs", 0), low, high)
	h := &evicting{client: client, nominated: []fwk.PodInfo{namedPod{pod: low}, namedPod{pod: high}}}
	synctest.Test(t, func(t *testing.T) {
		err := handle{h, new(evictions)}.Preempt(t.Context(), "plugin", podNamed("preemptor", 5), "n1", []*corev1.Pod{podNamed("runs", 0), ending, podNamed("gone", 0), podNamed("waits", 0), podNamed("binds", 0)})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	})
	for _, a := range client.Actions() {
		switch a := a.(type) {
		case kubetesting.PatchAction:
			h.did("patch %s of %s", a.GetSubresource(), a.GetName())
		case kubetesting.DeleteActionImpl:
			h.did("delete %s with the UID %s", a.Name, *a.DeleteOptions.Preconditions.UID)
		}
	}
	want := []string{
		"binding ended: preempted by plugin", "delete runs with the UID runs",
		"event Preempted of binds: Preempted by pod preemptor on node n1 (in kube-scheduler memory).",
		"event Preempted of runs: Preempted by pod preemptor on node n1",
		"event Preempted of waits: Preempted by pod preemptor on node n1 (in kube-scheduler memory).",
		"patch status of gone", "patch status of low", "patch status of runs", "wait ended by plugin: preempted",
	}
	slices.Sort(h.done)
	if diff := cmp.Diff(want, h.done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	now, err := client.CoreV1().Pods("default").Get(t.Context(), "low", metav1.GetOptions{})
	if err != nil || now.Status.NominatedNodeName != "" {
		t.Errorf("the nomination of the lower Pod is %q, %v", now.Status.NominatedNodeName, err)
	}
}

// TestEvictionsInTheBackground has an API server that answers late, or with an error, while the Pod for
// which others are evicted is tried again, and the plugin replaced.
func TestEvictionsInTheBackground(t *testing.T) {
	tests := []struct {
		name    string
		answer  error
		tries   bool // The queue tries the Pod again before the API server answers.
		replace bool
		want    []string
	}{
		{name: "the Pod waits for the end of its victims", want: []string{"delete a", "delete b"}},
		{name: "the queue has tried the Pod", tries: true, want: []string{"delete a", "delete b", "activate default/preemptor"}},
		{name: "the plugin is replaced", tries: true, replace: true, want: []string{"delete a", "delete b", "activate default/preemptor"}},
		{
			name: "an eviction fails", answer: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no right")),
			want: []string{
				"delete a",
				`event PreemptionFailed of preemptor: plugin "plugin": evict Pods of node n1: the Pod default/a: pods "a" is forbidden: no right`,
				"activate default/preemptor",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(podNamed("a", 0), podNamed("b", 0))
				h := &evicting{client: client}
				answer := make(chan struct{})
				client.PrependReactor("delete", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
					<-answer
					h.did("delete %s", a.(kubetesting.DeleteAction).GetName())
					return test.answer != nil, nil, test.answer
				})
				s := &slot{name: "plugin", handle: h}
				absent, err := s.load(t.Context(), sched.PluginConfig{}, errors.New("no guest"))
				if err != nil {
					t.Fatal(err)
				}
				s.current.Store(absent)
				preemptor := podNamed("preemptor", 5)
				refused := func() bool { return !(base{slot: s}).PreEnqueue(t.Context(), preemptor).IsSuccess() }

				// It returns before the API server answers.
				err = frameworkOf(h, &s.evicting).Handle.Preempt(t.Context(), "plugin", preemptor, "n1", []*corev1.Pod{podNamed("a", 0), podNamed("b", 0)})
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if test.replace {
					s.current.Store(&plugin{Plugin: absent.Plugin, evicting: absent.evicting})
				}
				if test.tries && !refused() {
					t.Error("the Pod is tried while its victims are being evicted")
				}
				if (base{slot: s}).PreEnqueue(t.Context(), podNamed("other", 0)) != nil {
					t.Error("another Pod is refused")
				}
				close(answer)
				synctest.Wait()
				if failed := test.answer != nil; refused() != failed {
					t.Errorf("after the evictions the Pod is refused: %v, want %v", !failed, failed)
				}
				time.Sleep(evictAgain)
				synctest.Wait()
				var done []string
				for _, d := range h.done {
					if !strings.HasPrefix(d, "event Preempted") {
						done = append(done, d)
					}
				}
				if diff := cmp.Diff(test.want, done); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if refused() {
					t.Error("the Pod is refused at the end")
				}
			})
		})
	}
}

// TestEvictionsAreBounded holds that a Pod beyond the bound evicts others before Preempt returns, and is
// not nominated if that fails.
func TestEvictionsAreBounded(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "runs", errors.New("no right"))
	})
	h := handle{&evicting{client: client}, new(evictions)}
	for n := range maxEvicting {
		if !h.evicting.begin(types.UID(fmt.Sprint(n))) {
			t.Fatalf("%d Pods may not evict others at a time, want %d", n+1, maxEvicting)
		}
	}
	err := h.Preempt(t.Context(), "plugin", podNamed("more", 5), "n1", []*corev1.Pod{podNamed("runs", 0)})
	if want := `the Pod default/runs: pods "runs" is forbidden: no right`; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	h.evicting.end("0")
	if !h.evicting.begin("more") {
		t.Error("no Pod may evict others after the evictions for one have ended")
	}
}

// extending is a scheduler with extenders.
type extending struct {
	evicting
	extenders []fwk.Extender
}

func (h *extending) Extenders() []fwk.Extender              { return h.extenders }
func (h *extending) SnapshotSharedLister() fwk.SharedLister { return noNodes{} }

type noNodes struct{ fwk.SharedLister }

func (noNodes) NodeInfos() fwk.NodeInfoLister { return nil }

// extender leaves the nodes of victims.
type extender struct {
	fwk.Extender
	victims                         map[string][]string
	err                             error
	blind, indifferent, isIgnorable bool
}

func (e *extender) Name() string                  { return "e" }
func (e *extender) SupportsPreemption() bool      { return !e.blind }
func (e *extender) IsInterested(*corev1.Pod) bool { return !e.indifferent }
func (e *extender) IsIgnorable() bool             { return e.isIgnorable }
func (e *extender) ProcessPreemption(_ *corev1.Pod, candidates map[string]*extenderv1.Victims, _ fwk.NodeInfoLister) (map[string]*extenderv1.Victims, error) {
	if e.err != nil {
		return nil, e.err
	}
	left := map[string]*extenderv1.Victims{}
	for node, names := range e.victims {
		if candidates[node] == nil {
			continue
		}
		left[node] = &extenderv1.Victims{NumPDBViolations: 1}
		for _, name := range names {
			left[node].Pods = append(left[node].Pods, podNamed(name, 0))
		}
	}
	return left, nil
}

// TestExtendersOfPreemption asks extenders about two nodes with a victim each.
func TestExtendersOfPreemption(t *testing.T) {
	both := []string{"n1: a, 0 violations", "n2: b, 0 violations"}
	for name, test := range map[string]struct {
		extenders []fwk.Extender
		want      []string
		err       string
	}{
		"none":                  {nil, both, ""},
		"without preemption":    {[]fwk.Extender{&extender{blind: true}}, both, ""},
		"not interested":        {[]fwk.Extender{&extender{indifferent: true}}, both, ""},
		"another victim":        {[]fwk.Extender{&extender{victims: map[string][]string{"n2": {"c", "d"}, "n3": {"e"}}}}, []string{"n2: c d, 1 violations"}, ""},
		"two in turn":           {[]fwk.Extender{&extender{victims: map[string][]string{"n1": {"c"}}}, &extender{victims: map[string][]string{"n2": {"c"}}}}, nil, ""},
		"fails":                 {[]fwk.Extender{&extender{err: errors.New("away")}}, nil, `extender "e": away`},
		"fails, may be ignored": {[]fwk.Extender{&extender{err: errors.New("away"), isIgnorable: true}}, both, ""},
		"no victim":             {[]fwk.Extender{&extender{victims: map[string][]string{"n1": {}}}}, nil, `extender "e": it names no victim on the node "n1"`},
		"no victim, is ignored": {[]fwk.Extender{&extender{victims: map[string][]string{"n1": {}, "n2": {"b"}}, isIgnorable: true}}, []string{"n2: b, 1 violations"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &plugin{handle: &extending{extenders: test.extenders}}
			left, err := p.extend(t.Context(), podNamed("preemptor", 5), []*preemption.Candidate{
				{Node: "n1", Victims: []*corev1.Pod{podNamed("a", 0)}}, {Node: "n2", Victims: []*corev1.Pod{podNamed("b", 0)}},
			})
			if text := fmt.Sprint(err); (err != nil || test.err != "") && text != test.err {
				t.Fatalf("error is %s, want %s", text, test.err)
			}
			var got []string
			for _, c := range left {
				var names []string
				for _, pod := range c.Victims {
					names = append(names, pod.Name)
				}
				got = append(got, fmt.Sprintf("%s: %s, %d violations", c.Node, strings.Join(names, " "), c.Violations))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
		})
	}
}
