package kube137_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// TestListsByIndex holds that lists of Pods are the same with an index and without one, and that two
// plugins may have the same index.
func TestListsByIndex(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../../examples/sched/quota")
	if err != nil {
		t.Fatal(err)
	}
	var pods []kruntime.Object
	for n := range 300 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: []string{"shop", "bank"}[n%2], Name: fmt.Sprintf("p%03d", n), UID: types.UID(fmt.Sprint("uid-", n)),
			Labels: map[string]string{"kubewasm.dev/tenant": fmt.Sprint("t", n%7)},
		}, Spec: corev1.PodSpec{NodeName: "n1"}}
		if n%5 == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
		pods = append(pods, pod)
	}
	handle := &kube137test.Handle{Informers: informers.NewSharedInformerFactory(fake.NewClientset(pods...), 0)}
	var plugins []kube137.Plugin
	for n, index := range []string{"", `, "index": [{"label": "kubewasm.dev/tenant"}]`, `, "index": [{"label": "kubewasm.dev/tenant"}, {"label": "other"}]`} {
		raw := fmt.Sprintf(`{"module": {"file": %q}, "grants": ["state"], "objects": [{"resource": "v1/pods"%s}]}`, file, index)
		p, err := kube137.New(fmt.Sprint("quota", n), shared)(t.Context(), &kruntime.Unknown{Raw: []byte(raw)}, handle)
		if err != nil {
			t.Fatal(err)
		}
		plugins = append(plugins, p.(kube137.Plugin))
	}
	handle.Informers.Start(t.Context().Done())
	handle.Informers.WaitForCacheSync(t.Context().Done())
	var want map[string]string
	for n, p := range plugins {
		pod := tenantPod(1000, 0, "")
		pod.Labels = map[string]string{"kubewasm.dev/tenant": "t3"}
		_, status := p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), pod, nil)
		if !status.IsRejected() || !strings.Contains(status.Message(), "tenant t3 has 34 Pods") {
			t.Errorf("plugin %d: %s", n, text(status))
		}
		got := map[string]string{}
		for key, value := range p.Guest().SharedState() {
			got[key] = string(value)
		}
		if n == 0 {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) < 200 {
			t.Errorf("plugin %d has %d entries, and others than without an index (-want +got):\n%s", n, len(got), diff)
		}
	}
	raw := fmt.Sprintf(`{"module": {"file": %q}, "grants": ["state"], "objects": [{"resource": "v1/pods", "index": [{"label": "not a label"}]}]}`, file)
	if _, err := kube137.New("quota", shared)(t.Context(), &kruntime.Unknown{Raw: []byte(raw)}, handle); err == nil || !strings.Contains(err.Error(), "objects[0].index[0].label") {
		t.Errorf("a label that is none: %v", err)
	}
}
