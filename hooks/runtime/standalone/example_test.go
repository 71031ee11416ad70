package standalone_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// A reconciler brings the cgroups of a pod's container to what a plugin decides
// by the pod's annotation: here cgroups of version 2 in a temporary directory.
func Example() {
	ctx := context.Background()
	root, err := os.MkdirTemp("", "cgroup")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	for file, text := range map[string]string{
		"cgroup.controllers":                       "cpu",
		"kubepods/burstable/podu1/4b1f/cpu.weight": "100\n",
		"kubepods/burstable/podu1/4b1f/cpu.max":    "max 100000\n",
		"pods.yaml": `{kind: Pod, metadata: {namespace: shop, name: web, uid: u1, annotations: {kubewasm.dev/cpu: 1500m}}, spec: {containers: [{name: nginx}]},
			status: {qosClass: Burstable, containerStatuses: [{name: nginx, containerID: "containerd://4b1f", state: {running: {}}}]}}`,
	} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}

	plugin, err := guestbuild.Build(ctx, cpuFromAnnotation) // Or a file that is there.
	if err != nil {
		log.Fatal(err)
	}
	engine, err := hooks.NewEngine(ctx, runtime, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "cpu", Module: host.ModuleConfig{File: plugin}}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root})
	if err != nil {
		log.Fatal(err)
	}
	defer applier.Close()
	state := new(cgroup.State)
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: state, Applier: applier})
	if err != nil {
		log.Fatal(err)
	}
	defer enforcer.Close()

	reconciler, err := standalone.New(standalone.Config{Engine: engine, State: state, Enforcer: enforcer, Discovery: standalone.File(filepath.Join(root, "pods.yaml"))})
	if err != nil {
		log.Fatal(err)
	}
	report, err := reconciler.Sync(ctx) // Or Run, until the node goes down.
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range report.Changes {
		fmt.Println(change)
	}
	// Output:
	// kubepods/burstable/podu1/4b1f/cpu.weight: 100 -> 138
	// kubepods/burstable/podu1/4b1f/cpu.max: max 100000 -> 150000 100000
}
