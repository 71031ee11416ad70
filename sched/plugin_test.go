package sched_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
)

func newRuntime(t testing.TB) *host.Runtime {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

func loadZone(t testing.TB, config string) sched.Plugin {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	p, err := sched.Load(t.Context(), newRuntime(t), host.Config{
		Name:   "zone",
		Source: host.File(file),
		Guest:  []byte(config),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func zoneNode(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   name,
		Labels: map[string]string{"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name},
	}}
}

func TestZone(t *testing.T) {
	p := loadZone(t, "")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{"kubewasm.dev/zones": "a"}}}
	state := framework.NewCycleState()
	if _, status := p.(fwk.PreFilterPlugin).PreFilter(t.Context(), state, pod, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	var got []string
	for i, z := range []string{"a", "b"} {
		s := p.(fwk.FilterPlugin).Filter(t.Context(), state, pod, framework.NewNodeInfo(zoneNode(fmt.Sprint("n", i), z)))
		got = append(got, fmt.Sprint(s.Code(), s.Message()))
	}
	if diff := cmp.Diff([]string{"Success", `Unschedulablenode is in zone "b", the Pod wants a`}, got); diff != "" {
		t.Error(diff)
	}
}

func BenchmarkFilter(b *testing.B) {
	p := loadZone(b, "")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Annotations: map[string]string{"kubewasm.dev/zones": "a"}}}
	state := framework.NewCycleState()
	if _, status := p.(fwk.PreFilterPlugin).PreFilter(b.Context(), state, pod, nil); !status.IsSuccess() {
		b.Fatal(status)
	}
	n := framework.NewNodeInfo(zoneNode("n", "a"))
	f := p.(fwk.FilterPlugin)
	b.ReportAllocs()
	for b.Loop() {
		f.Filter(b.Context(), state, pod, n)
	}
}
