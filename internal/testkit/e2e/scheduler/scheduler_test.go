// Package scheduler tests the scheduler of cmd/kubewasm-scheduler against a real
// control plane.
package scheduler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// suite is a control plane with a scheduler that has a profile for the guests of package
// guest side by side, one for those that take the place of the scheduler's own plugins, and
// one for each guest of kube-scheduler-wasm-extension.
type suite struct {
	*cluster.Cluster
	// stamp is the module that the plugin stamp follows.
	stamp     string
	scheduler *cluster.Process
}

// plugin is a guest in a profile.
type plugin struct {
	name string
	// file is the module.
	file string
	// module is what the arguments say of the module beside the file, and args the others, in YAML.
	module, args string
	weight       int
}

// profile returns a profile in YAML. Disabled are plugins that it does without.
func profile(name string, plugins []plugin, disabled ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- schedulerName: %s\n  plugins:\n    multiPoint:\n      enabled:\n", name)
	for _, p := range plugins {
		fmt.Fprintf(&b, "      - {name: %s, weight: %d}\n", p.name, p.weight)
	}
	for i, d := range disabled {
		if i == 0 {
			b.WriteString("      disabled:\n")
		}
		fmt.Fprintf(&b, "      - {name: %s}\n", d)
	}
	b.WriteString("  pluginConfig:\n")
	for _, p := range plugins {
		if module, err := os.ReadFile(p.file); err == nil {
			modules[fmt.Sprintf("%x", sha256.Sum256(module))] = module
		}
		args := p.args
		if recordTo != "" {
			args = fmt.Sprintf(", record: {path: %s}%s", strconv.Quote(recordTo), args)
		}
		fmt.Fprintf(&b, "  - {name: %s, args: {module: {file: %s%s}%s}}\n", p.name, strconv.Quote(p.file), p.module, args)
	}
	return b.String()
}

// modules are those of all plugins, by their digests.
var modules = map[string][]byte{}

// recordTo is where the scheduler records the calls of all plugins, empty in tests without that.
var recordTo string

func start(t *testing.T) *suite {
	t.Helper()
	s := &suite{Cluster: cluster.Start(t, nil)}
	recordTo = filepath.Join(s.Dir, "recording")
	module, err := os.ReadFile(guests.File(t, "testdata/stamp"))
	if err != nil {
		t.Fatal(err)
	}
	s.stamp = filepath.Join(s.Dir, "stamp.wasm")
	if err := os.WriteFile(s.stamp, module, 0o600); err != nil {
		t.Fatal(err)
	}
	ours := []plugin{
		{name: "zone", file: guests.File(t, "../../../../examples/sched/zone")},
		{name: "image-locality", file: guests.File(t, "../../../../examples/sched/image-locality"), weight: 50},
		{name: "gang", file: guests.File(t, "../../../../examples/sched/gang"), args: ", grants: [waiting-pods, events], guestConfig: {timeout: 120s}"},
		{name: "topology-spread", file: guests.File(t, "../../../../examples/sched/topology-spread"), weight: 2},
		{name: "crowd", file: guests.File(t, "testdata/crowd"), args: ", limits: {timeout: 100ms}"},
		// The machine may be busy.
		{name: "gate", file: guests.File(t, "testdata/gate"), args: ", queueTimeout: 1s"},
		{name: "stamp", file: s.stamp, module: ", follow: true"},
	}
	profiles := "profiles:\n" + profile("default-scheduler", ours, "ImageLocality", "PodTopologySpread") +
		profile(inTreeProfile, inTreeGuests(t), inTree...)
	for _, p := range peers(t) {
		profiles += profile(p.name, []plugin{p})
	}
	s.scheduler = s.RunScheduler(t, cluster.BuildScheduler(t), profiles)
	return s
}

// addNode makes a node with room for Pods. Labels are key, value, key, value; the
// node also has the label "of" with the name of the test.
func (s *suite) addNode(t *testing.T, of, name string, images []corev1.ContainerImage, labels ...string) {
	t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"of": of}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("500"),
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Images:     images,
		},
	}
	for ; len(labels) > 0; labels = labels[2:] {
		node.Labels[labels[0]] = labels[1]
	}
	status := node.Status
	made, err := s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status = status
	if _, err := s.Client.CoreV1().Nodes().UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// addPod makes a Pod that runs on nodes of the test only. If the test fails it is deleted at the
// end: a Pod that has a nominated node is in the way of others, wherever they run.
func (s *suite) addPod(t *testing.T, of, name string, change func(*corev1.Pod)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{"of": of},
			Containers:                    []corev1.Container{{Name: "c", Image: "example.com/app:1"}},
			TerminationGracePeriodSeconds: new(int64), // There is no kubelet to end it.
		},
	}
	if change != nil {
		change(pod)
	}
	if _, err := s.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		err := s.Client.CoreV1().Pods("default").Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// until waits until a Pod is as done says.
func (s *suite) until(t *testing.T, name, what string, done func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var err error
		pod, err = s.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		return err == nil && done(pod), err
	})
	if err != nil {
		t.Fatalf("wait for %s to be %s: %v: it is on node %q with the conditions %v", name, what, err, pod.Spec.NodeName, pod.Status.Conditions)
	}
	return pod
}

// bound waits until a Pod is bound, and returns where.
func (s *suite) bound(t *testing.T, name string) string {
	t.Helper()
	return s.until(t, name, "bound", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }).Spec.NodeName
}

// refused waits until a Pod could not be scheduled, and returns why.
func (s *suite) refused(t *testing.T, name string) string {
	t.Helper()
	var message string
	s.until(t, name, "refused", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				message = c.Message
				return true
			}
		}
		return false
	})
	return message
}

func TestScheduler(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a control plane")
	}
	s := start(t)
	t.Run("Pods are bound where the guests say", func(t *testing.T) {
		for _, zone := range []string{"a", "b", "c"} {
			s.addNode(t, "zones", "zone-"+zone, nil, corev1.LabelTopologyZone, zone)
		}
		for i := range 12 {
			zone := string("abc"[i%3])
			name := fmt.Sprint("in-", zone, i)
			s.addPod(t, "zones", name, func(p *corev1.Pod) { p.Annotations["kubewasm.dev/zones"] = zone })
			if got, want := s.bound(t, name), "zone-"+zone; got != want {
				t.Errorf("%s is on %s, want %s", name, got, want)
			}
		}
	})
	t.Run("an unschedulable Pod has the guest's reason in its condition", func(t *testing.T) {
		s.addPod(t, "zones", "elsewhere", func(p *corev1.Pod) { p.Annotations["kubewasm.dev/zones"] = "z" })
		if got, want := s.refused(t, "elsewhere"), `node is in zone "a", the Pod wants z`; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
	t.Run("Pods go where their image is", func(t *testing.T) {
		image := []corev1.ContainerImage{{Names: []string{"example.com/huge:1"}, SizeBytes: 1 << 30}}
		s.addNode(t, "images", "without-1", nil)
		s.addNode(t, "images", "with", image)
		s.addNode(t, "images", "without-2", nil)
		for i := range 5 {
			name := fmt.Sprint("huge-", i)
			s.addPod(t, "images", name, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "example.com/huge:1" })
			if got := s.bound(t, name); got != "with" {
				t.Errorf("%s is on %s", name, got)
			}
		}
	})
	t.Run("a gang is held until it is complete, and released together", func(t *testing.T) { testGang(t, s) })
	t.Run("preemption makes room as the guest counts it", func(t *testing.T) { testPreemption(t, s) })
	t.Run("a Pod is gated until its own label changes", func(t *testing.T) { testGate(t, s) })
	t.Run("a guest that loops holds up nobody else", func(t *testing.T) { testLoop(t, s) })
	t.Run("a module is swapped under load without a failed Pod", func(t *testing.T) { testSwap(t, s) })
	t.Run("guests take the place of the scheduler's own plugins", func(t *testing.T) { testInTree(t, s) })
	t.Run("guests of kube-scheduler-wasm-extension run beside them", func(t *testing.T) { testPeers(t, s) })
	t.Run("all calls of all guests can be repeated", func(t *testing.T) { testReplay(t, s) })
}

// testReplay repeats what the scheduler has recorded so far, while it goes on. With
// KUBEWASM_REPLAY_CALLS, it adds Pods until as many calls are recorded.
func testReplay(t *testing.T, s *suite) {
	open := func() *recording.Recording {
		recording, err := recording.Open(recordTo)
		if err != nil {
			t.Fatal(err)
		}
		return recording
	}
	recording, want := open(), 0
	if text := os.Getenv("KUBEWASM_REPLAY_CALLS"); text != "" {
		var err error
		if want, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for round := 0; recording.Calls() < want; round++ {
		for i := range 2 {
			s.addNode(t, "many", fmt.Sprintf("many-%d-%d", round, i), nil, corev1.LabelTopologyZone, string("ab"[i]))
		}
		const pods = 900
		for i := range pods {
			s.addPod(t, "many", fmt.Sprintf("many-%d-%d", round, i), func(p *corev1.Pod) { p.Annotations["kubewasm.dev/zones"] = string("ab"[i%2]) })
		}
		s.bound(t, fmt.Sprintf("many-%d-%d", round, pods-1))
		recording = open()
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	seen, calls := map[string]bool{}, 0
	for _, v := range recording.Versions() {
		module := modules[v.SHA256]
		if module == nil || seen[v.SHA256] {
			continue
		}
		seen[v.SHA256] = true
		got, err := replay.Verify(t.Context(), rt, recording, module, replay.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range got.Differences {
			t.Error(d)
		}
		t.Logf("%s %s: %d of %d calls are exact", v.Plugin, v.Dialect, got.Exact, got.Calls)
		calls += got.Calls
	}
	t.Log(recording.Summary())
	if calls < recording.Calls()/2 {
		t.Errorf("%d of %d calls were repeated", calls, recording.Calls())
	}
}

func testGang(t *testing.T, s *suite) {
	s.addNode(t, "gang", "gang-1", nil)
	add := func(i int) {
		s.addPod(t, "gang", fmt.Sprint("member-", i), func(p *corev1.Pod) {
			p.Labels["kubewasm.dev/gang"], p.Annotations["kubewasm.dev/gang-size"] = "training", "3"
		})
	}
	add(0)
	add(1)
	// Both have a node, and wait.
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := s.Client.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, e := range list.Items {
			if e.Reason == "WaitingForGang" && strings.Contains(e.Note, "2 of 3 Pods of gang training have a node") {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("no event says that the gang waits: %v", err)
	}
	for i := range 2 {
		pod, err := s.Client.CoreV1().Pods("default").Get(t.Context(), fmt.Sprint("member-", i), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName != "" {
			t.Errorf("%s is bound before the gang is complete", pod.Name)
		}
	}
	add(2)
	for i := range 3 {
		s.bound(t, fmt.Sprint("member-", i))
	}
}

// testGate adds a Pod that is not gated after one that is, to know when the scheduler has seen
// both.
func testGate(t *testing.T, s *suite) {
	s.addNode(t, "gate", "gate-1", nil)
	s.addPod(t, "gate", "gated", func(p *corev1.Pod) { p.Labels["gate"] = "closed" })
	s.addPod(t, "gate", "open", func(p *corev1.Pod) { p.Labels["gate"] = "open" })
	s.bound(t, "open")
	pods := s.Client.CoreV1().Pods("default")
	pod, err := pods.Get(t.Context(), "gated", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.NodeName != "" {
		t.Fatalf("the Pod is on %s before its gate opens", pod.Spec.NodeName)
	}
	for _, label := range []string{`{"another":"label"}`, `{"gate":"open"}`} {
		patch := []byte(`{"metadata":{"labels":` + label + `}}`)
		if pod, err = pods.Patch(t.Context(), "gated", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName != "" {
			t.Errorf("the Pod was on %s when its labels became %s", pod.Spec.NodeName, label)
		}
	}
	if got := s.bound(t, "gated"); got != "gate-1" {
		t.Errorf("the Pod is on %s", got)
	}
}

func testPreemption(t *testing.T, s *suite) {
	if _, err := s.Client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.addNode(t, "crowd", "crowd-1", nil)
	s.addNode(t, "crowd", "crowd-2", nil)
	crowd := func(p *corev1.Pod) { p.Labels["crowd"] = "" }
	for i := range 4 {
		s.addPod(t, "crowd", fmt.Sprint("low-", i), crowd)
		s.bound(t, fmt.Sprint("low-", i))
	}
	s.addPod(t, "crowd", "low-4", crowd)
	if got := s.refused(t, "low-4"); !strings.Contains(got, "2 node has its crowd") {
		t.Errorf("got %s", got)
	}
	// One that may preempt takes the place of a single one.
	for i := range 2 {
		s.addPod(t, "crowd", fmt.Sprint("high-", i), func(p *corev1.Pod) {
			crowd(p)
			p.Spec.PriorityClassName = "high"
		})
		s.bound(t, fmt.Sprint("high-", i))
	}
	list, err := s.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "crowd"})
	if err != nil {
		t.Fatal(err)
	}
	on := map[string]int{}
	for _, p := range list.Items {
		on[p.Spec.NodeName]++
	}
	if on["crowd-1"] != 2 || on["crowd-2"] != 2 || on[""] != 1 {
		t.Errorf("Pods of the crowd by node: %v, want 2 on each and 1 that waits", on)
	}
}

func testLoop(t *testing.T, s *suite) {
	s.addNode(t, "loop", "loop-1", nil)
	// The scheduler knows the node when the first Pod is there.
	s.addPod(t, "loop", "first", nil)
	s.bound(t, "first")
	for i := range 3 {
		s.addPod(t, "loop", fmt.Sprint("endless-", i), func(p *corev1.Pod) { p.Annotations["loop"] = "yes" })
	}
	for i := range 20 {
		s.addPod(t, "loop", fmt.Sprint("plain-", i), nil)
	}
	for i := range 20 {
		s.bound(t, fmt.Sprint("plain-", i))
	}
	if got, want := s.refused(t, "endless-0"), "context deadline exceeded"; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range 3 {
		if err := s.Client.CoreV1().Pods("default").Delete(t.Context(), fmt.Sprint("endless-", i), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func testSwap(t *testing.T, s *suite) {
	s.addNode(t, "stamp", "stamp-1", nil, "stamp", "kubewasm-e2e-stamp-1")
	s.addNode(t, "stamp", "stamp-2", nil, "stamp", "kubewasm-e2e-stamp-2")
	module, err := os.ReadFile(s.stamp)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.ReplaceAll(module, []byte("kubewasm-e2e-stamp-1"), []byte("kubewasm-e2e-stamp-2"))
	if bytes.Equal(module, other) {
		t.Fatal("the stamp is not in the module")
	}
	// Pods come until one is on the second node; the module is replaced when some
	// are on the first.
	on := map[string]int{}
	deadline := time.Now().Add(2 * time.Minute)
	n := 0
	for on["stamp-2"] == 0 {
		if time.Now().After(deadline) {
			t.Fatalf("the module was never swapped; Pods by node: %v", on)
		}
		for range 20 {
			s.addPod(t, "stamp", fmt.Sprint("stamped-", n), func(p *corev1.Pod) { p.Labels["stamped"] = "" })
			n++
		}
		if n == 60 {
			next := s.stamp + ".next"
			if err := os.WriteFile(next, other, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(next, s.stamp); err != nil {
				t.Fatal(err)
			}
		}
		clear(on)
		for i := range n {
			on[s.bound(t, fmt.Sprint("stamped-", i))]++
		}
	}
	t.Logf("Pods by node: %v", on)
	if on["stamp-1"] == 0 {
		t.Error("no Pod was scheduled by the first version")
	}
	events, err := s.Client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == "FailedScheduling" && strings.HasPrefix(e.Regarding.Name, "stamped-") {
			t.Errorf("%s: %s", e.Regarding.Name, e.Note)
		}
	}
}
