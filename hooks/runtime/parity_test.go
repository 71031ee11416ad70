// Package parity shows that all ways lead to the same bytes: the same plugin and
// the same pod, through the standalone mode, Koordinator's protocol and NRI.
package parity

import (
	"context"
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

	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/internal/cgroup2vm"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
	"github.com/kubewasm/kubewasm/hooks/runtime/runtimehook"
	pb "github.com/kubewasm/kubewasm/hooks/runtime/runtimehook/runtimehookpb"
	"github.com/kubewasm/kubewasm/hooks/standalone"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

func n(v int64) *int64 { return &v }

// asked is what the kubelet asks for the container.
func asked() *hookpb.Resources {
	return &hookpb.Resources{CPUShares: n(512), CFSQuotaUS: n(150_000), CFSPeriodUS: n(100_000), MemoryLimitBytes: n(1 << 30)}
}

// annotations are the pod's, with a script for the container alone, or for the
// pod as well: a pod that is decided to be tighter than what the kubelet asks for
// its container has no room for it.
func annotations(level hookpb.Level, script string) map[string]string {
	if level == hookpb.LevelPod {
		return map[string]string{"p": script}
	}
	return map[string]string{"p/" + level.String(): script}
}

// A way creates a container of a pod and returns their cgroups and its process.
type way func(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) (pod, container string, pid int)

type pods []standalone.Pod

func (p pods) Pods(context.Context) ([]standalone.Pod, error) { return p, nil }

func byStandalone(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) (pod, container string, pid int) {
	pod = node.Pod(hookpb.QOSBurstable, "u1")
	container, pid = node.Create(pod, "c1", asked())
	r, err := standalone.New(standalone.Config{
		Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout,
		Discovery: pods{{
			Namespace: "shop", Name: "web", UID: "u1", Annotations: annotations, QOSClass: hookpb.QOSBurstable,
			Containers: []standalone.Container{{Name: "nginx", ID: "c1", Resources: asked()}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// What this kernel has no file for is reported.
	if _, err := r.Sync(t.Context()); err != nil && hooks.CauseOf(err) != hooks.CauseUnsupported {
		t.Error(err)
	}
	return pod, container, pid
}

func byRuntimeHook(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) (pod, container string, pid int) {
	socket := filepath.Join(t.TempDir(), "hooks.sock")
	s, err := runtimehook.New(runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout, Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.Run(ctx) })
	defer all.Wait()
	defer cancel()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(socket); err == nil {
			break
		} else if time.Since(start) > 10*time.Second {
			t.Fatal(err)
		}
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := pb.NewRuntimeHookServiceClient(conn)

	pod = node.Pod(hookpb.QOSBurstable, "u1")
	meta := &pb.PodSandboxMetadata{Namespace: "shop", Name: "web", Uid: "u1"}
	if _, err := client.PreRunPodSandboxHook(t.Context(), &pb.PodSandboxHookRequest{PodMeta: meta, Annotations: annotations, CgroupParent: "/" + pod}); err != nil {
		t.Fatal(err)
	}
	a := asked()
	req := &pb.ContainerResourceHookRequest{
		PodMeta: meta, ContainerMeta: &pb.ContainerMetadata{Name: "nginx"}, PodAnnotations: annotations, PodCgroupParent: "/" + pod,
		ContainerResources: &pb.LinuxContainerResources{CpuShares: *a.CPUShares, CpuQuota: *a.CFSQuotaUS, CpuPeriod: *a.CFSPeriodUS, MemoryLimitInBytes: *a.MemoryLimitBytes},
	}
	resp, err := client.PreCreateContainerHook(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.ContainerResources
	given := &hookpb.Resources{CPUShares: &got.CpuShares, CFSQuotaUS: &got.CpuQuota, CFSPeriodUS: &got.CpuPeriod, MemoryLimitBytes: &got.MemoryLimitInBytes, CPUSetCPUs: &got.CpusetCpus, CPUSetMems: &got.CpusetMems, Unified: got.Unified}
	if got.OomScoreAdj != 0 {
		given.OOMScoreAdj = &got.OomScoreAdj
	}
	container, pid = node.Create(pod, "c1", given)
	req.ContainerMeta.Id = "c1"
	if _, err := client.PostStartContainerHook(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	return pod, container, pid
}

func byNRI(t *testing.T, node *runtimetest.Runtime, agent *runtimetest.Agent, annotations map[string]string) (pod, container string, pid int) {
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
	defer peer.Stop()
	<-synced
	plugin, err := nri.New(nri.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout, Socket: socket, Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { plugin.Run(ctx) })
	defer all.Wait()
	defer cancel()
	select {
	case <-synced:
		peer.BlockPluginSync().Unblock()
	case <-time.After(10 * time.Second):
		t.Fatal("the plugin does not connect")
	}

	pod = node.Pod(hookpb.QOSBurstable, "u1")
	sandbox := &api.PodSandbox{Id: "s1", Namespace: "shop", Name: "web", Uid: "u1", Annotations: annotations, Linux: &api.LinuxPodSandbox{CgroupParent: "/" + pod}}
	if err := peer.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sandbox}); err != nil {
		t.Fatal(err)
	}
	a := asked()
	c := &api.Container{Id: "c1", PodSandboxId: "s1", Name: "nginx", Linux: &api.LinuxContainer{
		CgroupsPath: "/" + node.Layout.Container(pod, "c1"),
		Resources: &api.LinuxResources{
			Cpu: &api.LinuxCPU{Shares: api.UInt64(*a.CPUShares), Quota: api.Int64(*a.CFSQuotaUS), Period: api.UInt64(*a.CFSPeriodUS)}, Memory: &api.LinuxMemory{Limit: api.Int64(*a.MemoryLimitBytes)},
		},
	}}
	resp, err := peer.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox, Container: c})
	if err != nil {
		t.Fatal(err)
	}
	given := asked()
	adjusted := resp.GetAdjust().GetLinux()
	if v := adjusted.GetResources().GetCpu().GetShares(); v != nil {
		given.CPUShares = n(int64(v.Value))
	}
	if v := adjusted.GetResources().GetCpu().GetQuota(); v != nil {
		given.CFSQuotaUS = &v.Value
	}
	if v := adjusted.GetResources().GetCpu().GetPeriod(); v != nil {
		given.CFSPeriodUS = n(int64(v.Value))
	}
	if v := adjusted.GetResources().GetMemory().GetLimit(); v != nil {
		given.MemoryLimitBytes = &v.Value
	}
	if v := adjusted.GetOomScoreAdj(); v != nil {
		given.OOMScoreAdj = &v.Value
	}
	cpus, mems := adjusted.GetResources().GetCpu().GetCpus(), adjusted.GetResources().GetCpu().GetMems()
	given.CPUSetCPUs, given.CPUSetMems, given.Unified = &cpus, &mems, adjusted.GetResources().GetUnified()
	container, pid = node.Create(pod, "c1", given)
	if err := peer.StartContainer(t.Context(), &api.StartContainerRequest{Pod: sandbox, Container: c}); err != nil {
		t.Fatal(err)
	}
	return pod, container, pid
}

// The same on cgroup v2.
func TestParityOnCgroup2(t *testing.T) {
	if os.Getenv(cgroup2vm.GuestDir) != "" {
		t.Skip("this is the virtual machine")
	}
	guest, err := guestbuild.Build(t.Context(), "../testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	cgroup2vm.Run(t, ".", "^TestParity$", guest)
}

func TestParity(t *testing.T) {
	agent := runtimetest.NewAgent(t, "../testdata/scripted", nil)
	v2 := runtimetest.NewRuntime(t).Tree.V2
	for _, c := range []struct {
		name, script string
		container    bool // Only for a container.
		v2           bool // Only on cgroup v2.
	}{
		{name: "cpu_shares", script: "cpu_shares 77"},
		{name: "cfs_quota_us", script: "cfs_quota_us 70000"},
		{name: "no quota", script: "cfs_quota_us -1"},
		{name: "cfs_period_us", script: "cfs_period_us 200000"},
		{name: "quota and period", script: "cfs_quota_us 80000\ncfs_period_us 20000"},
		{name: "cpu_burst_us", script: "cfs_quota_us 80000\ncpu_burst_us 1000"},
		{name: "cpu_idle", script: "cpu_idle 1"},
		{name: "cpuset_cpus", script: "cpuset_cpus 1"},
		{name: "cpuset_mems", script: "cpuset_mems 0\ncpu_shares 78"},
		{name: "memory_limit_bytes", script: "memory_limit_bytes 536870913"},
		{name: "memory_min_bytes", script: "memory_min_bytes 4096", v2: true},
		{name: "memory_low_bytes", script: "memory_low_bytes 4096", v2: true},
		{name: "memory_high_bytes", script: "memory_high_bytes 536870912", v2: true},
		{name: "unified", script: `unified io.weight "default 50"`, v2: true},
		{name: "oom_score_adj", script: "oom_score_adj 123", container: true},
		{name: "from what the kubelet asks", script: "divide_quota 2", container: true},
		{name: "much at once", script: "cpu_shares 2\ncfs_quota_us 50000\ncfs_period_us 50000\ncpu_burst_us 500\ncpuset_cpus 0\nmemory_limit_bytes 268435456"},
	} {
		levels := []hookpb.Level{hookpb.LevelContainer, hookpb.LevelPod}
		if c.container {
			levels = levels[:1]
		}
		for _, level := range levels {
			name := c.name + " of a container"
			if level == hookpb.LevelPod {
				name = c.name + " of a pod and its container"
			}
			t.Run(name, func(t *testing.T) {
				if c.v2 && !v2 {
					t.Skip("this node has cgroup v1, without the file")
				}
				take := func(w way, script string) map[string]string {
					agent.Restart(t)
					node := runtimetest.NewRuntime(t)
					pod, container, pid := w(t, node, agent, annotations(level, script))
					files := map[string]string{}
					for prefix, cgroup := range map[string]string{"pod ": pod, "container ": container} {
						for name, text := range node.Files(cgroup) {
							files[prefix+name] = text
						}
					}
					score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
					if err != nil {
						t.Fatal(err)
					}
					files["oom_score_adj"] = strings.TrimSpace(string(score))
					return files
				}
				want := take(byStandalone, c.script)
				if untouched := take(byStandalone, ""); maps.Equal(want, untouched) {
					t.Errorf("the decision changes nothing: %v", want)
				}
				if diff := cmp.Diff(want, take(byRuntimeHook, c.script)); diff != "" {
					t.Errorf("standalone and RuntimeHookService: %s", diff)
				}
				if diff := cmp.Diff(want, take(byNRI, c.script)); diff != "" {
					t.Errorf("standalone and NRI: %s", diff)
				}
			})
		}
	}
}
