package hooks_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// A plugin decides on a container by its pod's annotation, and the decision is
// applied to a cgroup tree: here one of cgroup v2 in a temporary directory.
func Example() {
	ctx := context.Background()
	root, err := os.MkdirTemp("", "cgroup")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	for file, text := range map[string]string{"cgroup.controllers": "cpu", "kubepods/pod1/4b1f/cpu.weight": "100\n", "kubepods/pod1/4b1f/cpu.max": "max 100000\n"} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}

	// With a directory for compiled modules, they load again in milliseconds.
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: compiled.Config().CacheDir})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	source, err := guest("../examples/hooks/cpu-from-annotation") // Or host.File("cpu-from-annotation.wasm").
	if err != nil {
		log.Fatal(err)
	}
	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "cpu", Module: host.ModuleConfig{Source: source}},
		Levels: []abi.Level{abi.LevelContainer},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root})
	if err != nil {
		log.Fatal(err)
	}
	defer applier.Close()

	req := &hookmsg.Request{
		Stage:          abi.PostStartContainer,
		Level:          abi.LevelContainer,
		Pod:            hookmsg.PodMeta{Namespace: "shop", Name: "web-0"},
		Container:      hookmsg.ContainerMeta{Name: "nginx", ID: "4b1f"},
		PodAnnotations: map[string]string{"kubewasm.dev/cpu": "1500m"},
		CgroupParent:   "kubepods/pod1",
	}
	decision, err := engine.Decide(ctx, req)
	if err != nil {
		log.Fatal(err)
	}
	target, err := cgroup.Layout{}.Of(req)
	if err != nil {
		log.Fatal(err)
	}
	changes, err := applier.Apply(ctx, cgroup.Target{Cgroup: target, Resources: decision.Resources})
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range changes {
		fmt.Println(change)
	}
	// Output:
	// kubepods/pod1/4b1f/cpu.weight: 100 -> 138
	// kubepods/pod1/4b1f/cpu.max: max 100000 -> 150000 100000
}
