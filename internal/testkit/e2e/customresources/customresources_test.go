// Package customresources tests in a real control plane that Pods wait for custom resources, and are
// woken by their events.
package customresources

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	quotas      = schema.GroupVersionResource{Group: "quota.example.com", Version: "v1", Resource: "quotas"}
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: quotas.quota.example.com}
spec:
  group: quota.example.com
  scope: Namespaced
  names: {plural: quotas, singular: quota, kind: Quota}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {open: {type: boolean}}}}}}
`

// suite is a control plane, and a scheduler with the guest of sched/schedtest/internal/quotas.
type suite struct {
	*cluster.Cluster
	client dynamic.Interface
}

// object returns an object of a manifest.
func object(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// define makes the kind Quota, and waits until it is served.
func (s *suite) define(t *testing.T) {
	t.Helper()
	if _, err := s.client.Resource(definitions).Create(t.Context(), object(t, definition), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until(t, "Quotas are served", func(ctx context.Context) (bool, string) {
		_, err := s.client.Resource(quotas).Namespace("default").List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
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
		t.Fatalf("wait until %s: %v: %s", what, err, last)
	}
}

// add makes a Pod that needs a Quota, unless it is empty, with further annotations: key, value, key,
// value.
func (s *suite) add(t *testing.T, name, quota string, annotations ...string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"quota": quota}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/app:1"}}},
	}
	for ; len(annotations) != 0; annotations = annotations[2:] {
		pod.Annotations[annotations[0]] = annotations[1]
	}
	if _, err := s.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// waits waits until a Pod is not scheduled for a reason.
func (s *suite) waits(t *testing.T, name, reason string) {
	t.Helper()
	s.until(t, name+" waits", func(ctx context.Context) (bool, string) {
		pod, err := s.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		message := "on " + pod.Spec.NodeName
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				message = c.Message
			}
		}
		return strings.Contains(message, reason), message
	})
}

// runs waits until a Pod has a node.
func (s *suite) runs(t *testing.T, name string) {
	t.Helper()
	s.until(t, name+" has a node", func(ctx context.Context) (bool, string) {
		pod, err := s.Client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return pod.Spec.NodeName != "", fmt.Sprint(pod.Status.Conditions)
	})
}

func (s *suite) addQuota(t *testing.T, name string) {
	t.Helper()
	manifest := fmt.Sprintf("{apiVersion: quota.example.com/v1, kind: Quota, metadata: {name: %s}, spec: {open: false}}", name)
	if _, err := s.client.Resource(quotas).Namespace("default").Create(t.Context(), object(t, manifest), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (s *suite) open(t *testing.T, name string) {
	t.Helper()
	if _, err := s.client.Resource(quotas).Namespace("default").Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec": {"open": true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestPodsWaitForCustomResources begins with a cluster that lacks the kind. The scheduler's own flush
// of Pods, after five minutes, comes after each deadline here.
func TestPodsWaitForCustomResources(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a control plane")
	}
	s := &suite{Cluster: cluster.Start(t, nil)}
	var err error
	if s.client, err = dynamic.NewForConfig(s.Config); err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("500"),
	}}}
	status := node.Status
	if node, err = s.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Status = status
	if _, err := s.Client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.RunScheduler(t, cluster.BuildScheduler(t), fmt.Sprintf(`profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: quotas}]}}
  pluginConfig:
  - name: quotas
    args: {module: {file: %s}, objects: [{resource: quota.example.com/v1/quotas, namespaces: [default]}], grants: [activate], queueTimeout: 1s}
`, strconv.Quote(guests.File(t, "../../../../sched/schedtest/internal/quotas"))))

	// The scheduler starts without the kind, and schedules what does not need it.
	s.add(t, "free", "")
	s.add(t, "first", "team")
	s.runs(t, "free")
	s.waits(t, "first", `look up "quota.example.com/v1/quotas"`)
	// The kind comes.
	s.define(t)
	s.waits(t, "first", "there is no Quota team")
	s.addQuota(t, "team")
	s.add(t, "second", "team")
	s.waits(t, "second", "Quota team") // The scheduler may not know it yet.
	s.add(t, "other", "other")
	s.waits(t, "other", "there is no Quota other")
	s.open(t, "team")
	s.runs(t, "first")
	s.runs(t, "second")
	s.waits(t, "other", "there is no Quota other")
	// The guest registers for no deletion, so a sibling wakes the Pod.
	s.addQuota(t, "block")
	s.open(t, "block")
	s.add(t, "canary", "block")
	s.runs(t, "canary") // The scheduler knows the Quota.
	s.add(t, "sibling", "", "without", "block")
	s.waits(t, "sibling", "there is the Quota block")
	if err := s.client.Resource(quotas).Namespace("default").Delete(t.Context(), "block", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		name := fmt.Sprint("waker-", i)
		s.add(t, name, "", "siblings", "sibling")
		s.runs(t, name)
		pod, err := s.Client.CoreV1().Pods("default").Get(t.Context(), "sibling", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName != "" {
			break
		}
	}
	// The kind goes, and comes again.
	if err := s.client.Resource(definitions).Delete(t.Context(), "quotas.quota.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.until(t, "the kind is gone", func(ctx context.Context) (bool, string) {
		_, err := s.client.Resource(definitions).Get(ctx, "quotas.quota.example.com", metav1.GetOptions{})
		return err != nil, "it is there"
	})
	s.add(t, "third", "team")
	s.until(t, "third waits", func(ctx context.Context) (bool, string) {
		pod, err := s.Client.CoreV1().Pods("default").Get(ctx, "third", metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == "" && len(pod.Status.Conditions) != 0, "it has no condition"
	})
	s.define(t)
	s.addQuota(t, "team")
	s.open(t, "team")
	s.runs(t, "third")
}
