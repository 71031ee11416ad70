package kube137_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
)

// TestPreQueueingHint asks the queue guest of the conformance suite.
func TestPreQueueingHint(t *testing.T) {
	p := load(t, host.Config{Name: "queue", Module: host.ModuleConfig{File: "../../abi/conformance/testdata/queue.wasm"}})
	events, err := p.(fwk.EnqueueExtensions).EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n, e := range events {
		if got, want := e.PreQueueingHintFn != nil, n == 3; got != want {
			t.Errorf("event %d has a hint for all Pods: %v", n, got)
		}
	}
	came := func(labels map[string]string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "q", Labels: labels}}
	}
	for name, test := range map[string]struct {
		object any
		want   fwk.PreQueueingHintResult
		fails  bool
	}{
		"before another": {came(map[string]string{"before": "p"}), fwk.PreQueueingHintResult{
			Pods: []types.NamespacedName{{Namespace: "default", Name: "p"}, {Namespace: "default", Name: "always"}},
		}, false},
		"before none":  {came(nil), fwk.PreQueueingHintResult{Pods: []types.NamespacedName{}}, false},
		"before all":   {came(map[string]string{"everyone": ""}), fwk.PreQueueingHintResult{AllPods: true}, false},
		"an error":     {came(map[string]string{"puzzled": ""}), fwk.PreQueueingHintResult{AllPods: true}, true},
		"a last state": {cache.DeletedFinalStateUnknown{Obj: came(map[string]string{"everyone": ""})}, fwk.PreQueueingHintResult{AllPods: true}, false},
	} {
		got, err := events[3].PreQueueingHintFn(klog.Background(), nil, test.object)
		if (err != nil) != test.fails {
			t.Errorf("%s: error %v", name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
