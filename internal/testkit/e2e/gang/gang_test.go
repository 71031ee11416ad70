//go:build !kube135 && !kube136

// Package gang holds in a scheduler what examples/sched/gang says about gangs.
package gang

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

const namespace = "default"

// cluster is a scheduler with the gang guest, and the API that it sees.
type cluster struct {
	*fake.Clientset
	pods     int
	versions atomic.Int64
}

// forEver is how long Pods of a gang that are tried for the first time wait for the others where no
// test ends by that.
const forEver = "1h"

// start starts a scheduler of one node. Pods of a gang that are tried for the first time wait for the
// others for timeout.
func start(t *testing.T, cpu, timeout string) *cluster {
	t.Helper()
	metrics.Register()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	c := &cluster{Clientset: fake.NewClientset()}
	c.PrependReactor("create", "pods", c.bind)
	c.PrependReactor("patch", "pods", c.patch)
	c.addNode(t, "n1", cpu)

	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	var cfg schedconfig.KubeSchedulerConfiguration
	if err := scheme.Scheme.Convert(&versioned, &cfg, nil); err != nil {
		t.Fatal(err)
	}
	p := cfg.Profiles[0]
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: "gang"})
	p.PluginConfig = append(p.PluginConfig, schedconfig.PluginConfig{Name: "gang", Args: &runtime.Unknown{Raw: fmt.Appendf(nil,
		`{"module": {"file": %q}, "grants": ["waiting-pods", "events"], "guestConfig": {"timeout": %q, "retryTimeout": "1s"}}`, guests.File(t, "../../../../examples/sched/gang"), timeout)}})
	factory := informers.NewSharedInformerFactory(c, 0)
	recorder := events.NewFakeRecorder(1 << 16)
	s, err := scheduler.New(ctx, c, factory, nil, profile.RecorderFactory(func(string) events.EventRecorderLogger { return recorder }),
		scheduler.WithProfiles(p), scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{"gang": kube.New("gang", rt)}),
		scheduler.WithPodMaxBackoffSeconds(2))
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		t.Fatal(err)
	}
	go s.Run(ctx)
	return c
}

// bind does what the API server does with a Binding.
func (c *cluster) bind(a clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	if a.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := a.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
	o, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), b.Namespace, b.Name)
	if err != nil {
		return true, nil, err
	}
	pod := o.(*corev1.Pod).DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	return true, b, c.update(pod)
}

// patch gives a Pod that is patched another resource version, without which a scheduler drops the event.
func (c *cluster) patch(a clienttesting.Action) (handled bool, _ runtime.Object, err error) {
	p := a.(clienttesting.PatchAction)
	o, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), p.GetNamespace(), p.GetName())
	if err != nil {
		return true, nil, err
	}
	before, err := json.Marshal(o)
	if err != nil {
		return true, nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, p.GetPatch(), corev1.Pod{})
	if err != nil {
		return true, nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(after, pod); err != nil {
		return true, nil, err
	}
	return true, pod, c.update(pod)
}

// update updates a Pod.
func (c *cluster) update(pod *corev1.Pod) error {
	pod.ResourceVersion = fmt.Sprint(c.versions.Add(1))
	return c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace)
}

func (c *cluster) addNode(t *testing.T, name, cpu string) {
	t.Helper()
	room := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("110")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: room, Allocatable: room}}
	if _, err := c.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// add adds a Pod that needs one processor, and is of a gang of three unless the name is empty.
func (c *cluster) add(t *testing.T, name, gang string) {
	t.Helper()
	c.pods++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint("uid-", c.pods)), CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{
			Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if gang != "" {
		pod.Labels, pod.Annotations = map[string]string{"kubewasm.dev/gang": gang}, map[string]string{"kubewasm.dev/gang-size": "3"}
	}
	if _, err := c.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) remove(t *testing.T, name string) {
	t.Helper()
	if err := c.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bound returns which of the Pods have a node.
func (c *cluster) bound(ctx context.Context, names ...string) (on []string, err error) {
	for _, name := range names {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if pod.Spec.NodeName != "" {
			on = append(on, name)
		}
	}
	return on, nil
}

// until waits until so many of the Pods have a node.
func (c *cluster) until(t *testing.T, n int, names ...string) {
	t.Helper()
	var on []string
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (_ bool, err error) {
		on, err = c.bound(ctx, names...)
		return len(on) >= n, err
	})
	if err == nil {
		return
	}
	for _, name := range names {
		if pod, err := c.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			t.Logf("%s: node %q, conditions %v", name, pod.Spec.NodeName, pod.Status.Conditions)
		}
	}
	t.Fatalf("%d of %v have a node, want %d: %v", len(on), names, n, err)
}

// TestReplacedMemberRuns has a Pod of a gang that runs take the place of another.
func TestReplacedMemberRuns(t *testing.T) {
	c := start(t, "3", forEver)
	for _, name := range []string{"a0", "a1", "a2"} {
		c.add(t, name, "a")
	}
	c.until(t, 3, "a0", "a1", "a2")
	c.remove(t, "a1")
	c.add(t, "a1-again", "a")
	c.until(t, 1, "a1-again")
}

// TestGangThatDoesNotFitHoldsNothing holds that others get the nodes that a gang cannot use, and that
// it runs once there is room. A Pod that is tried again before its status says that it was tried may
// wait for the others once more, so the time for that is short.
func TestGangThatDoesNotFitHoldsNothing(t *testing.T) {
	c := start(t, "2", "5s")
	for _, name := range []string{"a0", "a1", "a2"} {
		c.add(t, name, "a")
	}
	// What the last of them lacks is written into its status.
	err := wait.PollUntilContextTimeout(t.Context(), 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		refused := 0
		for _, name := range []string{"a0", "a1", "a2"} {
			pod, err := c.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if len(pod.Status.Conditions) > 0 {
				refused++
			}
		}
		return refused == 3, nil
	})
	if err != nil {
		t.Fatalf("the gang is not refused: %v", err)
	}
	c.add(t, "single-1", "")
	c.add(t, "single-2", "")
	c.until(t, 2, "single-1", "single-2")
	if on, err := c.bound(t.Context(), "a0", "a1", "a2"); err != nil || len(on) != 0 {
		t.Fatalf("%v of the gang are bound, error %v", on, err)
	}
	c.addNode(t, "n2", "3")
	c.until(t, 3, "a0", "a1", "a2")
}

// TestGangsThatTakeTurns has the Pods of two gangs come in turn, where there is room for one gang.
func TestGangsThatTakeTurns(t *testing.T) {
	c := start(t, "4", forEver)
	for i := range 3 {
		c.add(t, fmt.Sprint("a", i), "a")
		c.add(t, fmt.Sprint("b", i), "b")
	}
	all := []string{"a0", "a1", "a2", "b0", "b1", "b2"}
	c.until(t, 3, all...)
	on, err := c.bound(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range on {
		if name[0] != on[0][0] {
			t.Fatalf("%v are bound, want one gang", on)
		}
	}
}
