package proxy_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/proxy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// A handler tells the runtime what it can carry: here the quota, and not the
// shares.
func Example() {
	ctx := context.Background()
	root, err := os.MkdirTemp("", "cgroup")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	plugin, err := guestbuild.Build(ctx, "../../../examples/hooks/cpu-from-annotation") // Or a file that is there.
	if err != nil {
		log.Fatal(err)
	}
	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "cpu", Module: host.ModuleConfig{File: plugin}}}}})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root, Version: cgroup.V2})
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

	handler, err := proxy.New(proxy.Config{
		Engine: engine, State: state, Enforcer: enforcer,
		Supports: hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod,
	})
	if err != nil {
		log.Fatal(err)
	}
	carried, err := handler.Handle(ctx, &hookmsg.Request{
		Stage: abi.PreCreateContainer, Level: abi.LevelContainer,
		Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}, Container: hookmsg.ContainerMeta{Name: "nginx"},
		PodAnnotations: map[string]string{"kubewasm.dev/cpu": "1500m"},
	}, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the runtime is told:", carried.Fields())
	fmt.Println("quota:", *carried.Resources.CFSQuotaUS)
	// Output:
	// the runtime is told: cfs_quota_us, cfs_period_us
	// quota: 150000
}
