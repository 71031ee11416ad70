// Package runtimetest is shared by the tests of the transports. It has an agent with a guest that
// is scripted by a pod's annotation, and a container runtime that manages cgroups as runc does,
// with runc's package.
package runtimetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/vm"
)

// Scripted is the guest, from a package two directories below hooks.
const Scripted = "../../testdata/scripted"

// Grants are the grants needed by the scripts of the tests.
var Grants = hooks.Grants{
	Env: []string{"A", "B", "C"}, Annotations: []string{"note"}, Devices: []string{"/dev/null", "/dev/kmsg"},
	Mounts: []hooks.MountGrant{{Source: "/usr", Destination: "/a"}, {Source: "/usr", Destination: "/mnt"}},
}

// Agent holds the parts shared by the running modes.
type Agent struct {
	// Runtime loads the plugins.
	Runtime  *host.Runtime
	Engine   *hooks.Engine
	State    *cgroup.State
	Enforcer *cgroup.Enforcer
}

// NewAgent loads the guest in dir as the plugin "p".
func NewAgent(t testing.TB, dir string, change func(*hooks.PluginConfig)) *Agent {
	t.Helper()
	file := filepath.Join(os.Getenv(vm.GuestDir), filepath.Base(dir)+".wasm")
	if os.Getenv(vm.GuestDir) == "" {
		var err error
		if file, err = guestbuild.Build(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(cache, "kubewasm", "runtimetest")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	plugin := hooks.PluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{File: file}}, DecisionGrants: Grants}
	if change != nil {
		change(&plugin)
	}
	engine, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{plugin}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	a := &Agent{Runtime: rt, Engine: engine}
	a.Restart(t)
	return a
}

// Restart empties the state, as a restart of the process does.
func (a *Agent) Restart(t testing.TB) {
	t.Helper()
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: cgrouptest.Mount})
	if err != nil {
		t.Fatal(err)
	}
	a.State = new(cgroup.State)
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: a.State, Applier: applier})
	if err != nil {
		t.Fatal(err)
	}
	a.Enforcer = enforcer
	t.Cleanup(func() {
		enforcer.Close()
		applier.Close()
	})
}

// Runtime creates containers.
type Runtime struct {
	t    testing.TB
	Tree *cgrouptest.Tree
	// Layout is the layout of the node.
	Layout cgroup.Layout
}

// NewRuntime creates a subtree of the kernel's cgroups for a node.
func NewRuntime(t testing.TB) *Runtime {
	t.Helper()
	r := &Runtime{t: t, Tree: cgrouptest.New(t)}
	r.Layout = cgroup.Layout{Root: r.Tree.Root}
	return r
}

// Pod creates the cgroup of a pod, in place of the kubelet.
func (r *Runtime) Pod(class abi.QOSClass, uid string) string {
	r.t.Helper()
	cgroup := r.Layout.Pod(class, uid)
	r.Tree.Make(cgroup[len(r.Tree.Root)+1:])
	return cgroup
}

// Create creates the cgroup of a container with a process in it, and gives them their resources.
func (r *Runtime) Create(pod, id string, resources *hookmsg.Resources) (cgroup string, pid int) {
	r.t.Helper()
	cgroup = r.Layout.Container(pod, id)
	r.Tree.Make(cgroup[len(r.Tree.Root)+1:])
	pid = r.Tree.Process(cgroup)
	r.Update(cgroup, resources)
	if resources.OOMScoreAdj != nil {
		file := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
		if err := os.WriteFile(file, []byte(strconv.FormatInt(*resources.OOMScoreAdj, 10)), 0); err != nil {
			r.t.Fatal(err)
		}
	}
	return cgroup, pid
}

// Update gives a container resources, as runc does.
func (r *Runtime) Update(cgroup string, from *hookmsg.Resources) {
	r.t.Helper()
	paths := map[string]string{}
	if r.Tree.V2 {
		paths[""] = filepath.Join(cgrouptest.Mount, cgroup)
	} else {
		for _, c := range []string{"cpu", "cpuset", "memory"} {
			paths[c] = filepath.Join(cgrouptest.Mount, c, cgroup)
		}
	}
	resources := &cgroups.Resources{SkipDevices: true, SkipFreezeOnSet: true}
	if len(from.Unified) != 0 {
		resources.Unified = from.Unified
	}
	number := func(v *int64) int64 {
		if v == nil {
			return 0
		}
		return *v
	}
	resources.CpuShares = uint64(number(from.CPUShares))
	if r.Tree.V2 {
		resources.CpuWeight = cgroups.ConvertCPUSharesToCgroupV2Value(resources.CpuShares)
	}
	resources.CpuQuota, resources.CpuPeriod = number(from.CFSQuotaUS), uint64(number(from.CFSPeriodUS))
	resources.Memory = number(from.MemoryLimitBytes)
	if from.CPUSetCPUs != nil {
		resources.CpusetCpus = *from.CPUSetCPUs
	}
	if from.CPUSetMems != nil {
		resources.CpusetMems = *from.CPUSetMems
	}
	m, err := manager.NewWithPaths(&cgroups.Cgroup{Path: "/" + cgroup, Resources: resources}, paths)
	if err == nil {
		err = m.Set(resources)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// Files returns the contents of a cgroup's files, by the names of the files.
func (r *Runtime) Files(cgroup string) map[string]string {
	r.t.Helper()
	names := []string{"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.idle", "cpuset.cpus", "cpuset.mems", "memory.limit_in_bytes"}
	if r.Tree.V2 {
		names = []string{"cpu.weight", "cpu.max", "cpu.max.burst", "cpu.idle", "cpuset.cpus", "cpuset.mems", "memory.max", "memory.high", "memory.low", "memory.min", "io.weight", "pids.max"}
	}
	files := map[string]string{}
	for _, name := range names {
		if r.Tree.Has(cgroup, name) {
			files[name] = r.Tree.Read(cgroup, name)
		}
	}
	return files
}
