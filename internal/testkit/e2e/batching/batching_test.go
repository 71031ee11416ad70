//go:build !kube135 && !kube136

// Package batching holds that Pods are placed the same in a real scheduler with and without the
// feature OpportunisticBatching, whatever guest its profile has, and measures what the feature gives.
package batching

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	metricstestutil "k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

// run starts a scheduler with a profile of one plugin beside the resources that fit, for a cluster in
// which all Pods wait already, and returns the node of each Pod, how many took one of a batch, and the
// processor time of the scheduler from its start to the last Pod.
func run(t testing.TB, plugin frameworkruntime.PluginFactory, nodes []*corev1.Node, pods []*corev1.Pod) (placed map[string]string, batched int, took time.Duration) {
	t.Helper()
	metrics.Register()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	var objects []runtime.Object
	for _, n := range nodes {
		objects = append(objects, n)
	}
	for _, p := range pods {
		p.Spec.SchedulerName = t.Name()
		objects = append(objects, p)
	}
	client := fake.NewClientset(objects...)
	var mu sync.Mutex
	done := make(chan struct{})
	placed = map[string]string{}
	// note keeps the first outcome of a Pod: one that does not fit is tried again later.
	note := func(pod, node string) {
		mu.Lock()
		defer mu.Unlock()
		if _, again := placed[pod]; again || len(placed) == len(pods) {
			return
		}
		if placed[pod] = node; len(placed) == len(pods) {
			close(done)
		}
	}
	client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := a.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		note(b.Name, b.Target.Name)
		return true, b, nil
	})
	client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		note(a.(clienttesting.PatchAction).GetName(), "") // It does not fit.
		return true, &corev1.Pod{}, nil
	})
	one := func(name string) schedconfig.PluginSet {
		return schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: name, Weight: 1}}}
	}
	const name = "guest"
	p := schedconfig.KubeSchedulerProfile{
		SchedulerName: t.Name(),
		Plugins: &schedconfig.Plugins{
			QueueSort: one("PrioritySort"), Bind: one("DefaultBinder"), PreFilter: one("NodeResourcesFit"), Filter: one("NodeResourcesFit"), MultiPoint: one(name),
		},
		PluginConfig: []schedconfig.PluginConfig{{Name: "NodeResourcesFit", Args: &schedconfig.NodeResourcesFitArgs{ScoringStrategy: &schedconfig.ScoringStrategy{
			Type: schedconfig.LeastAllocated, Resources: []schedconfig.ResourceSpec{{Name: "cpu", Weight: 1}},
		}}}},
	}
	hints := metrics.BatchAttemptStats.WithLabelValues(t.Name(), metrics.BatchAttemptHintUsed)
	count := func() int {
		n, err := metricstestutil.GetCounterMetricValue(hints)
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	before := count()
	ctx, cancel := context.WithCancel(t.Context())
	inf := informers.NewSharedInformerFactory(client, 0)
	recorder := events.NewFakeRecorder(1)
	recorder.Events = nil // It drops them.
	s, err := scheduler.New(ctx, client, inf, nil, profile.RecorderFactory(func(string) events.EventRecorderLogger { return recorder }),
		scheduler.WithProfiles(p), scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{name: plugin}))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	inf.Start(ctx.Done())
	inf.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	var running sync.WaitGroup
	started := processorTime(t)
	running.Go(func() { s.Run(ctx) })
	select {
	case <-done:
	case <-t.Context().Done():
	}
	took = processorTime(t) - started
	cancel()
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	return placed, count() - before, took
}

// processorTime returns the processor time of the process.
func processorTime(t testing.TB) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// clusters is how many random clusters there are for a guest, and waiting how many Pods in each.
const clusters, waiting = 8, 60

// cluster returns nodes that differ in their rank and in how many Pods they have room for, and Pods
// that come in the order of their priorities: some in a row that are equal but for their names, UIDs
// and labels that no guest reads.
func cluster(r *rand.Rand) (nodes []*corev1.Node, pods []*corev1.Pod) {
	for n := range 8 + r.IntN(23) {
		cpu := resource.MustParse(strconv.Itoa(1 + r.IntN(3)))
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n), Labels: map[string]string{"rank": fmt.Sprintf("%02d", n)}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourcePods: resource.MustParse("110")}},
		})
	}
	kind, cpu := 0, ""
	for n := range waiting {
		if r.IntN(6) == 0 || n == 0 {
			kind, cpu = r.IntN(4), []string{"1", "1", "500m", "2"}[r.IntN(4)]
		}
		name, priority := fmt.Sprintf("p%d-%d", n, r.IntN(1000)), int32(1000-n)
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"rank": strconv.Itoa(kind), "of": name}},
			Spec: corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}}},
		})
	}
	return nodes, pods
}

// anonymous are the fields of a guest for which the host signs Pods.
var anonymous = []string{"-pod.metadata.name", "-pod.metadata.uid", "pod.metadata.labels[rank]"}

// load returns the factory of a guest of sched/testdata.
func load(rt *host.Runtime, guest, config string, reads []string) frameworkruntime.PluginFactory {
	return func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		p, err := kube.Load(ctx, rt, sched.PluginConfig{Reads: reads, Config: host.Config{
			Name: "guest", Module: host.ModuleConfig{File: "../../../../sched/testdata/" + guest + ".wasm"}, GuestConfig: []byte(config), Limits: host.Limits{Instances: 1},
		}}, h)
		if err == nil {
			context.AfterFunc(ctx, func() { _ = p.Close(context.WithoutCancel(ctx)) })
		}
		return p, err
	}
}

// TestPodsArePlacedAsWithoutBatching schedules random Pods with the feature and without, with guests
// of each kind. All Pods wait before the first cycle, and no two nodes have the same score for a Pod,
// so nothing else decides.
func TestPodsArePlacedAsWithoutBatching(t *testing.T) {
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.Background()) })
	for name, c := range map[string]struct {
		guest, config string
		reads         []string
		batches       bool
	}{
		"a guest that reads a label of the Pod and of the node": {"signed", "", anonymous, true},
		"and what runs on the node":                             {"signed", "u", anonymous, true},
		"and the name of the Pod, which is left out":            {"signed", "n", anonymous, true},
		"and the name of the Pod":                               {"signed", "n", []string{"pod.metadata.labels[rank]"}, false},
		"a guest that declares nothing":                         {"signed", "", nil, false},
		"a guest that looks at all nodes":                       {"unsigned", "o", anonymous, false},
		"a guest that counts reservations":                      {"unsigned", "r", anonymous, false},
	} {
		t.Run(name, func(t *testing.T) {
			factory := load(rt, c.guest, c.config, c.reads)
			r := rand.New(rand.NewPCG(20261128, 0))
			batched := 0
			for n := range clusters {
				nodes, pods := cluster(r)
				var got [2]map[string]string
				for i, on := range []bool{false, true} {
					featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.OpportunisticBatching, on)
					var hints int
					got[i], hints, _ = run(t, factory, nodes, pods)
					batched += hints
				}
				if diff := cmp.Diff(got[0], got[1]); diff != "" {
					t.Fatalf("cluster %d: the nodes of Pods (-without +with batching):\n%s", n, diff)
				}
			}
			if c.batches != (batched > 0) {
				t.Errorf("%d Pods took a node of a batch; want any: %t", batched, c.batches)
			}
			t.Logf("%d of %d Pods took a node of a batch", batched, clusters*waiting)
		})
	}
}

// BenchmarkBatching measures the processor time of a scheduler for a Pod of a Deployment of 400, with
// 1,000 nodes that have room for one each: with a guest for which the host signs Pods and with the same
// guest if it sees their names. What the feature gives is the ratio of the two, and what it costs that
// for Pods of which no two are alike.
func BenchmarkBatching(b *testing.B) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = rt.Close(context.Background()) })
	var nodes []*corev1.Node
	for n := range 1000 {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n), Labels: map[string]string{"rank": fmt.Sprintf("%02d", n%31)}},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("110")}},
		})
	}
	for _, differ := range []bool{false, true} {
		kind := "alike"
		if differ {
			kind = "different"
		}
		var pods []*corev1.Pod
		for n := range 400 {
			name, rank := fmt.Sprint("p", n), "9"
			if differ {
				rank = fmt.Sprint(100 + n)
			}
			pods = append(pods, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"rank": rank}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
				}}}},
			})
		}
		for _, side := range []struct {
			name  string
			reads []string
		}{{"with", anonymous}, {"without", anonymous[2:]}} {
			b.Run("pods="+kind+"/batching="+side.name, func(b *testing.B) {
				var took time.Duration
				batched := 0
				for b.Loop() {
					_, hints, time := run(b, load(rt, "signed", "", side.reads), nodes, pods)
					took, batched = took+time, batched+hints
				}
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*len(pods)), "cpu-ns/pod")
				b.ReportMetric(float64(batched)/float64(b.N*len(pods)), "batched/pod")
			})
		}
	}
}
