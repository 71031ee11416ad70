//go:build !kube135 && !kube136

package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

// full is a cluster of full nodes, with a Pod that fits on none.
type full struct {
	nodes     []*corev1.Node
	pods      []*corev1.Pod
	budgets   []*policyv1.PodDisruptionBudget
	nominated map[string][]fwk.PodInfo
	pending   *corev1.Pod
	extenders []fwk.Extender
}

// activated has the Pods that a plugin activates.
type activated chan map[string]*corev1.Pod

func (a activated) Activate(_ klog.Logger, pods map[string]*corev1.Pod) { a <- pods }

// fullPod is a Pod of a random app that needs some processors. No two have started at the same time.
func fullPod(r *rand.Rand, name, node string, priority int32, cpu int64) *corev1.Pod {
	start := metav1.NewTime(time.Unix(1_700_000_000+int64(r.IntN(1<<30)), 0))
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{"app": strconv.Itoa(r.IntN(3))}},
		Spec: corev1.PodSpec{NodeName: node, Priority: &priority, Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(cpu, resource.DecimalSI)},
		}}}},
		Status: corev1.PodStatus{StartTime: &start},
	}
}

func newFull(r *rand.Rand) *full {
	f := &full{nominated: map[string][]fwk.PodInfo{}, pending: fullPod(r, "pending", "", int32(r.IntN(6)), int64(1+r.IntN(6)))}
	for n := range 1 + r.IntN(6) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("6"), corev1.ResourcePods: resource.MustParse("10"),
		}}}
		f.nodes = append(f.nodes, node)
		for left := int64(6); left > 0; {
			cpu := min(left, int64(1+r.IntN(3)))
			left -= cpu
			f.pods = append(f.pods, fullPod(r, fmt.Sprint("p", len(f.pods)), node.Name, int32(r.IntN(4)), cpu))
		}
		if r.IntN(4) == 0 {
			info, _ := framework.NewPodInfo(fullPod(r, fmt.Sprint("nominated", n), "", int32(r.IntN(6)), 1))
			f.nominated[node.Name] = append(f.nominated[node.Name], info)
		}
	}
	for n := range r.IntN(3) {
		f.budgets = append(f.budgets, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("b", n)},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": strconv.Itoa(n)}}},
			Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(r.IntN(3))},
		})
	}
	return f
}

// preempted is what came of a preemption.
type preempted struct {
	Code    string
	Node    string
	Changes bool
	Victims []string
}

// preempt has a plugin at PostFilter make room for the Pod.
func (f *full) preempt(t *testing.T, plugin func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error)) preempted {
	t.Helper()
	ctx := t.Context()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer().GetIndexer()
	for _, pod := range append(slices.Clone(f.pods), f.pending) {
		if _, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range f.budgets {
		if _, err := client.PolicyV1().PodDisruptionBudgets(b.Namespace).Create(ctx, b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tried := make(activated, 1)
	lister := &snapshot{Snapshot: internalcache.NewSnapshot(f.pods, f.nodes), nominated: f.nominated}
	one := func(name string) schedconfig.PluginSet {
		return schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: name}}}
	}
	h, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), &schedconfig.KubeSchedulerProfile{
		SchedulerName: "default-scheduler",
		Plugins:       &schedconfig.Plugins{QueueSort: one("PrioritySort"), Bind: one("DefaultBinder"), MultiPoint: one("NodeResourcesFit")},
		PluginConfig: []schedconfig.PluginConfig{{Name: "NodeResourcesFit", Args: &schedconfig.NodeResourcesFitArgs{ScoringStrategy: &schedconfig.ScoringStrategy{
			Type: schedconfig.LeastAllocated, Resources: []schedconfig.ResourceSpec{{Name: "cpu", Weight: 1}},
		}}}},
	}, frameworkruntime.WithSnapshotSharedLister(lister), frameworkruntime.WithMutableSnapshotLister(lister),
		frameworkruntime.WithPodNominator(nominator{of: lister}), frameworkruntime.WithClientSet(client),
		frameworkruntime.WithExtenders(f.extenders), frameworkruntime.WithPodActivator(tried),
		frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithEventRecorder(&events.FakeRecorder{}),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()), frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()))
	if err != nil {
		t.Fatal(err)
	}
	p, err := plugin(ctx, h)
	if err != nil {
		t.Fatal(err)
	}
	factory.Policy().V1().PodDisruptionBudgets().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	state := framework.NewCycleState()
	if _, status, _ := h.RunPreFilterPlugins(ctx, state, f.pending); !status.IsSuccess() {
		t.Fatal(status)
	}
	statuses := framework.NewDefaultNodeToStatus()
	infos, err := lister.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if status := h.RunFilterPluginsWithNominatedPods(ctx, state, f.pending, info); !status.IsSuccess() {
			statuses.Set(info.Node().Name, status)
		}
	}
	result, status := p.(fwk.PostFilterPlugin).PostFilter(ctx, state, f.pending, statuses)
	got := preempted{Code: status.Code().String()}
	if result != nil && result.NominatingInfo != nil {
		got.Node, got.Changes = result.NominatedNodeName, result.NominatingMode == fwk.ModeOverride
	}
	if !p.(fwk.PreEnqueuePlugin).PreEnqueue(ctx, f.pending).IsSuccess() {
		<-tried // The plugin evicts Pods in the background.
	}
	left, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range f.pods {
		if !slices.ContainsFunc(left.Items, func(other corev1.Pod) bool { return other.Name == pod.Name }) {
			got.Victims = append(got.Victims, pod.Name)
		}
	}
	return got
}

// extender starts an extender that returns what process makes of the victims of each node.
func extender(t *testing.T, ignorable bool, process func(victims map[string]*extenderv1.MetaVictims) bool) fwk.Extender {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args extenderv1.ExtenderPreemptionArgs
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			t.Error(err)
		}
		if !process(args.NodeNameToMetaVictims) {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if err := json.NewEncoder(w).Encode(extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: args.NodeNameToMetaVictims}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	e, err := scheduler.NewHTTPExtender(&schedconfig.Extender{
		URLPrefix: server.URL, PreemptVerb: "preempt", Weight: 1, NodeCacheCapable: true, Ignorable: ignorable, HTTPTimeout: metav1.Duration{Duration: time.Minute},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAGuestAsksExtendersAsTheScheduler compares the guest with DefaultPreemption beside extenders that
// allow some nodes, name other victims, none at all, or fail.
func TestAGuestAsksExtendersAsTheScheduler(t *testing.T) {
	needToolchain(t, "lowerpriority")
	metrics.Register()
	rt := newRuntime(t, "")
	guest := lowerPriority(t, rt)
	// Three nodes, with the least important Pods on n0. Each has room without one Pod.
	f := &full{pending: fullPod(rand.New(rand.NewPCG(1, 1)), "pending", "", 5, 3)}
	for n := range 3 {
		f.nodes = append(f.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("6"), corev1.ResourcePods: resource.MustParse("10"),
		}}})
		for _, pod := range []string{"a", "b"} {
			f.pods = append(f.pods, fullPod(rand.New(rand.NewPCG(1, 1)), fmt.Sprint(pod, n), fmt.Sprint("n", n), int32(n+len(f.pods)%2), 3))
		}
	}
	without := func(node string) func(map[string]*extenderv1.MetaVictims) bool {
		return func(victims map[string]*extenderv1.MetaVictims) bool { delete(victims, node); return true }
	}
	other := func(victims map[string]*extenderv1.MetaVictims) bool {
		if v := victims["n0"]; v != nil {
			v.Pods = []*extenderv1.MetaPod{{UID: "b0"}}
		}
		return true
	}
	none := func(victims map[string]*extenderv1.MetaVictims) bool {
		victims["n0"].Pods = nil
		return true
	}
	fails := func(map[string]*extenderv1.MetaVictims) bool { return false }
	tests := []struct {
		name      string
		extenders []fwk.Extender
		want      preempted
	}{
		{name: "none", want: preempted{"Success", "n0", true, []string{"a0"}}},
		{"one allows two nodes", []fwk.Extender{extender(t, false, without("n0"))}, preempted{"Success", "n1", true, []string{"a1"}}},
		{"two allow one node", []fwk.Extender{extender(t, false, without("n0")), extender(t, false, without("n1"))}, preempted{"Success", "n2", true, []string{"a2"}}},
		{"another victim", []fwk.Extender{extender(t, false, other)}, preempted{"Success", "n0", true, []string{"b0"}}},
		{"three allow none", []fwk.Extender{extender(t, false, without("n0")), extender(t, false, without("n1")), extender(t, false, without("n2"))}, preempted{Code: "Unschedulable"}},
		{"no victim", []fwk.Extender{extender(t, false, none)}, preempted{Code: "Error"}},
		{"no victim, and it may be ignored", []fwk.Extender{extender(t, true, none)}, preempted{"Success", "n1", true, []string{"a1"}}},
		{"a failure", []fwk.Extender{extender(t, false, fails)}, preempted{Code: "Error"}},
		{"a failure, and it may be ignored", []fwk.Extender{extender(t, true, fails), extender(t, false, without("n0"))}, preempted{"Success", "n1", true, []string{"a1"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f.extenders = test.extenders
			for plugin, make := range map[string]func(context.Context, fwk.Handle) (fwk.Plugin, error){"DefaultPreemption": defaultPreemption, "guest": guest} {
				if diff := cmp.Diff(test.want, f.preempt(t, make)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", plugin, diff)
				}
			}
		})
	}
}

// defaultPreemption makes the scheduler's own preemption, and lowerPriority the guest.
func defaultPreemption(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) {
	return defaultpreemption.New(ctx, &schedconfig.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 100}, h, feature.Features{})
}

func lowerPriority(t *testing.T, rt *host.Runtime) func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) {
	args := &apiruntime.Unknown{Raw: []byte(`{"module": {"file": ` + strconv.Quote(guests.File(t, "testdata/lowerpriority")) + `}, "grants": ["preempt"]}`)}
	return func(ctx context.Context, h fwk.Handle) (fwk.Plugin, error) {
		return kube.New("lowerpriority", rt)(ctx, args, h)
	}
}

// TestAGuestPreemptsAsTheScheduler compares a guest that names Pods of a lower priority with
// DefaultPreemption in random clusters of full nodes, with budgets and nominated Pods.
func TestAGuestPreemptsAsTheScheduler(t *testing.T) {
	needToolchain(t, "lowerpriority")
	metrics.Register()
	rt := newRuntime(t, "")
	guest := lowerPriority(t, rt)
	r := rand.New(rand.NewPCG(20261130, 0))
	made := map[string]int{}
	for n := range 150 {
		f := newFull(r)
		want, got := f.preempt(t, defaultPreemption), f.preempt(t, guest)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("cluster %d (-DefaultPreemption +guest):\n%s", n, diff)
		}
		made[fmt.Sprint(got.Code, " with ", min(len(got.Victims), 2))]++
	}
	for _, kind := range []string{"Success with 1", "Success with 2", "Unschedulable with 0"} {
		if made[kind] < 10 {
			t.Errorf("%v, want at least 10 of %s", made, kind)
		}
	}
}
