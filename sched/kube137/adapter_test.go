package kube137

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/minors"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
)

// loadAdapted loads a guest with the functions, all of which answer with a code and the reason
// "because".
func loadAdapted(t *testing.T, functions abi.Mask, code abi.Code) (Plugin, error) {
	t.Helper()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	config := binary.LittleEndian.AppendUint64(nil, uint64(functions))
	config = append(binary.LittleEndian.AppendUint32(config, uint32(code)), 0, 0, 0, 0)
	return Load(t.Context(), rt, sched.PluginConfig{Config: host.Config{
		Name: "scripted", Module: host.ModuleConfig{File: "../testdata/scripted.wasm"}, GuestConfig: config, Limits: host.Limits{Instances: 1},
	}}, nil)
}

// asking are the extension points at which a guest answers with a status.
var asking = map[abi.Function]func(context.Context, Plugin) *fwk.Status{
	abi.PreEnqueue: func(ctx context.Context, p Plugin) *fwk.Status {
		return p.(fwk.PreEnqueuePlugin).PreEnqueue(ctx, adaptedPod)
	},
	abi.SignPod: func(ctx context.Context, p Plugin) *fwk.Status {
		_, s := p.(fwk.SignPlugin).SignPod(ctx, adaptedPod)
		return s
	},
	abi.PreFilter: func(ctx context.Context, p Plugin) *fwk.Status {
		_, s := p.(fwk.PreFilterPlugin).PreFilter(ctx, &adaptedState{}, adaptedPod, []fwk.NodeInfo{adaptedNode()})
		return s
	},
	abi.Filter: func(ctx context.Context, p Plugin) *fwk.Status {
		return p.(fwk.FilterPlugin).Filter(ctx, &adaptedState{}, adaptedPod, adaptedNode())
	},
	abi.PostFilter: func(ctx context.Context, p Plugin) *fwk.Status {
		_, s := p.(fwk.PostFilterPlugin).PostFilter(ctx, &adaptedState{}, adaptedPod, nil)
		return s
	},
	abi.PreScore: func(ctx context.Context, p Plugin) *fwk.Status {
		return p.(fwk.PreScorePlugin).PreScore(ctx, &adaptedState{}, adaptedPod, []fwk.NodeInfo{adaptedNode()})
	},
	abi.Score: func(ctx context.Context, p Plugin) *fwk.Status {
		_, s := p.(fwk.ScorePlugin).Score(ctx, &adaptedState{}, adaptedPod, adaptedNode())
		return s
	},
	abi.Reserve: func(ctx context.Context, p Plugin) *fwk.Status {
		return p.(fwk.ReservePlugin).Reserve(ctx, &adaptedState{}, adaptedPod, "n1")
	},
	abi.Permit: func(ctx context.Context, p Plugin) *fwk.Status {
		s, _ := p.(fwk.PermitPlugin).Permit(ctx, &adaptedState{}, adaptedPod, "n1")
		return s
	},
	abi.PreBind: func(ctx context.Context, p Plugin) *fwk.Status {
		return p.(fwk.PreBindPlugin).PreBind(ctx, &adaptedState{}, adaptedPod, "n1")
	},
	abi.Bind: func(ctx context.Context, p Plugin) *fwk.Status {
		return p.(fwk.BindPlugin).Bind(ctx, &adaptedState{}, adaptedPod, "n1")
	},
}

var adaptedPod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p"}}

// adaptedNode returns a node without Pods.
func adaptedNode() fwk.NodeInfo {
	return adaptedInfo{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}}
}

// adaptedInfo is a node, adaptedState the state of a cycle. Their other methods panic, as
// those of all types below.
type adaptedInfo struct {
	fwk.NodeInfo
	node *corev1.Node
}

func (i adaptedInfo) Node() *corev1.Node     { return i.node }
func (i adaptedInfo) GetPods() []fwk.PodInfo { return nil }
func (i adaptedInfo) GetGeneration() int64   { return 1 }

type adaptedState struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func (s *adaptedState) Read(key fwk.StateKey) (fwk.StateData, error) {
	if data, ok := s.data[key]; ok {
		return data, nil
	}
	return nil, fwk.ErrNotFound
}

func (s *adaptedState) Write(key fwk.StateKey, data fwk.StateData) {
	s.data = map[fwk.StateKey]fwk.StateData{key: data}
}

func TestAGuestIsAskedAtItsExtensionPoints(t *testing.T) {
	for f, ask := range asking {
		t.Run(f.String(), func(t *testing.T) {
			p, err := loadAdapted(t, abi.MaskOf(f), abi.Unschedulable)
			if err != nil {
				t.Fatal(err)
			}
			if s := ask(t.Context(), p); s.Code() != fwk.Unschedulable || s.Message() != "because" {
				t.Errorf("got %v, want Unschedulable: because", s)
			}
			// Another extension point answers neutrally.
			if f != abi.PreEnqueue {
				if s := asking[abi.PreEnqueue](t.Context(), p); !s.IsSuccess() {
					t.Errorf("PreEnqueue: got %v", s)
				}
			}
		})
	}
}

func TestAGuestWithNothingThatTheMinorCallsIsRefused(t *testing.T) {
	has := minors.Of(minor).Functions
	for _, f := range []abi.Function{abi.PodGroupPostFilter, abi.GeneratePlacements, abi.ScorePlacement, abi.Filter} {
		t.Run(f.String(), func(t *testing.T) {
			_, err := loadAdapted(t, abi.MaskOf(f), abi.Success)
			if has.Has(f) {
				if err != nil {
					t.Errorf("Kubernetes %s calls it: %v", minor, err)
				}
				return
			}
			if want := "which the scheduler of Kubernetes " + minor + " does not call"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
			p, err := loadAdapted(t, abi.MaskOf(f, abi.Filter), abi.Unschedulable)
			if err != nil {
				t.Fatalf("a guest that filters, too: %v", err)
			}
			if s := asking[abi.Filter](t.Context(), p); s.Code() != fwk.Unschedulable {
				t.Errorf("a guest that filters, too: %v", s)
			}
		})
	}
}

// picksPods is set if the scheduler itself picks the Pods of AssignedPod, UnscheduledPod and
// TargetPod.
var picksPods = strings.TrimPrefix(minor, "1.") >= "37"

// TestEventsAreMappedByMeaning holds that a guest registers for what it names, whatever the
// numbers of the minor are, and for nothing that never happens.
func TestEventsAreMappedByMeaning(t *testing.T) {
	m := minors.Of(minor)
	names := []string{
		"Add", "Delete", "UpdateNodeAllocatable", "UpdateNodeLabel", "UpdateNodeTaint", "UpdateNodeCondition", "UpdateNodeAnnotation",
		"UpdateNodeDeclaredFeature", "UpdateNodePreemptionPolicy", "UpdatePodLabel", "UpdatePodScaleDown", "UpdatePodScaleUp", "UpdatePodToleration",
		"UpdatePodSchedulingGatesEliminated", "UpdatePodGeneratedResourceClaim",
	}
	for bit, name := range names {
		action := abi.ActionType(1) << bit
		got := clusterEvents([]sched.Event{{Resource: abi.EventNode, Action: action}})
		if m.Actions&action == 0 {
			if len(got) != 0 {
				t.Errorf("%s is none of Kubernetes %s, and the guest is registered for %v", name, minor, got[0].Event)
			}
			continue
		}
		if len(got) != 1 || got[0].Event.ActionType.String() != name {
			t.Errorf("%s: the guest is registered for %v", name, got)
		}
	}
	if got := clusterEvents([]sched.Event{{Resource: abi.EventNode, Action: abi.ActionAll}}); len(got) != 1 || got[0].Event.ActionType != fwk.All {
		t.Errorf("all actions: the guest is registered for %v, want %v", got, fwk.All)
	}
	for r := abi.EventPod; r.Known(); r++ {
		var want []fwk.EventResource
		for _, has := range m.Resources {
			if has == r {
				want = append(want, fwk.EventResource(r.String()))
			}
		}
		if strings.HasSuffix(r.String(), "Pod") && !picksPods {
			want = []fwk.EventResource{fwk.Pod}
		}
		var got []fwk.EventResource
		for _, e := range clusterEvents([]sched.Event{{Resource: r, Action: abi.ActionAdd}}) {
			got = append(got, e.Event.Resource)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r, diff)
		}
	}
}

// TestEventsOfPodsAreThoseThatWereNamed holds that a guest is asked about the same Pods where
// the minor has one resource for all of them.
func TestEventsOfPodsAreThoseThatWereNamed(t *testing.T) {
	other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", UID: "other"}}
	assigned := other.DeepCopy()
	assigned.Spec.NodeName = "n1"
	for resource, want := range map[abi.EventResource]string{
		abi.EventPod: "p other assigned", abi.EventAssignedPod: "assigned", abi.EventTargetPod: "p", abi.EventUnscheduledPod: "other",
	} {
		t.Run(resource.String(), func(t *testing.T) {
			var asked []string
			events := clusterEvents([]sched.Event{{Resource: resource, Action: abi.ActionUpdatePodLabel, Hint: func(_ *corev1.Pod, _, newObj any) (bool, error) {
				asked = append(asked, newObj.(*corev1.Pod).Annotations["as"])
				return true, nil
			}}})
			if len(events) != 1 {
				t.Fatalf("the guest is registered for %v", events)
			}
			if picksPods && resource != abi.EventPod {
				return
			}
			for _, changed := range []*corev1.Pod{adaptedPod, other, assigned} {
				as := changed.Name
				if changed == assigned {
					as = "assigned"
				}
				changed = changed.DeepCopy()
				changed.Annotations = map[string]string{"as": as}
				hint, err := events[0].QueueingHintFn(klog.Background(), adaptedPod, nil, changed)
				if err != nil {
					t.Fatal(err)
				}
				if queued := hint == fwk.Queue; queued != strings.Contains(" "+want+" ", " "+as+" ") {
					t.Errorf("%s is queued: %t", as, queued)
				}
			}
			if got := strings.Join(asked, " "); got != want {
				t.Errorf("asked about %s, want %s", got, want)
			}
		})
	}
}

// adaptedQueued is a Pod in the queue.
type adaptedQueued struct {
	adaptedEntity
	pod         *corev1.Pod
	came, first time.Time
}

func (q adaptedQueued) GetPodInfo() fwk.PodInfo { return adaptedPodInfo{pod: q.pod} }
func (q adaptedQueued) GetTimestamp() time.Time { return q.came }
func (q adaptedQueued) GetPriority() int32      { return *q.pod.Spec.Priority }
func (q adaptedQueued) GetAttempts() int        { return 3 }

func (q adaptedQueued) GetInitialAttemptTimestamp() *time.Time { return &q.first }

type adaptedPodInfo struct {
	fwk.PodInfo
	pod *corev1.Pod
}

func (i adaptedPodInfo) GetPod() *corev1.Pod { return i.pod }

func TestAPodInTheQueueIsTheEngines(t *testing.T) {
	priority := int32(7)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority}}
	came, first := time.Unix(5, 0), time.Unix(1, 0)
	want := sched.Queued{Pod: pod, Timestamp: came, Priority: 7, InitialAttemptTimestamp: &first, Attempts: 3}
	if diff := cmp.Diff(want, queued(adaptedQueued{pod: pod, came: came, first: first})); diff != "" {
		t.Errorf("queued (-want +got):\n%s", diff)
	}
}

// adaptedHandle is a scheduler in which one Pod waits.
type adaptedHandle struct {
	fwk.Handle
	waiting fwk.WaitingPod
}

func (h adaptedHandle) IterateOverWaitingPods(f func(fwk.WaitingPod)) { f(h.waiting) }

func (h adaptedHandle) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if uid == "p" {
		return h.waiting
	}
	return nil
}

func TestWaitingPodsAreTheEngines(t *testing.T) {
	waiting := &adaptedWaiting{}
	h := handle{Handle: adaptedHandle{waiting: waiting}}
	var names []string
	for w := range h.WaitingPods() {
		names = append(names, w.GetPod().Name)
	}
	if diff := cmp.Diff([]string{"p"}, names); diff != "" {
		t.Errorf("Pods that wait (-want +got):\n%s", diff)
	}
	if got := h.WaitingPod("nobody"); got != nil {
		t.Errorf("got %v for a Pod that does not wait", got)
	}
	if !h.WaitingPod("p").Reject("plugin", "why") {
		t.Error("the Pod was not waiting")
	}
	if got, want := waiting.rejected, "plugin: why"; got != want {
		t.Errorf("rejected by %s, want %s", got, want)
	}
}

//minor:since 1.36
func init() {
	asking[abi.GeneratePlacements] = func(ctx context.Context, p Plugin) *fwk.Status {
		_, s := p.(fwk.PlacementGeneratePlugin).GeneratePlacements(ctx, nil, adaptedGroup{}, &fwk.Placement{Name: "all"})
		return s
	}
	asking[abi.ScorePlacement] = func(ctx context.Context, p Plugin) *fwk.Status {
		_, s := p.(fwk.PlacementScorePlugin).ScorePlacement(ctx, nil, adaptedGroup{}, &fwk.PodGroupAssignments{Placement: &fwk.Placement{Name: "all"}})
		return s
	}
}

//minor:since 1.37
func init() {
	asking[abi.PodGroupPostFilter] = func(ctx context.Context, p Plugin) *fwk.Status {
		_, s := p.(fwk.PodGroupPostFilterPlugin).PodGroupPostFilter(ctx, nil, adaptedGroup{}, nil)
		return s
	}
}

// adaptedGroup is a group of one Pod. Its other methods panic.
//
//minor:since 1.36
type adaptedGroup struct{ fwk.PodGroupInfo }

//minor:since 1.36
func (adaptedGroup) GetName() string { return "g" }

//minor:since 1.36
func (adaptedGroup) GetNamespace() string { return "default" }

//minor:since 1.36
func (adaptedGroup) GetUnscheduledPods() []*corev1.Pod { return []*corev1.Pod{adaptedPod} }

//minor:since 1.37
func (adaptedGroup) GetType() fwk.EntityKeyType { return fwk.PodGroupKeyType }
