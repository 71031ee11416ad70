package declared_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

// scheduling is a control plane with a controller and a scheduler.
type scheduling struct {
	*world
	module, binary, config string
	pods                   atomic.Int64
}

func (s *scheduling) plugins() dynamic.ResourceInterface {
	return s.dynamic.Resource(v1alpha1.GroupVersion.WithResource("schedulerplugins"))
}

// declare applies a SchedulerPlugin.
func (s *scheduling) declare(name, spec string) {
	s.Helper()
	text := fmt.Sprintf(`{"apiVersion":"kubewasm.dev/v1alpha1","kind":"SchedulerPlugin","metadata":{"name":%q},"spec":%s}`, name, spec)
	_, err := s.plugins().Patch(s.Context(), name, "application/apply-patch+yaml", []byte(text), metav1.PatchOptions{FieldManager: "test", Force: new(true)})
	s.must(err)
}

// zone declares the plugin zone with a default.
func (s *scheduling) zone(of string) {
	s.Helper()
	s.declare("zone", fmt.Sprintf(`{"module":{"file":%q},"guestConfig":{"defaultZones":[%q]},"limits":{"timeout":"1s"}}`, s.module, of))
}

// says waits until the condition Ready of a plugin is about its newest generation, and has a part of
// a text.
func (s *scheduling) says(name, ready, part string) {
	s.Helper()
	var last string
	defer func() {
		if s.Failed() {
			s.Logf("the last status is %s", last)
		}
	}()
	s.until(fmt.Sprintf("%s is %s: %s", name, ready, part), func() bool {
		object, err := s.plugins().Get(s.Context(), name, metav1.GetOptions{})
		s.must(err)
		of, _, err := unstructured.NestedMap(object.Object, "status")
		s.must(err)
		var status v1alpha1.PluginStatus
		s.must(runtime.DefaultUnstructuredConverter.FromUnstructured(of, &status))
		c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		last = fmt.Sprintf("%s %+v", status.Ready, c)
		return c != nil && c.ObservedGeneration == object.GetGeneration() && status.Ready == ready && strings.Contains(c.Message, part)
	})
}

// add makes a Pod, and returns its name.
func (s *scheduling) add() string {
	s.Helper()
	name := fmt.Sprint("pod-", s.pods.Add(1))
	_, err := s.Client.CoreV1().Pods("shop").Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	return name
}

// bound waits until a Pod has a node, and returns that.
func (s *scheduling) bound(name string) (node string) {
	s.Helper()
	s.until(name+" is bound", func() bool {
		pod, err := s.Client.CoreV1().Pods("shop").Get(s.Context(), name, metav1.GetOptions{})
		s.must(err)
		node = pod.Spec.NodeName
		return node != ""
	})
	return node
}

// waits waits until a Pod is pending for a reason.
func (s *scheduling) waits(name, reason string) {
	s.Helper()
	s.until(name+" waits: "+reason, func() bool {
		pod, err := s.Client.CoreV1().Pods("shop").Get(s.Context(), name, metav1.GetOptions{})
		s.must(err)
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, reason) {
				return true
			}
		}
		if pod.Spec.NodeName != "" {
			s.Fatalf("%s is on %s", name, pod.Spec.NodeName)
		}
		return false
	})
}

// run starts the scheduler as its first Pod.
func (s *scheduling) run() *program {
	s.Helper()
	return s.runAs("scheduler-0")
}

// runAs starts the scheduler as a Pod.
func (s *scheduling) runAs(name string) *program {
	s.Helper()
	_, port, err := net.SplitHostPort(cluster.FreeAddress(s.T))
	s.must(err)
	pod, err := s.Client.CoreV1().Pods(installed).Get(s.Context(), name, metav1.GetOptions{})
	s.must(err)
	return s.start(s.binary, []string{"POD_NAME=" + name, "POD_NAMESPACE=" + installed, "POD_UID=" + string(pod.UID)},
		"--config="+s.config, "--bind-address=127.0.0.1", "--secure-port="+port, "--plugin-cache-dir="+filepath.Join(s.dir, "modules"),
		"--authentication-kubeconfig="+s.Kubeconfig, "--authorization-kubeconfig="+s.Kubeconfig, "--authentication-skip-lookup=true", "--v=2")
}

// place makes the Pod of a scheduler.
func (s *scheduling) place(name string) {
	s.Helper()
	pod, err := s.Client.CoreV1().Pods(installed).Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "kubewasm", "app.kubernetes.io/component": "scheduler", "tier": "batch"}},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "scheduler"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	pod.Status.Phase = corev1.PodRunning
	_, err = s.Client.CoreV1().Pods(installed).UpdateStatus(s.Context(), pod, metav1.UpdateOptions{})
	s.must(err)
}

// newScheduling makes two nodes, the Pod of the scheduler and its configuration.
func newScheduling(t *testing.T) *scheduling {
	w := newWorld(t)
	s := &scheduling{world: w, module: guests.File(t, "../../../../examples/sched/zone"), config: filepath.Join(w.dir, "scheduler.yaml")}
	for _, zone := range []string{"a", "b"} {
		node, err := s.Client.CoreV1().Nodes().Create(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}, metav1.CreateOptions{})
		s.must(err)
		node.Status = corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("1000")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		}
		_, err = s.Client.CoreV1().Nodes().UpdateStatus(s.Context(), node, metav1.UpdateOptions{})
		s.must(err)
	}
	s.place("scheduler-0")
	s.must(os.WriteFile(s.config, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 500, burst: 1000}
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: zone}]}}
  pluginConfig: [{name: zone, args: {cluster: true}}]
- schedulerName: other
  plugins: {multiPoint: {enabled: [{name: own}]}}
  pluginConfig: [{name: own, args: {module: {file: %q}}}]
`, s.Kubeconfig, s.module), 0o600))
	return s
}

// TestSchedulerPlugin: a plugin of the cluster is created, changes, breaks, is repaired and goes, while
// Pods are scheduled and the scheduler restarts.
func TestSchedulerPlugin(t *testing.T) {
	s := newScheduling(t)
	s.binary = cluster.BuildScheduler(t)
	s.controller()
	running := s.run()

	// Without the object, Pods of the profile wait. They are scheduled when it comes.
	first := s.add()
	s.waits(first, `there is no SchedulerPlugin "zone" for the scheduler "default-scheduler"`)
	s.zone("a")
	if got := s.bound(first); got != "a" {
		t.Errorf("the first Pod is on %s", got)
	}
	s.says("zone", "1/1", "")

	// Changes, while Pods come.
	var mu sync.Mutex
	nodes := map[string]int{}
	var all sync.WaitGroup
	done := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				node := s.bound(s.add())
				mu.Lock()
				nodes[node]++
				mu.Unlock()
			}
		}
	})
	seen := func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(nodes)
	}
	s.until("Pods are on a", func() bool { return seen()["a"] > 3 })
	if seen()["b"] != 0 {
		t.Errorf("Pods are on %v", seen())
	}
	s.zone("b")
	s.says("zone", "1/1", "")
	s.until("Pods are on b", func() bool { return seen()["b"] > 3 })
	// What breaks leaves the version before in service.
	before := seen()
	s.declare("zone", `{"module":{"file":"/none.wasm"},"guestConfig":{"defaultZones":["a"]}}`)
	s.says("zone", "0/1", "none.wasm")
	s.until("Pods are on b still", func() bool { return seen()["b"] > before["b"]+3 })
	s.declare("zone", fmt.Sprintf(`{"module":{"file":%q},"grants":["nothing"]}`, s.module))
	s.says("zone", "0/1", "nothing")
	if now := seen(); now["a"] > before["a"]+1 { // One may have been on its way.
		t.Errorf("Pods are on %v, and were on %v", now, before)
	}
	s.zone("a")
	s.says("zone", "1/1", "")
	before = seen()
	s.until("Pods are on a again", func() bool { return seen()["a"] > before["a"]+3 })
	close(done)
	all.Wait()

	// One that no profile names, and one that the file has.
	s.declare("quota", fmt.Sprintf(`{"module":{"file":%q}}`, s.module))
	s.says("quota", "0/1", "add {name: quota} to plugins.multiPoint.enabled and {name: quota, args: {cluster: true}} to pluginConfig of profile default-scheduler or other")
	s.declare("own", fmt.Sprintf(`{"module":{"file":%q}}`, s.module))
	s.says("own", "0/1", "takes precedence")
	// Those for others.
	s.declare("own", fmt.Sprintf(`{"module":{"file":%q},"schedulers":{"names":["elsewhere"]}}`, s.module))
	s.says("own", "0/0", "no process")
	s.declare("quota", fmt.Sprintf(`{"module":{"file":%q},"schedulers":{"selector":"tier notin (batch)"}}`, s.module))
	s.says("quota", "0/0", "no process")

	// An object that goes leaves Pods to the failure policy, also after a restart.
	s.must(s.plugins().Delete(t.Context(), "zone", metav1.DeleteOptions{}))
	s.until("the plugin is away", func() bool {
		name := s.add()
		var why string
		s.until("the Pod is bound or waits", func() bool {
			pod, err := s.Client.CoreV1().Pods("shop").Get(t.Context(), name, metav1.GetOptions{})
			s.must(err)
			for _, c := range pod.Status.Conditions {
				why = c.Message
			}
			return pod.Spec.NodeName != "" || why != ""
		})
		return strings.Contains(why, "there is no SchedulerPlugin")
	})
	running.kill()
	running = s.run()
	waiting := s.add()
	s.waits(waiting, "there is no SchedulerPlugin")
	s.zone("b")
	if got := s.bound(waiting); got != "b" {
		t.Errorf("the Pod that has waited is on %s", got)
	}
	s.says("zone", "1/1", "")
	// A restart with the object.
	running.kill()
	s.run()
	if got := s.bound(s.add()); got != "b" {
		t.Errorf("a Pod after the restart is on %s", got)
	}
}
