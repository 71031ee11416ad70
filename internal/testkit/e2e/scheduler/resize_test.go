//go:build !kube135 && !kube136

package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
)

// A running Pod whose resize its node has no room for passes through the scheduler again
// if the feature gate of KEP-5836 is on. Guests are asked about it as about any other:
// one that has no objection lets it preempt, one that refuses its node keeps it from that.
func TestResize(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a control plane")
	}
	const gate = "InPlacePodVerticalScalingSchedulerPreemption=true"
	s := &suite{Cluster: cluster.Start(t, map[string][]string{"feature-gates": {gate}})}
	zone := plugin{name: "zone", file: guests.File(t, "../../../../examples/sched/zone")}
	s.scheduler = s.RunScheduler(t, cluster.BuildScheduler(t), "profiles:\n"+profile("default-scheduler", []plugin{zone}), "--feature-gates="+gate)
	if _, err := s.Client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := s.Client.CoreV1().Pods("default")
	// grow makes a node with a Pod of no priority and one of a high one, which together
	// leave no room, and has the second grow until both do not fit.
	grow := func(t *testing.T, of string) {
		s.addNode(t, of, of, nil, corev1.LabelTopologyZone, "a")
		s.addPod(t, of, of+"-low", func(p *corev1.Pod) { request(p, "40") })
		s.bound(t, of+"-low")
		s.addPod(t, of, of+"-high", func(p *corev1.Pod) {
			request(p, "20")
			p.Spec.PriorityClassName = "high"
		})
		s.bound(t, of+"-high")
		high, err := pods.Get(t.Context(), of+"-high", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// The guest sees the annotation of the running Pod.
		if of == "refused" {
			high.Annotations = map[string]string{"kubewasm.dev/zones": "z"}
			if high, err = pods.Update(t.Context(), high, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		request(high, "50")
		if high, err = pods.UpdateResize(t.Context(), high.Name, high, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		// What its kubelet would say.
		high.Status.Phase = corev1.PodRunning
		high.Status.Conditions = append(high.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred,
		})
		if _, err := pods.UpdateStatus(t.Context(), high, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	grow(t, "refused")
	// The scheduler sends no event and sets no condition for such a Pod.
	until(t, "guest's reason in the scheduler's log", func(context.Context) (bool, error) {
		return strings.Contains(s.scheduler.Logs(), `node is in zone \"a\", the Pod wants z`), nil
	})
	grow(t, "preempts")
	until(t, "eviction of the Pod with the lower priority", func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, "preempts-low", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	for _, name := range []string{"refused-low", "refused-high", "preempts-high"} {
		if p, err := pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil || p.DeletionTimestamp != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
}

// request makes a Pod ask for a number of processors.
func request(p *corev1.Pod, cpu string) {
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

func until(t *testing.T, what string, done func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true, done); err != nil {
		t.Fatalf("wait for the %s: %v", what, err)
	}
}
