package cgroup_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// exampleTree makes files like those of a pod's cgroup of version 2.
func exampleTree() (root string) {
	root, err := os.MkdirTemp("", "cgroup")
	if err != nil {
		log.Fatal(err)
	}
	for file, text := range map[string]string{"cgroup.controllers": "cpu", "kubepods/pod1/cpu.weight": "100\n", "kubepods/pod1/cpu.max": "max 100000\n"} {
		path := filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	return root
}

// An Applier writes the files that differ from the resources.
func ExampleApplier() {
	root := exampleTree() // On a node: /sys/fs/cgroup.
	defer os.RemoveAll(root)
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root})
	if err != nil {
		log.Fatal(err)
	}
	defer applier.Close()
	changes, err := applier.Apply(context.Background(), cgroup.Target{
		Cgroup:    "kubepods/pod1",
		Resources: &hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(50_000))},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range changes {
		fmt.Println(change)
	}
	// Output:
	// kubepods/pod1/cpu.weight: 100 -> 59
	// kubepods/pod1/cpu.max: max 100000 -> 50000 100000
}

// An Enforcer repairs what another writer changes.
func ExampleEnforcer() {
	root := exampleTree() // On a node: /sys/fs/cgroup.
	defer os.RemoveAll(root)
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

	ctx := context.Background()
	state.Put(cgroup.Target{Cgroup: "kubepods/pod1", Resources: &hookmsg.Resources{CPUShares: new(int64(512))}})
	fmt.Println("applied:", enforcer.Enforce(ctx).Changes)
	if err := os.WriteFile(filepath.Join(root, "kubepods/pod1/cpu.weight"), []byte("77\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Println("repaired:", enforcer.Enforce(ctx).Drifted)
	// Output:
	// applied: [kubepods/pod1/cpu.weight: 100 -> 59]
	// repaired: [kubepods/pod1/cpu.weight: 77 -> 59]
}
