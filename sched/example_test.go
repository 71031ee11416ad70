package sched_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
)

// A guest filters a node, in a program without the Go interface of any kube-scheduler.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)

	// Compiles it with: GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared
	file, err := guestbuild.Build(ctx, "../examples/sched/zone")
	if err != nil {
		log.Fatal(err)
	}
	plugin, err := sched.Load(ctx, rt, sched.PluginConfig{Config: host.Config{
		Name:        "zone",
		Module:      host.ModuleConfig{File: file},
		GuestConfig: []byte(`{"defaultZones": ["a"]}`),
	}}, framework.Of(nil))
	if err != nil {
		log.Fatal(err)
	}

	cycle := plugin.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	plugin.PreFilter(cycle, nil)
	status := plugin.Filter(cycle, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "b"},
	}}))
	fmt.Println(status.Code(), status.Message())
	// Output: Unschedulable node is in zone "b", the Pod wants a
}
