// Package capacity holds in a real control plane what examples/sched/capacity says about ElasticQuotas,
// and examples/sched/preemption-toleration about PriorityClasses.
package capacity

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

const examples = "../../../../examples/sched/"

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	quotas      = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "elasticquotas"}
)

// suite is a control plane with the kind ElasticQuota.
type suite struct {
	*cluster.Cluster
	t      *testing.T
	client dynamic.Interface
}

func start(t *testing.T) *suite {
	t.Helper()
	s := &suite{Cluster: cluster.Start(t, nil), t: t}
	s.client = dynamic.NewForConfigOrDie(s.Config)
	text, err := os.ReadFile(examples + "capacity/elasticquotas.yaml")
	s.must(err)
	kind := &unstructured.Unstructured{}
	s.must(yaml.Unmarshal(text, &kind.Object))
	_, err = s.client.Resource(definitions).Create(t.Context(), kind, metav1.CreateOptions{})
	s.must(err)
	s.until("ElasticQuotas are served", func(ctx context.Context) (bool, string) {
		_, err := s.client.Resource(quotas).List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return s
}

func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// schedule runs a scheduler with a guest that preempts until the test ends.
func (s *suite) schedule(guest, grants string, objects ...string) {
	s.t.Helper()
	s.RunScheduler(s.t, cluster.BuildScheduler(s.t), fmt.Sprintf(`podMaxBackoffSeconds: 2
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {enabled: [{name: %[1]s}]}
    postFilter: {enabled: [{name: %[1]s}], disabled: [{name: "*"}]}
  pluginConfig:
  - name: %[1]s
    args:
      module: {file: %[2]s}
      grants: [objects, %[3]s]
      objects: [{resource: %[4]s}]
`, guest, strconv.Quote(guests.File(s.t, examples+guest)), grants, strings.Join(objects, "}, {resource: ")))
}

// until waits for a condition, which says how far it is.
func (s *suite) until(what string, done func(context.Context) (bool, string)) {
	s.t.Helper()
	last := ""
	err := wait.PollUntilContextTimeout(s.t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (ok bool, _ error) {
		ok, last = done(ctx)
		return ok, nil
	})
	if err != nil {
		s.t.Fatalf("wait until %s: %v: %s", what, err, last)
	}
}

// node makes a node with so many processors, and class a PriorityClass with annotations.
func (s *suite) node(name string, processors int64) {
	s.t.Helper()
	room := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(processors, resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
	node, err := s.Client.CoreV1().Nodes().Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room}
	_, err = s.Client.CoreV1().Nodes().UpdateStatus(s.t.Context(), node, metav1.UpdateOptions{})
	s.must(err)
}

func (s *suite) class(name string, value int32, annotations map[string]string) {
	s.t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Value: value}
	_, err := s.Client.SchedulingV1().PriorityClasses().Create(s.t.Context(), class, metav1.CreateOptions{})
	s.must(err)
}

// of gives a Pod a PriorityClass.
func of(class string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.PriorityClassName = class }
}

// team makes a namespace with a quota of so many processors.
func (s *suite) team(name string, least, most int) {
	s.t.Helper()
	_, err := s.Client.CoreV1().Namespaces().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	s.must(err)
	quota := &unstructured.Unstructured{}
	s.must(yaml.Unmarshal(fmt.Appendf(nil, "{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: q}, spec: {min: {cpu: %d}, max: {cpu: %d}}}", least, most), &quota.Object))
	_, err = s.client.Resource(quotas).Namespace(name).Create(s.t.Context(), quota, metav1.CreateOptions{})
	s.must(err)
}

// add makes a Pod that needs a processor and ends at once when it is deleted. Its team is the first
// letter of its name.
func (s *suite) add(name string, change ...func(*corev1.Pod)) {
	s.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64), Containers: []corev1.Container{{
			Name: "c", Image: "example.com/app:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	for _, f := range change {
		f(pod)
	}
	_, err := s.Client.CoreV1().Pods(name[:1]).Create(s.t.Context(), pod, metav1.CreateOptions{})
	s.must(err)
}

// running returns the names of the Pods with a node, sorted, and the reasons of the others.
func (s *suite) running(ctx context.Context) (names []string, reasons string) {
	pods, err := s.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err.Error()
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName != "" {
			names = append(names, pod.Name)
			continue
		}
		for _, c := range pod.Status.Conditions {
			reasons += pod.Name + ": " + c.Message + "\n"
		}
	}
	slices.Sort(names)
	return names, reasons
}

// runs waits until the Pod has a node, and returns those that have one then.
func (s *suite) runs(name string) (names []string) {
	s.t.Helper()
	s.until(name+" has a node", func(ctx context.Context) (bool, string) {
		var reasons string
		names, reasons = s.running(ctx)
		return slices.Contains(names, name), fmt.Sprint(names, reasons)
	})
	return names
}

// waits waits until a Pod is not scheduled for a reason.
func (s *suite) waits(name, reason string) {
	s.t.Helper()
	s.until(name+" waits", func(ctx context.Context) (bool, string) {
		names, reasons := s.running(ctx)
		return !slices.Contains(names, name) && strings.Contains(reasons, name+": ") && strings.Contains(reasons, reason), fmt.Sprint(names, reasons)
	})
}

// count returns the number of the Pods of a team.
func count(names []string, team string) (n int) {
	for _, name := range names {
		if name[:1] == team {
			n++
		}
	}
	return n
}

// TestElasticQuotas is a story of two teams with two processors each on a node with four. Team b borrows
// those of team a, which gets them back.
func TestElasticQuotas(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a control plane")
	}
	s := start(t)
	s.node("n1", 4)
	s.class("high", 1000, nil)
	s.team("a", 2, 4)
	s.team("b", 2, 4)
	// No controller counts disruptions here: one budget allows none.
	budget, err := s.Client.PolicyV1().PodDisruptionBudgets("b").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"kept": "yes"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	budget.Status = policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, CurrentHealthy: 2, DesiredHealthy: 2}
	_, err = s.Client.PolicyV1().PodDisruptionBudgets("b").UpdateStatus(t.Context(), budget, metav1.UpdateOptions{})
	s.must(err)
	s.schedule("capacity", "preempt-any, state", "scheduling.x-k8s.io/v1alpha1/elasticquotas", "v1/pods")

	kept := func(pod *corev1.Pod) { pod.Labels = map[string]string{"kept": "yes"} }
	high := of("high")

	// Team b borrows all that team a does not use, and no more than its max.
	s.add("b1", high)
	s.add("b2", high)
	s.add("b3", kept)
	s.add("b4")
	for _, name := range []string{"b1", "b2", "b3", "b4"} {
		s.runs(name)
	}
	s.add("b5")
	s.waits("b5", "the ElasticQuota of b has no room below its max")

	// Team a gets its own back from the least important Pods of team b, which are no less important than
	// its own. As long as there is a choice, it is not the one with a budget.
	s.add("a1")
	if got, want := fmt.Sprint(s.runs("a1")), "[a1 b1 b2 b3]"; got != want {
		t.Fatalf("%s run, want %s", got, want)
	}
	s.add("a2")
	if got, want := fmt.Sprint(s.runs("a2")), "[a1 a2 b1 b2]"; got != want {
		t.Fatalf("%s run, want %s", got, want)
	}
	s.until("the evictions are reported", func(ctx context.Context) (bool, string) {
		events, err := s.Client.EventsV1().Events("b").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		var preempted []string
		for _, e := range events.Items {
			if e.Reason == "Preempted" {
				preempted = append(preempted, e.Regarding.Name)
			}
		}
		slices.Sort(preempted)
		return slices.Equal(preempted, []string{"b3", "b4"}), fmt.Sprint(preempted)
	})

	// Team b has not borrowed any more: a third Pod of team a evicts none of it. One of a higher
	// priority evicts one of its own team.
	s.add("a3")
	s.waits("a3", "the ElasticQuotas have no room below the sum of their min")
	s.add("a4", high)
	names := s.runs("a4")
	if count(names, "a") != 2 || count(names, "b") != 2 {
		t.Fatalf("%v run", names)
	}

	// What team a no longer uses is borrowed again. The Pod of team a that waits goes first: it would take
	// back what b5 borrows while the others go.
	s.must(s.Client.CoreV1().Pods("a").Delete(t.Context(), "a3", metav1.DeleteOptions{}))
	s.must(s.Client.CoreV1().Pods("a").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	s.runs("b5")
}

// TestPreemptionToleration has a Pod that tolerates the preemption by Pods that are hardly more
// important. One of them evicts a more important Pod on another node instead.
func TestPreemptionToleration(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a control plane")
	}
	const prefix = "preemption-toleration.scheduling.x-k8s.io/"
	s := start(t)
	s.class("batch", 100, map[string]string{prefix + "minimum-preemptable-priority": "10000", prefix + "toleration-seconds": "-1"})
	s.class("brief", 100, map[string]string{prefix + "minimum-preemptable-priority": "10000", prefix + "toleration-seconds": "1"})
	s.class("plain", 200, nil)
	s.class("mid", 1000, nil)
	s.class("high", 20000, nil)
	s.team("a", 0, 0)
	s.schedule("preemption-toleration", "preempt, clock", "scheduling.k8s.io/v1/priorityclasses")

	for n, name := range []string{"batch", "plain"} {
		s.node(fmt.Sprint("n", n), 1)
		s.add("a-"+name, of(name))
		s.runs("a-" + name)
	}
	s.add("a-mid", of("mid"))
	if got, want := fmt.Sprint(s.runs("a-mid")), "[a-batch a-mid]"; got != want {
		t.Fatalf("%s run, want %s", got, want)
	}
	s.add("a-next", of("mid"))
	s.waits("a-next", "No preemption victims found")
	s.must(s.Client.CoreV1().Pods("a").Delete(t.Context(), "a-next", metav1.DeleteOptions{}))
	s.add("a-high", of("high"))
	if got, want := fmt.Sprint(s.runs("a-high")), "[a-high a-mid]"; got != want {
		t.Fatalf("%s run, want %s", got, want)
	}

	// A toleration for a second has ended two seconds after its Pod was scheduled.
	s.node("n2", 1)
	s.add("a-brief", of("brief"))
	s.runs("a-brief")
	s.until("the toleration has ended", func(ctx context.Context) (bool, string) {
		pod, err := s.Client.CoreV1().Pods("a").Get(ctx, "a-brief", metav1.GetOptions{})
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && time.Since(c.LastTransitionTime.Time) > 2*time.Second {
				return true, ""
			}
		}
		return false, fmt.Sprint(err)
	})
	s.add("a-last", of("plain"))
	if got, want := fmt.Sprint(s.runs("a-last")), "[a-high a-last a-mid]"; got != want {
		t.Fatalf("%s run, want %s", got, want)
	}
}
