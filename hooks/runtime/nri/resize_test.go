package nri_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
)

// kubelet resizes a pod with one container as doPodResizeAction of
// pkg/kubelet/kuberuntime in k8s.io/kubernetes v1.37.1 does: it reads the pod's
// cgroup, tells the runtime, writes the pod's cgroup itself, and then the runtime
// writes the container's; the other way round if the pod shrinks.
type kubelet struct {
	*testing.T
	node    *runtimetest.Runtime
	agent   *runtimetest.Agent
	runtime *peer
	// silent says that the runtime is not told of pods, as by containerd 2.2.
	silent bool
	stop   func()
	// fails says that the write of the pod's cgroup does.
	fails bool

	sandbox        *api.PodSandbox
	nginx          *api.Container
	pod, container string
	// spec is the runtime's of the container, actuated what the kubelet has asked for.
	spec, actuated *hookmsg.Resources
	// listed is what the standalone mode finds.
	mu     sync.Mutex
	listed int64
}

func asks(quota int64) *hookmsg.Resources {
	return &hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: &quota, CFSPeriodUS: new(int64(100_000)), MemoryLimitBytes: new(quota << 12)}
}

func linuxOf(r *hookmsg.Resources) *api.LinuxResources {
	return &api.LinuxResources{
		Cpu:    &api.LinuxCPU{Shares: api.UInt64(*r.CPUShares), Quota: api.Int64(*r.CFSQuotaUS), Period: api.UInt64(*r.CFSPeriodUS)},
		Memory: &api.LinuxMemory{Limit: api.Int64(*r.MemoryLimitBytes)},
	}
}

func newKubelet(t *testing.T, agent *runtimetest.Agent, node *runtimetest.Runtime, script string, quota int64) *kubelet {
	t.Helper()
	agent.Restart(t)
	k := &kubelet{T: t, node: node, agent: agent, listed: quota, actuated: asks(quota)}
	k.runtime = newPeer(t, filepath.Join(t.TempDir(), "nri.sock"))
	t.Cleanup(k.runtime.Stop)
	k.pod = node.Pod(abi.QOSBurstable, "u1")
	k.container = node.Layout.Container(k.pod, "c1")
	node.Update(k.pod, asks(quota))
	k.sandbox, k.nginx = sandbox(k.pod, ""), nginx(k.pod)
	k.sandbox.Annotations = map[string]string{"p": script}
	k.sandbox.Linux.PodResources = linuxOf(asks(quota))
	k.nginx.Linux.Resources = linuxOf(asks(quota))
	k.connect()
	if err := k.runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: k.sandbox}); err != nil {
		t.Fatal(err)
	}
	resp, err := k.runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: k.sandbox, Container: k.nginx})
	if err != nil {
		t.Fatal(err)
	}
	k.spec = asks(quota).Overlay(decided(resp.GetAdjust().GetLinux().GetResources()))
	node.Create(k.pod, "c1", k.spec)
	if err := k.runtime.StartContainer(t.Context(), &api.StartContainerRequest{Pod: k.sandbox, Container: k.nginx}); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kubelet) connect() {
	_, k.stop = run(k.T, k.agent, k.runtime.socket, k.node.Layout)
	k.runtime.wait(k.T)
}

// decided is what a plugin of NRI has changed.
func decided(r *api.LinuxResources) *hookmsg.Resources {
	d := new(hookmsg.Resources)
	if v := r.GetCpu().GetQuota(); v != nil {
		d.CFSQuotaUS = &v.Value
	}
	if v := r.GetCpu().GetPeriod(); v != nil {
		d.CFSPeriodUS = new(int64(v.Value))
	}
	return d
}

func (k *kubelet) quota(cgroup string) int64 {
	k.Helper()
	file := "cpu.cfs_quota_us"
	if k.node.Tree.V2 {
		file = "cpu.max"
	}
	text, _, _ := strings.Cut(k.node.Tree.Read(cgroup, file), " ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

func (k *kubelet) memory(cgroup string) int64 {
	k.Helper()
	file := "memory.limit_in_bytes"
	if k.node.Tree.V2 {
		file = "memory.max"
	}
	n, err := strconv.ParseInt(k.node.Tree.Read(cgroup, file), 10, 64)
	if err != nil {
		k.Fatal(err)
	}
	return n
}

// resize is an in-place resize of the container, and of the pod with it.
func (k *kubelet) resize(quota int64) {
	k.Helper()
	want := asks(quota)
	// What the kubelet reads before it begins.
	current := *want
	current.CFSQuotaUS, current.MemoryLimitBytes = new(k.quota(k.pod)), new(k.memory(k.pod))
	// step sets one of the pod's resources.
	step := func(set func(*hookmsg.Resources)) {
		merged, write := current, new(hookmsg.Resources)
		set(&merged)
		set(write)
		tell := func(r *hookmsg.Resources) {
			if k.silent {
				return
			}
			if _, err := k.runtime.UpdatePodSandbox(k.Context(), &api.UpdatePodSandboxRequest{Pod: k.sandbox, OverheadLinuxResources: &api.LinuxResources{}, LinuxResources: linuxOf(r)}); err != nil {
				k.Fatal(err)
			}
			if err := k.runtime.PostUpdatePodSandbox(k.Context(), &api.PostUpdatePodSandboxRequest{Pod: k.sandbox}); err != nil {
				k.Fatal(err)
			}
		}
		tell(&merged)
		if k.fails {
			tell(&current)
			return
		}
		k.node.Update(k.pod, write)
		current = merged
	}
	limit := func(r *hookmsg.Resources) { r.CFSQuotaUS, r.CFSPeriodUS = want.CFSQuotaUS, want.CFSPeriodUS }
	memory := func(r *hookmsg.Resources) { r.MemoryLimitBytes = want.MemoryLimitBytes }
	shares := func(r *hookmsg.Resources) { r.CPUShares = want.CPUShares }
	update := func(set func(*hookmsg.Resources)) {
		asked := *k.actuated
		set(&asked)
		k.actuated = &asked
		resp, err := k.runtime.UpdateContainer(k.Context(), &api.UpdateContainerRequest{Pod: k.sandbox, Container: k.nginx, LinuxResources: linuxOf(&asked)})
		if err != nil {
			k.Fatal(err)
		}
		k.spec = &asked
		for _, u := range resp.GetUpdate() {
			if u != nil {
				k.spec = k.spec.Overlay(decided(u.GetLinux().GetResources()))
			}
		}
		k.node.Update(k.container, k.spec) // Which fails the test if the kernel refuses it.
		if err := k.runtime.PostUpdateContainer(k.Context(), &api.PostUpdateContainerRequest{Pod: k.sandbox, Container: k.nginx}); err != nil {
			k.Fatal(err)
		}
	}
	for _, r := range []struct {
		name      string
		from, to  int64
		set, more func(*hookmsg.Resources)
	}{{"memory", *current.MemoryLimitBytes, *want.MemoryLimitBytes, memory, nil}, {"cpu", *current.CFSQuotaUS, *want.CFSQuotaUS, limit, shares}} {
		if r.to > r.from {
			step(r.set)
			if r.more != nil {
				step(r.more)
			}
		}
		if k.fails {
			continue
		}
		update(r.set)
		if r.to < r.from {
			step(r.set)
		}
	}
}

// have waits until the pod and its container have their quotas.
func (k *kubelet) have(pod, container int64) {
	k.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		gotPod, gotContainer := k.quota(k.pod), k.quota(k.container)
		desired, _ := k.agent.State.Get(k.pod)
		settled := desired.Resources == nil || desired.Resources.CFSQuotaUS == nil || *desired.Resources.CFSQuotaUS == pod
		if gotPod == pod && gotContainer == container && settled {
			return
		}
		if time.Since(start) > time.Minute {
			k.Fatalf("the pod has the quota %d and the container %d, want %d and %d; the pod is to have %v", gotPod, gotContainer, pod, container, desired.Resources)
		}
	}
}

// Pods lists the pod as the kubelet's endpoint may: some seconds late.
func (k *kubelet) Pods(context.Context) ([]standalone.Pod, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return []standalone.Pod{{
		Namespace: "shop", Name: "web", UID: "u1", QOSClass: abi.QOSBurstable, Annotations: k.sandbox.Annotations, Resources: asks(k.listed),
		Containers: []standalone.Container{{Name: "nginx", ID: "c1", Resources: asks(k.listed)}},
	}}, nil
}

func (k *kubelet) lists(quota int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.listed = quota
}

// reconcile runs the standalone mode until the test ends.
func (k *kubelet) reconcile() {
	k.Helper()
	r, err := standalone.New(standalone.Config{Engine: k.agent.Engine, State: k.agent.State, Enforcer: k.agent.Enforcer, Layout: k.node.Layout, Discovery: k})
	if err != nil {
		k.Fatal(err)
	}
	if _, err := r.Sync(k.Context()); err != nil {
		k.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { r.Run(ctx) })
	k.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// The quotas of a pod and its container, which a plugin divides by two, follow what the
// kubelet asks for, with NRI alone and with the standalone mode beside it.
func TestAPodIsResizedInPlace(t *testing.T) {
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	type step func(*kubelet)
	resize := func(quota int64) step { return func(k *kubelet) { k.Helper(); k.resize(quota) } }
	have := func(pod, container int64) step { return func(k *kubelet) { k.Helper(); k.have(pod, container) } }
	restart := func(k *kubelet) {
		k.stop()
		k.agent.Restart(k.T)
		k.runtime.mu.Lock()
		k.runtime.pods, k.runtime.containers = []*api.PodSandbox{k.sandbox}, []*api.Container{k.nginx}
		k.runtime.mu.Unlock()
		k.connect()
	}
	for _, c := range []struct {
		name  string
		steps []step
		// aloneOnly says that the standalone mode would know better.
		aloneOnly, silent bool
	}{
		{name: "it grows", steps: []step{resize(160_000), have(80_000, 80_000)}},
		{name: "it shrinks", steps: []step{resize(60_000), have(30_000, 30_000)}},
		{name: "it shrinks to less than it has", steps: []step{resize(20_000), have(10_000, 10_000)}},
		// Which the kubelet takes for the quota that the pod has already.
		{name: "it shrinks to what it has", steps: []step{resize(40_000), have(20_000, 20_000), resize(50_000), have(25_000, 25_000)}},
		{name: "it is resized again while the first resize is followed", steps: []step{
			resize(160_000), have(80_000, 80_000), resize(120_000), have(60_000, 60_000), resize(40_000), have(20_000, 20_000),
		}},
		{name: "it grows and shrinks", steps: []step{
			resize(160_000), have(80_000, 80_000), resize(60_000), have(30_000, 30_000), resize(200_000), have(100_000, 100_000), resize(80_000), have(40_000, 40_000),
		}},
		{name: "its cgroup is not written, and it stays as it was", steps: []step{
			func(k *kubelet) { k.fails = true; k.resize(160_000); k.fails = false }, have(40_000, 40_000), resize(120_000), have(60_000, 60_000),
		}},
		{name: "the runtime does not tell of pods", silent: true, steps: []step{resize(160_000), have(80_000, 80_000), resize(240_000), have(120_000, 120_000)}},
		{name: "the agent is restarted before", aloneOnly: true, steps: []step{restart, resize(160_000), have(80_000, 80_000), resize(60_000), have(30_000, 30_000)}},
		{name: "the agent is restarted after", aloneOnly: true, steps: []step{resize(160_000), have(80_000, 80_000), restart, have(80_000, 80_000), resize(200_000), have(100_000, 100_000)}},
	} {
		for _, beside := range []bool{false, true} {
			if beside && c.aloneOnly {
				continue
			}
			name := c.name + ", with NRI alone"
			if beside {
				name = c.name + ", with a list that is late beside it"
			}
			t.Run(name, func(t *testing.T) {
				k := newKubelet(t, agent, runtimetest.NewRuntime(t), "divide_quota 2", 80_000)
				k.silent = c.silent
				k.have(40_000, 40_000)
				if beside {
					k.reconcile()
				}
				for _, s := range c.steps {
					s(k)
				}
			})
		}
	}
	t.Run("a list that is new", func(t *testing.T) {
		k := newKubelet(t, agent, runtimetest.NewRuntime(t), "divide_quota 2", 80_000)
		k.reconcile()
		k.lists(160_000)
		k.resize(160_000)
		k.reconcile()
		k.have(80_000, 80_000)
	})
}

// At its creation NRI tells of a pod the sum of what containers have limits of. What
// the kubelet asks for is in the pod's cgroup: no limit, if one of them has none.
func TestAPodWithoutALimit(t *testing.T) {
	node, agent := runtimetest.NewRuntime(t), runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	runtime := newPeer(t, filepath.Join(t.TempDir(), "nri.sock"))
	defer runtime.Stop()
	run(t, agent, runtime.socket, node.Layout)
	runtime.wait(t)
	for uid, c := range map[string]struct {
		has      *hookmsg.Resources // In the cgroup.
		overhead *api.LinuxResources
		want     string
	}{
		"limited":   {has: asks(80_000), want: "40000"},
		"unlimited": {has: &hookmsg.Resources{CPUShares: new(int64(512))}, want: "-1"},
		"overhead":  {has: asks(100_000), overhead: &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(20_000), Period: api.UInt64(100_000)}}, want: "50000"},
	} {
		cgroup := node.Pod(abi.QOSBurstable, uid)
		node.Update(cgroup, c.has)
		pod := sandbox(cgroup, "")
		pod.Uid, pod.Annotations["p/Pod"] = uid, "divide_quota 2"
		pod.Linux.PodResources, pod.Linux.PodOverhead = linuxOf(asks(80_000)), c.overhead
		if err := runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod}); err != nil {
			t.Fatal(err)
		}
		k := &kubelet{T: t, node: node}
		if got := fmt.Sprint(k.quota(cgroup)); got != c.want {
			t.Errorf("%s: the pod has the quota %s, want %s", uid, got, c.want)
		}
	}
}
