package kube137_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// A guest filters a node, as the scheduler would ask it to.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)

	// Compiles it with: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared
	file, err := guestbuild.Build(ctx, "../../examples/sched/zone")
	if err != nil {
		log.Fatal(err)
	}
	plugin, err := kube137.Load(ctx, rt, sched.PluginConfig{Config: host.Config{
		Name:        "zone",
		Module:      host.ModuleConfig{File: file},
		GuestConfig: []byte(`{"defaultZones": ["a"]}`),
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}

	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "b"},
	}}
	state := kube137test.NewCycleState()
	plugin.(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, nil)
	status := plugin.(fwk.FilterPlugin).Filter(ctx, state, pod, kube137test.NewNodeInfo(node))
	fmt.Println(status.Code(), status.Message())
	// Output: Unschedulable node is in zone "b", the Pod wants a
}
