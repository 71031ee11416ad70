// Package coscheduling holds in a real control plane what examples/sched/coscheduling says about
// PodGroups.
//
// TestManyGroups binds 2,000 Pods of 100 groups on 1,000 nodes, and the same Pods without the plugin,
// in turns. It takes some minutes, and runs with a number of rounds in KUBEWASM_COSCHEDULING:
//
//	KUBEWASM_COSCHEDULING=3 go test -run TestManyGroups -v -timeout 30m ./coscheduling
package coscheduling

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

const (
	guest     = "../../../../examples/sched/coscheduling"
	namespace = "default"
	label     = "scheduling.x-k8s.io/pod-group"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	podGroups   = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
)

// suite is a control plane with the kind PodGroup.
type suite struct {
	*cluster.Cluster
	client dynamic.Interface
}

func start(t *testing.T) *suite {
	t.Helper()
	s := &suite{Cluster: cluster.Start(t, nil)}
	config := rest.CopyConfig(s.Config)
	config.QPS, config.Burst = 2000, 2000
	var err error
	if s.Client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(guest + "/podgroups.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kind := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &kind.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Resource(definitions).Create(t.Context(), kind, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until(t, "PodGroups are served", func(ctx context.Context) (bool, string) {
		_, err := s.client.Resource(podGroups).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return s
}

// schedule runs a scheduler with the guest until the test ends.
func (s *suite) schedule(t *testing.T) {
	t.Helper()
	s.RunScheduler(t, cluster.BuildScheduler(t), fmt.Sprintf(`podMaxBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {enabled: [{name: coscheduling}]}
    queueSort: {enabled: [{name: coscheduling}], disabled: [{name: "*"}]}
  pluginConfig:
  - name: coscheduling
    args:
      module: {file: %s}
      grants: [activate, clock, objects, state, waiting-pods]
      objects:
      - resource: scheduling.x-k8s.io/v1alpha1/podgroups
      - resource: v1/pods
        index: [{label: scheduling.x-k8s.io/pod-group}]
      guestConfig: {podGroupBackoffSeconds: 1}
`, strconv.Quote(guests.File(t, guest))))
}

// until waits for a condition, which says how far it is.
func (s *suite) until(t *testing.T, what string, done func(context.Context) (bool, string)) {
	t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (ok bool, _ error) {
		ok, last = done(ctx)
		return ok, nil
	})
	if err != nil {
		if pods, err := s.Client.CoreV1().Pods(namespace).List(context.Background(), metav1.ListOptions{}); err == nil {
			for _, pod := range pods.Items {
				last += fmt.Sprintf("%s has the node %q and is nominated for %q\n", pod.Name, pod.Spec.NodeName, pod.Status.NominatedNodeName)
			}
		}
		t.Fatalf("wait until %s: %v: %s", what, err, last)
	}
}

func (s *suite) addNode(t *testing.T, name, cpu string) {
	t.Helper()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
	node, err := s.Client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room}
	if _, err := s.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addGroup makes a PodGroup with a spec, as JSON.
func (s *suite) addGroup(t *testing.T, name, spec string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: %s}, spec: %s}", name, spec), &u.Object); err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.Resource(podGroups).Namespace(namespace).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// podOf returns a Pod that needs some processors, of a group unless that is empty.
func podOf(name, group, cpu string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "example.com/app:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}}},
	}
	if group != "" {
		pod.Labels = map[string]string{label: group}
	}
	return pod
}

// add makes Pods that need a processor each. Their group is the first letter of their name, none for
// x.
func (s *suite) add(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := s.Client.CoreV1().Pods(namespace).Create(t.Context(), podOf(name, strings.TrimPrefix(name[:1], "x"), "1"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *suite) remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.Client.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// bound returns those of the Pods that have a node, and what the others wait for.
func (s *suite) bound(ctx context.Context, names ...string) (bound []string, reasons string) {
	for _, name := range names {
		pod, err := s.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err.Error()
		}
		if pod.Spec.NodeName != "" {
			bound = append(bound, name)
			continue
		}
		for _, c := range pod.Status.Conditions {
			reasons += name + ": " + c.Message + "\n"
		}
	}
	return bound, reasons
}

// runs waits until Pods have a node.
func (s *suite) runs(t *testing.T, names ...string) {
	t.Helper()
	s.until(t, fmt.Sprint(names, " have a node"), func(ctx context.Context) (bool, string) {
		bound, reasons := s.bound(ctx, names...)
		return len(bound) == len(names), reasons
	})
}

// waits waits until a Pod is not scheduled for a reason.
func (s *suite) waits(t *testing.T, name, reason string) {
	t.Helper()
	s.until(t, name+" waits", func(ctx context.Context) (bool, string) {
		bound, reasons := s.bound(ctx, name)
		return len(bound) == 0 && strings.Contains(reasons, reason), fmt.Sprint(bound, reasons)
	})
}

// TestGroups is a story of several groups on few nodes. The scheduler's own flush of Pods, after five
// minutes, comes after each deadline here.
func TestGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a control plane")
	}
	s := start(t)
	s.addNode(t, "n1", "4")
	s.schedule(t)

	// The members come one by one, and the group between them.
	s.add(t, "a1", "a2")
	s.waits(t, "a1", "there is no PodGroup default/a")
	s.addGroup(t, "a", "{minMember: 3}")
	s.waits(t, "a1", "PodGroup default/a has 2 Pods of at least 3")
	s.add(t, "a3")
	s.runs(t, "a1", "a2", "a3")

	// A member that is replaced runs again.
	s.remove(t, "a2")
	s.add(t, "a4")
	s.runs(t, "a4")

	// There is room for one Pod: a group that does not fit holds nothing.
	s.addGroup(t, "b", "{minMember: 3}")
	s.add(t, "b1", "b2", "b3")
	s.until(t, "group b is refused", func(ctx context.Context) (bool, string) {
		bound, reasons := s.bound(ctx, "b1", "b2", "b3")
		return len(bound) == 0 && strings.Count(reasons, "\n") == 3, reasons
	})
	s.add(t, "x1")
	s.runs(t, "x1")
	if bound, _ := s.bound(t.Context(), "b1", "b2", "b3"); len(bound) != 0 {
		t.Fatalf("%v of a group that does not fit are bound", bound)
	}
	s.addNode(t, "n2", "3")
	s.runs(t, "b1", "b2", "b3")

	// A group whose resources are not there, until it needs less.
	s.addGroup(t, "c", `{minMember: 1, minResources: {cpu: 100}}`)
	s.addNode(t, "n3", "1")
	s.add(t, "c1")
	s.waits(t, "c1", "the nodes lack cpu 99 for PodGroup default/c")
	if _, err := s.client.Resource(podGroups).Namespace(namespace).Patch(t.Context(), "c", types.MergePatchType, []byte(`{"spec": {"minResources": {"cpu": "1"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.runs(t, "c1")

	// Two groups come in turn where there is room for four Pods. One runs, and then the other.
	s.addNode(t, "n4", "4")
	s.addGroup(t, "d", "{minMember: 3}")
	s.addGroup(t, "e", "{minMember: 3}")
	d, e := []string{"d1", "d2", "d3"}, []string{"e1", "e2", "e3"}
	s.add(t, "d1", "e1", "d2", "e2", "d3", "e3")
	var first []string
	s.until(t, "one of two groups has a node", func(ctx context.Context) (bool, string) {
		boundD, whyD := s.bound(ctx, d...)
		boundE, whyE := s.bound(ctx, e...)
		first = append(boundD, boundE...)
		return len(boundD) == 3 || len(boundE) == 3, whyD + whyE
	})
	for _, name := range first {
		if name[0] != first[0][0] {
			t.Fatalf("%v are bound, want one group", first)
		}
	}
	s.remove(t, first...)
	second := e
	if first[0][0] == 'e' {
		second = d
	}
	s.runs(t, second...)
}

// The sizes of TestManyGroups.
const (
	groups, size, nodes = 100, 20, 1000
)

// parallel calls f with the numbers below n.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// TestManyGroups compares the time until all Pods have a node, with the plugin and without, where the
// scheduler uses the nodes of one Pod for the next or not. The Pods of all groups come in turn.
func TestManyGroups(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("KUBEWASM_COSCHEDULING"))
	if err != nil {
		t.Skip("takes minutes: KUBEWASM_COSCHEDULING=3 runs three rounds of it")
	}
	t.Setenv("KUBEWASM_DEBUG", "") // Not the time of the checks that tests have.
	s := start(t)
	parallel(nodes, func(i int) { s.addNode(t, fmt.Sprint("n", i), "4") })
	parallel(groups, func(i int) {
		s.addGroup(t, fmt.Sprint("g", i), fmt.Sprintf("{minMember: %d, minResources: {cpu: %d}}", size, size))
	})
	variants := []struct {
		name string
		run  func(t *testing.T)
	}{
		{"without", func(t *testing.T) {
			s.RunScheduler(t, cluster.BuildScheduler(t), "profiles:\n- schedulerName: default-scheduler\n")
		}},
		{"unbatched", func(t *testing.T) {
			s.RunScheduler(t, cluster.BuildScheduler(t), "profiles:\n- schedulerName: default-scheduler\n", "--feature-gates=OpportunisticBatching=false")
		}},
		{"coscheduling", s.schedule},
	}
	cluster.BuildScheduler(t) // Not in the first round.
	guests.File(t, guest)
	took, processor := map[string][]times{}, map[string][]time.Duration{}
	// The round before the first one warms up.
	for round := range 1 + rounds {
		for i := range variants {
			v := variants[(round+i)%len(variants)]
			before := children(t)
			t.Run(fmt.Sprint(v.name, "-", round), func(t *testing.T) {
				this := s.bindAll(t, v.run)
				if round != 0 {
					took[v.name] = append(took[v.name], this)
				}
			})
			if t.Failed() {
				return
			}
			if round != 0 {
				processor[v.name] = append(processor[v.name], children(t)-before)
			}
		}
	}
	for _, v := range variants {
		t.Logf("%s: %v, %v of processor time", v.name, took[v.name], processor[v.name])
	}
	all := func(t times) time.Duration { return t.all }
	binding := func(t times) time.Duration { return t.binding }
	itself := func(d time.Duration) time.Duration { return d }
	for _, v := range variants[:2] {
		t.Logf("of %s: %.2f times as long with the start, %.2f times from the first Pod to the last, %.2f times the processor time", v.name,
			ratio(took["coscheduling"], took[v.name], all), ratio(took["coscheduling"], took[v.name], binding), ratio(processor["coscheduling"], processor[v.name], itself))
	}
}

// times are the time from the start of a scheduler, and from the first Pod with a node, until all Pods
// have one.
type times struct{ all, binding time.Duration }

// ratio returns the ratio of two medians.
func ratio[T any](of, to []T, value func(T) time.Duration) float64 {
	median := func(list []T) float64 {
		var values []time.Duration
		for _, v := range list {
			values = append(values, value(v))
		}
		slices.Sort(values)
		return float64(values[len(values)/2])
	}
	return median(of) / median(to)
}

// children returns the processor time of the programs that have ended.
func children(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// bindAll makes the Pods, runs a scheduler until all have a node, and removes them.
func (s *suite) bindAll(t *testing.T, run func(t *testing.T)) times {
	t.Helper()
	pods := s.Client.CoreV1().Pods(namespace)
	parallel(groups*size, func(i int) {
		group := fmt.Sprint("g", i%groups)
		if _, err := pods.Create(t.Context(), podOf(fmt.Sprint(group, "-", i/groups), group, "1"), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	follow := func() watch.Interface {
		w, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	follows := follow()
	defer func() { follows.Stop() }()
	start, deadline := time.Now(), time.After(5*time.Minute)
	run(t)
	var first time.Time
	bound := map[string]bool{}
	for len(bound) < groups*size {
		select {
		case event, ok := <-follows.ResultChan():
			if !ok { // A busy API server ends it. A new one begins with all Pods that have a node.
				follows = follow()
				continue
			}
			if pod, ok := event.Object.(*corev1.Pod); ok {
				bound[pod.Name] = true
				if first.IsZero() {
					first = time.Now()
				}
			}
		case <-deadline:
			list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName="})
			if err != nil {
				t.Fatal(err)
			}
			for _, pod := range list.Items[:min(20, len(list.Items))] {
				t.Logf("%s: %v", pod.Name, pod.Status.Conditions)
			}
			t.Fatalf("%d Pods have no node", len(list.Items))
		}
	}
	took := times{time.Since(start), time.Since(first)}
	if err := pods.DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	return took
}
