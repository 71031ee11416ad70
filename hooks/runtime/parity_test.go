// Package parity shows that all ways lead to the same bytes: the same plugin and
// the same pod, through the standalone mode, Koordinator's protocol and NRI.
package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
	"github.com/kubewasm/kubewasm/hooks/runtime/runtimehook"
	pb "github.com/kubewasm/kubewasm/hooks/runtime/runtimehook/runtimehookpb"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/vm"
)

func n(v int64) *int64 { return &v }

// asked is what the kubelet asks for the container.
func asked() *hookmsg.Resources {
	return &hookmsg.Resources{CPUShares: n(512), CFSQuotaUS: n(150_000), CFSPeriodUS: n(100_000), MemoryLimitBytes: n(1 << 30)}
}

// resized is what it asks for later: less, for which a pod has room that was
// decided to be tighter than what was asked.
func resized() *hookmsg.Resources {
	return &hookmsg.Resources{CPUShares: n(600), CFSQuotaUS: n(40_000), CFSPeriodUS: n(100_000), MemoryLimitBytes: n(3 << 27)}
}

// annotations are the pod's, with a script for the container alone, or for the
// pod as well: a pod that is decided to be tighter than what the kubelet asks for
// its container has no room for it.
func annotations(level abi.Level, script string) map[string]string {
	if level == abi.LevelContainer {
		return map[string]string{"p/Container": script}
	}
	return map[string]string{"p": script}
}

// A way creates a container of a pod. What it starts ends with the test.
type way func(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) created

// created is a container.
type created struct {
	pod, container string // Their cgroups.
	pid            int
	// resize is an update by the kubelet to what resized says.
	resize func()
}

type pods []standalone.Pod

func (p pods) Pods(context.Context) ([]standalone.Pod, error) { return p, nil }

func byStandalone(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) (c created) {
	c.pod = node.Pod(abi.QOSBurstable, "u1")
	c.container, c.pid = node.Create(c.pod, "c1", asked())
	list := pods{{
		Namespace: "shop", Name: "web", UID: "u1", Annotations: annotations, QOSClass: abi.QOSBurstable,
		Containers: []standalone.Container{{Name: "nginx", ID: "c1", Resources: asked()}},
	}}
	r, err := standalone.New(standalone.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout, Discovery: list})
	if err != nil {
		t.Fatal(err)
	}
	sync := func() {
		// What this kernel has no file for is reported.
		if _, err := r.Sync(t.Context()); err != nil && cgroup.CauseOf(err) != "unsupported" {
			t.Error(err)
		}
	}
	sync()
	c.resize = func() {
		list[0].Containers[0].Resources = resized()
		node.Update(c.container, resized())
		sync()
	}
	return c
}

// background runs f until the test ends.
func background(t *testing.T, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { f(ctx) })
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

func byRuntimeHook(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) (c created) {
	socket := filepath.Join(t.TempDir(), "hooks.sock")
	s, err := runtimehook.New(runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	background(t, s.Run)
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		} else if time.Since(start) > time.Minute {
			t.Fatal(err)
		}
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := pb.NewRuntimeHookServiceClient(conn)

	c.pod = node.Pod(abi.QOSBurstable, "u1")
	meta := &pb.PodSandboxMetadata{Namespace: "shop", Name: "web", Uid: "u1"}
	if _, err := client.PreRunPodSandboxHook(t.Context(), &pb.PodSandboxHookRequest{PodMeta: meta, Annotations: annotations, CgroupParent: "/" + c.pod}); err != nil {
		t.Fatal(err)
	}
	request := func(id string, r *hookmsg.Resources) *pb.ContainerResourceHookRequest {
		return &pb.ContainerResourceHookRequest{
			PodMeta: meta, ContainerMeta: &pb.ContainerMetadata{Name: "nginx", Id: id}, PodAnnotations: annotations, PodCgroupParent: "/" + c.pod,
			ContainerResources: &pb.LinuxContainerResources{CpuShares: *r.CPUShares, CpuQuota: *r.CFSQuotaUS, CpuPeriod: *r.CFSPeriodUS, MemoryLimitInBytes: *r.MemoryLimitBytes},
		}
	}
	// given is what the runtime is given instead of what was asked.
	given := func(resp *pb.ContainerResourceHookResponse, err error) *hookmsg.Resources {
		if err != nil {
			t.Fatal(err)
		}
		got := resp.ContainerResources
		r := &hookmsg.Resources{CPUShares: &got.CpuShares, CFSQuotaUS: &got.CpuQuota, CFSPeriodUS: &got.CpuPeriod, MemoryLimitBytes: &got.MemoryLimitInBytes, CPUSetCPUs: &got.CpusetCpus, CPUSetMems: &got.CpusetMems, Unified: got.Unified}
		if got.OomScoreAdj != 0 {
			r.OOMScoreAdj = &got.OomScoreAdj
		}
		return r
	}
	c.container, c.pid = node.Create(c.pod, "c1", given(client.PreCreateContainerHook(t.Context(), request("", asked()))))
	if _, err := client.PostStartContainerHook(t.Context(), request("c1", asked())); err != nil {
		t.Fatal(err)
	}
	c.resize = func() {
		node.Update(c.container, given(client.PreUpdateContainerResourcesHook(t.Context(), request("c1", resized()))))
	}
	return c
}

func byNRI(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) (c created) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	synced := make(chan bool, 10)
	peer, err := adaptation.New("test", "v1", func(ctx context.Context, sync adaptation.SyncCB) error {
		_, err := sync(ctx, nil, nil)
		synced <- true
		return err
	}, func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(t.TempDir()), adaptation.WithPluginConfigPath(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if err := peer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peer.Stop)
	<-synced
	plugin, err := nri.New(nri.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout, Socket: socket, Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	background(t, plugin.Run)
	select {
	case <-synced:
		peer.BlockPluginSync().Unblock()
	case <-time.After(time.Minute):
		t.Fatal("the plugin does not connect")
	}

	c.pod = node.Pod(abi.QOSBurstable, "u1")
	sandbox := &api.PodSandbox{Id: "s1", Namespace: "shop", Name: "web", Uid: "u1", Annotations: annotations, Linux: &api.LinuxPodSandbox{CgroupParent: "/" + c.pod}}
	if err := peer.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Fatal(err)
	}
	linux := func(r *hookmsg.Resources) *api.LinuxResources {
		return &api.LinuxResources{
			Cpu:    &api.LinuxCPU{Shares: api.UInt64(*r.CPUShares), Quota: api.Int64(*r.CFSQuotaUS), Period: api.UInt64(*r.CFSPeriodUS)},
			Memory: &api.LinuxMemory{Limit: api.Int64(*r.MemoryLimitBytes)},
		}
	}
	// given is what was asked with what the plugin has changed.
	given := func(r *hookmsg.Resources, changed *api.LinuxResources) *hookmsg.Resources {
		cpu := changed.GetCpu()
		if v := cpu.GetShares(); v != nil {
			r.CPUShares = n(int64(v.Value))
		}
		if v := cpu.GetQuota(); v != nil {
			r.CFSQuotaUS = &v.Value
		}
		if v := cpu.GetPeriod(); v != nil {
			r.CFSPeriodUS = n(int64(v.Value))
		}
		if v := changed.GetMemory().GetLimit(); v != nil {
			r.MemoryLimitBytes = &v.Value
		}
		cpus, mems := cpu.GetCpus(), cpu.GetMems()
		r.CPUSetCPUs, r.CPUSetMems, r.Unified = &cpus, &mems, changed.GetUnified()
		return r
	}
	nginx := &api.Container{Id: "c1", PodSandboxId: "s1", Name: "nginx", Linux: &api.LinuxContainer{
		CgroupsPath: "/" + node.Layout.Container(c.pod, "c1"), Resources: linux(asked()),
	}}
	resp, err := peer.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox, Container: nginx})
	if err != nil {
		t.Fatal(err)
	}
	resources := given(asked(), resp.GetAdjust().GetLinux().GetResources())
	if v := resp.GetAdjust().GetLinux().GetOomScoreAdj(); v != nil {
		resources.OOMScoreAdj = &v.Value
	}
	c.container, c.pid = node.Create(c.pod, "c1", resources)
	if err := peer.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sandbox, Container: nginx}); err != nil {
		t.Fatal(err)
	}
	c.resize = func() {
		resp, err := peer.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: sandbox, Container: nginx, LinuxResources: linux(resized())})
		if err != nil {
			t.Fatal(err)
		}
		resources := resized()
		for _, u := range resp.Update {
			if u.GetContainerId() == "c1" { // NRI has nil for nothing.
				resources = given(resources, u.GetLinux().GetResources())
			}
		}
		node.Update(c.container, resources)
	}
	return c
}

// The same on cgroup v2.
func TestParityOnCgroup2(t *testing.T) {
	if os.Getenv(vm.GuestDir) != "" {
		t.Skip("this is the virtual machine")
	}
	guest, err := guestbuild.Build(t.Context(), "../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	vm.Run(t, ".", "^TestParity$", guest)
}

// cases are decisions about each field. Each is one about containers, about pods
// with their containers, and about QoS classes with all below.
var cases = []struct {
	name, script string
	from         abi.Level // The widest that may decide so.
	v2           bool      // Only on cgroup v2.
	// created says that nothing is asked for later: a runtime cannot write the
	// shares of an idle cgroup, which the kernel refuses.
	created bool
}{
	{name: "cpu_shares", script: "cpu_shares 77"},
	{name: "cfs_quota_us", script: "cfs_quota_us 70000"},
	{name: "no quota", script: "cfs_quota_us -1"},
	{name: "cfs_period_us", script: "cfs_period_us 200000"},
	{name: "quota and period", script: "cfs_quota_us 80000\ncfs_period_us 20000"},
	{name: "cpu_burst_us", script: "cfs_quota_us 80000\ncpu_burst_us 1000"},
	{name: "cpu_idle", script: "cpu_idle 1", from: abi.LevelPod, created: true},
	{name: "cpuset_cpus", script: "cpuset_cpus 1"},
	{name: "cpuset_mems", script: "cpuset_mems 0\ncpu_shares 78"},
	{name: "memory_limit_bytes", script: "memory_limit_bytes 536870913"},
	{name: "memory_min_bytes", script: "memory_min_bytes 4096", v2: true},
	{name: "memory_low_bytes", script: "memory_low_bytes 4096", v2: true},
	{name: "memory_high_bytes", script: "memory_high_bytes 536870912", v2: true},
	{name: "unified", script: `unified io.weight "default 50"`, v2: true},
	{name: "oom_score_adj", script: "oom_score_adj 123", from: abi.LevelContainer},
	{name: "from what the kubelet asks", script: "divide_quota 2", from: abi.LevelContainer},
	{name: "much at once", script: "cpu_shares 2\ncfs_quota_us 50000\ncfs_period_us 50000\ncpu_burst_us 500\ncpuset_cpus 0\nmemory_limit_bytes 268435456"},
}

// classDir is the directory of a case in which the cgroups of classes lie, by
// which the guest knows the script for them.
func classDir(name string) string { return strings.ReplaceAll(name, " ", "-") }

// look returns what the files of the container's process and of the cgroups from
// the class on have. What a proxy writes of classes it writes beside its answers:
// that is waited for, as long as it is not what is wanted.
func look(t *testing.T, node *runtimetest.Runtime, c created, want map[string]string, wait bool) (files map[string]string) {
	t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		files = map[string]string{}
		for prefix, cgroup := range map[string]string{
			"kubepods ": node.Layout.QOS(abi.QOSGuaranteed), "class ": node.Layout.QOS(abi.QOSBurstable), "pod ": c.pod, "container ": c.container,
		} {
			for name, text := range node.Files(cgroup) {
				files[prefix+name] = text
			}
		}
		score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", c.pid))
		if err != nil {
			t.Fatal(err)
		}
		files["oom_score_adj"] = strings.TrimSpace(string(score))
		if !wait || want == nil || maps.Equal(files, want) || time.Since(start) > time.Minute {
			return files
		}
	}
}

func TestParity(t *testing.T) {
	qos := map[string]string{}
	for _, c := range cases {
		qos[classDir(c.name)] = c.script
	}
	config, err := json.Marshal(map[string]any{"qos": qos})
	if err != nil {
		t.Fatal(err)
	}
	agent := runtimetest.NewAgent(t, "../testdata/scripted", func(p *hooks.PluginConfig) { p.GuestConfig = config })
	v2 := runtimetest.NewRuntime(t).Tree.V2
	for _, c := range cases {
		for level, what := range map[abi.Level]string{
			abi.LevelContainer: " of a container", abi.LevelPod: " of a pod and its container", abi.LevelQOS: " of a class, a pod and its container",
		} {
			if level < c.from {
				continue
			}
			t.Run(c.name+what, func(t *testing.T) {
				if c.v2 && !v2 {
					t.Skip("this node has cgroup v1, without the file")
				}
				// take returns what the files have after the creation and after the
				// update.
				take := func(w way, script string, want [2]map[string]string) (got [2]map[string]string) {
					agent.Restart(t)
					node := runtimetest.NewRuntime(t)
					if level == abi.LevelQOS {
						dir := "undecided"
						if script != "" {
							dir = classDir(c.name)
						}
						node.Layout.Root += "/" + dir
					}
					created := w(t, node, agent, annotations(level, script))
					got[0] = look(t, node, created, want[0], level == abi.LevelQOS)
					if c.created {
						return got
					}
					created.resize()
					got[1] = look(t, node, created, want[1], level == abi.LevelQOS)
					return got
				}
				want := take(byStandalone, c.script, [2]map[string]string{})
				for i, untouched := range take(byStandalone, "", [2]map[string]string{}) {
					if untouched != nil && maps.Equal(want[i], untouched) {
						t.Errorf("the decision changes nothing: %v", untouched)
					}
				}
				if diff := cmp.Diff(want, take(byRuntimeHook, c.script, want)); diff != "" {
					t.Errorf("standalone and RuntimeHookService: %s", diff)
				}
				if diff := cmp.Diff(want, take(byNRI, c.script, want)); diff != "" {
					t.Errorf("standalone and NRI: %s", diff)
				}
			})
		}
	}
}
