package runtimehook_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/runtimehook"
	pb "github.com/kubewasm/kubewasm/hooks/runtime/runtimehook/runtimehookpb"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// koordinator is a node with Koordinator's runtime proxy between the kubelet and the
// runtime: what it keeps of containers, hands to a server of hooks and takes from its
// answers is what pkg/runtimeproxy/resexecutor/cri of koordinator-sh/koordinator does.
type koordinator struct {
	*testing.T
	node   *runtimetest.Runtime
	agent  *runtimetest.Agent
	policy host.FailurePolicy
	client pb.RuntimeHookServiceClient
	stop   func()
	pod    string
	script string
	// kept are the proxy's containers, specs the runtime's, by identifier; names are
	// those of the containers.
	kept  map[string]*pb.ContainerResourceHookRequest
	specs map[string]*hookmsg.Resources
	names map[string]string
}

func newKoordinator(t *testing.T, agent *runtimetest.Agent, script string, policy host.FailurePolicy) *koordinator {
	t.Helper()
	agent.Restart(t)
	k := &koordinator{
		T: t, node: runtimetest.NewRuntime(t), agent: agent, policy: policy, script: script,
		kept: map[string]*pb.ContainerResourceHookRequest{}, specs: map[string]*hookmsg.Resources{}, names: map[string]string{},
	}
	k.pod = k.node.Pod(abi.QOSBurstable, "u1")
	k.serve()
	return k
}

func newAgent(t *testing.T) *runtimetest.Agent {
	t.Helper()
	return runtimetest.NewAgent(t, runtimetest.Scripted, func(p *hooks.PluginConfig) {
		p.DecisionGrants.Annotations = slices.Concat(p.DecisionGrants.Annotations, []string{"sees"})
	})
}

func (k *koordinator) serve() {
	k.client, k.stop = serve(k.T, runtimehook.Config{
		Engine: k.agent.Engine, State: k.agent.State, Enforcer: k.agent.Enforcer, Layout: k.node.Layout, FailurePolicy: k.policy,
	})
}

// restartAgent begins with an empty state, as a new process does.
func (k *koordinator) restartAgent() {
	k.stop()
	k.agent.Restart(k.T)
	k.serve()
}

// restartProxy leaves what the proxy's fail-over finds out from the runtime: no cgroup
// parent, no resources and no environment.
func (k *koordinator) restartProxy() {
	for id, c := range k.kept {
		k.kept[id] = &pb.ContainerResourceHookRequest{
			PodMeta: c.PodMeta, ContainerMeta: &pb.ContainerMetadata{Name: c.ContainerMeta.Name}, ContainerAnnotations: c.ContainerAnnotations,
			PodAnnotations: c.PodAnnotations, PodLabels: c.PodLabels,
		}
		k.kept[id].ContainerMeta.Id = id
	}
}

// merge is the proxy's: what an update or an answer leaves out stays.
func merge(into, from *pb.LinuxContainerResources) {
	if into == nil || from == nil {
		return
	}
	for _, f := range []struct{ into, from *int64 }{
		{&into.CpuPeriod, &from.CpuPeriod}, {&into.CpuQuota, &from.CpuQuota}, {&into.CpuShares, &from.CpuShares}, {&into.MemoryLimitInBytes, &from.MemoryLimitInBytes},
	} {
		if *f.from > 0 {
			*f.into = *f.from
		}
	}
	if from.CpusetCpus != "" {
		into.CpusetCpus = from.CpusetCpus
	}
}

// run has the runtime make of a container's specification what it is asked for.
func (k *koordinator) run(id string, r *pb.LinuxContainerResources) {
	k.Helper()
	more := new(hookmsg.Resources)
	for into, v := range map[**int64]int64{&more.CPUShares: r.GetCpuShares(), &more.CFSQuotaUS: r.GetCpuQuota(), &more.CFSPeriodUS: r.GetCpuPeriod(), &more.MemoryLimitBytes: r.GetMemoryLimitInBytes()} {
		if v != 0 {
			*into = &v
		}
	}
	if cpus := r.GetCpusetCpus(); cpus != "" {
		more.CPUSetCPUs = &cpus
	}
	spec, there := k.specs[id]
	k.specs[id] = spec.Overlay(more)
	if !there {
		k.node.Create(k.pod, id, k.specs[id])
		return
	}
	k.node.Update(k.node.Layout.Container(k.pod, id), k.specs[id])
}

// create is the kubelet's CreateContainer and StartContainer.
func (k *koordinator) create(name, id string, asked *pb.LinuxContainerResources) {
	k.Helper()
	req := &pb.ContainerResourceHookRequest{
		PodMeta: meta, ContainerMeta: &pb.ContainerMetadata{Name: name}, PodAnnotations: map[string]string{"p/Container": k.script},
		PodCgroupParent: "/" + k.pod, ContainerResources: proto.Clone(asked).(*pb.LinuxContainerResources), ContainerEnvs: map[string]string{"A": "1"},
	}
	resp, err := k.client.PreCreateContainerHook(k.Context(), req)
	if err != nil {
		k.Fatal(err)
	}
	merge(req.ContainerResources, resp.ContainerResources)
	k.run(id, req.ContainerResources)
	req.ContainerMeta.Id = id
	k.kept[id], k.names[id] = req, name
	k.start(id)
}

func (k *koordinator) start(id string) {
	k.Helper()
	for _, hook := range []func(context.Context, *pb.ContainerResourceHookRequest) error{
		func(ctx context.Context, r *pb.ContainerResourceHookRequest) error {
			_, err := k.client.PreStartContainerHook(ctx, r)
			return err
		},
		func(ctx context.Context, r *pb.ContainerResourceHookRequest) error {
			_, err := k.client.PostStartContainerHook(ctx, r)
			return err
		},
	} {
		if err := hook(k.Context(), k.kept[id]); err != nil {
			k.Errorf("the start of %s is refused: %v", id, err)
		}
	}
}

// update is the kubelet's UpdateContainerResources.
func (k *koordinator) update(id string, asked *pb.LinuxContainerResources) {
	k.Helper()
	req, passed := k.kept[id], proto.Clone(asked).(*pb.LinuxContainerResources)
	merge(req.ContainerResources, asked)
	resp, err := k.client.PreUpdateContainerResourcesHook(k.Context(), req)
	switch {
	case err != nil && k.policy == host.Fail:
		k.Errorf("the update of %s is refused: %v", id, err)
		return
	case err == nil:
		// What it has not kept, it does not change.
		merge(req.ContainerResources, resp.ContainerResources)
		if req.ContainerResources != nil {
			passed = proto.Clone(req.ContainerResources).(*pb.LinuxContainerResources)
		}
	}
	k.run(id, passed)
}

func (k *koordinator) stopContainer(id string) {
	k.Helper()
	if _, err := k.client.PostStopContainerHook(k.Context(), k.kept[id]); err != nil {
		k.Error(err)
	}
	delete(k.kept, id)
}

// has waits until a container has a quota, which is to be what was decided as well.
func (k *koordinator) has(id, quota string) {
	k.Helper()
	cgroup := k.node.Layout.Container(k.pod, id)
	file, want := "cpu.cfs_quota_us", quota
	if k.node.Tree.V2 {
		file, want = "cpu.max", quota+" 100000"
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		got := k.node.Tree.Read(cgroup, file)
		if got == want {
			break
		}
		if time.Since(start) > time.Minute {
			k.Fatalf("%s has the quota %s, want %s", id, got, want)
		}
	}
	if d, ok := k.agent.State.Get(cgroup); ok && d.Resources.CFSQuotaUS != nil && fmt.Sprint(*d.Resources.CFSQuotaUS) != quota {
		k.Fatalf("%s is to have the quota %d, want %s", id, *d.Resources.CFSQuotaUS, quota)
	}
}

func cpu(quota int64) *pb.LinuxContainerResources {
	return &pb.LinuxContainerResources{CpuQuota: quota, CpuPeriod: 100_000, CpuShares: 512}
}

// What the CPU manager of the kubelet asks for.
func pin(cpus string) *pb.LinuxContainerResources {
	return &pb.LinuxContainerResources{CpusetCpus: cpus}
}

// A plugin divides a quota by two. Whatever happens to a container, and whoever is
// restarted in between, it is divided once.
func TestAQuotaIsDividedOnce(t *testing.T) {
	type step func(*koordinator)
	update := func(r *pb.LinuxContainerResources) step { return func(k *koordinator) { k.update("c1", r) } }
	has := func(quota string) step { return func(k *koordinator) { k.has("c1", quota) } }
	// enforced is an update of which an event is seen before anything else looks.
	enforced := func(r *pb.LinuxContainerResources) step {
		return func(k *koordinator) {
			k.update("c1", r)
			k.agent.Enforcer.Enforce(k.Context())
		}
	}
	restart, proxy := step((*koordinator).restartAgent), step((*koordinator).restartProxy)
	// discover is what the standalone mode learns from the kubelet.
	discover := func(quota int64) step {
		return func(k *koordinator) {
			k.Helper()
			r, err := standalone.New(standalone.Config{
				Engine: k.agent.Engine, State: k.agent.State, Enforcer: k.agent.Enforcer, Layout: k.node.Layout, Discovery: pods{{
					Namespace: "shop", Name: "web", UID: "u1", QOSClass: abi.QOSBurstable, Annotations: map[string]string{"p/Container": k.script},
					Containers: []standalone.Container{{Name: "nginx", ID: "c1", Resources: &hookmsg.Resources{CFSQuotaUS: &quota, CFSPeriodUS: new(int64(100_000))}}},
				}},
			})
			if err != nil {
				k.Fatal(err)
			}
			if _, err := r.Sync(k.Context()); err != nil {
				k.Fatal(err)
			}
		}
	}
	agent := newAgent(t)
	for name, steps := range map[string][]step{
		"the CPU manager pins it":                                   {update(pin("0")), has("40000"), update(pin("0-1")), has("40000"), update(pin("0")), has("40000")},
		"it is resized":                                             {update(cpu(60_000)), has("30000"), update(pin("0")), has("30000")},
		"it is resized and back":                                    {update(cpu(60_000)), has("30000"), update(cpu(80_000)), has("40000"), update(pin("0")), has("40000")},
		"it is resized to what it has":                              {update(cpu(40_000)), has("40000"), update(pin("0")), has("40000"), update(cpu(50_000)), has("25000")},
		"it is resized to what it has, as is listed":                {discover(80_000), update(cpu(40_000)), discover(40_000), has("20000"), update(pin("0")), has("20000")},
		"it is started again":                                       {func(k *koordinator) { k.start("c1") }, has("40000"), update(pin("0")), has("40000")},
		"the agent is restarted":                                    {restart, has("40000"), update(pin("0")), has("40000"), update(pin("0-1")), has("40000")},
		"the agent is restarted before a resize":                    {restart, update(cpu(60_000)), has("30000"), update(pin("0")), has("30000"), update(cpu(80_000)), has("40000")},
		"the agent is restarted after a resize":                     {update(cpu(60_000)), restart, update(pin("0")), has("30000"), update(cpu(80_000)), has("40000")},
		"the agent is restarted each time":                          {restart, update(pin("0")), restart, update(pin("0-1")), has("40000"), restart, update(cpu(60_000)), restart, update(pin("0")), has("30000")},
		"the agent is restarted and lists what runs":                {restart, discover(80_000), has("40000"), update(pin("0")), has("40000"), update(cpu(60_000)), has("30000")},
		"the proxy is restarted":                                    {proxy, update(pin("0")), has("40000"), func(k *koordinator) { k.start("c1") }, has("40000")},
		"the proxy is restarted before a resize":                    {proxy, update(cpu(60_000)), has("30000"), update(pin("0")), has("30000"), update(cpu(80_000)), has("40000")},
		"the proxy is restarted after a resize":                     {update(cpu(60_000)), proxy, update(pin("0")), has("30000"), update(cpu(60_000)), has("30000")},
		"the proxy is restarted before two resizes":                 {proxy, update(cpu(60_000)), update(cpu(50_000)), has("25000")},
		"the proxy is restarted, and a resize is followed by a pin": {proxy, update(cpu(60_000)), update(pin("0")), has("30000"), update(cpu(50_000)), update(pin("0-1")), has("25000")},
		"the proxy is restarted beside a node that is enforced":     {proxy, enforced(cpu(60_000)), has("30000"), enforced(cpu(50_000)), has("25000")},
		"both are restarted":                                        {proxy, restart, update(pin("0")), has("40000"), discover(80_000), has("40000"), update(pin("0-1")), has("40000")},
		"both are restarted before a resize":                        {proxy, restart, update(cpu(60_000)), has("30000"), restart, update(pin("0")), has("30000")},
		"both are restarted and what runs is listed":                {restart, proxy, discover(80_000), update(cpu(80_000)), has("40000")},
		"another container of its name takes its place": {func(k *koordinator) {
			k.create("nginx", "c2", cpu(60_000))
			k.stopContainer("c1") // Late.
			k.update("c2", pin("0"))
			k.has("c2", "30000")
			k.update("c2", cpu(90_000))
			k.has("c2", "45000")
		}},
	} {
		for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
			t.Run(name+", "+string(policy), func(t *testing.T) {
				k := newKoordinator(t, agent, "divide_quota 2", policy)
				k.create("nginx", "c1", cpu(80_000))
				k.has("c1", "40000")
				for _, s := range steps {
					s(k)
				}
			})
		}
	}
}

type pods []standalone.Pod

func (p pods) Pods(context.Context) ([]standalone.Pod, error) { return slices.Clone(p), nil }

// A proxy that was restarted has lost the cgroup parent and the environment: the node
// has the one and the state the other. Nothing is refused, and nothing is decided
// otherwise than before.
func TestAProxyThatHasForgotten(t *testing.T) {
	agent := newAgent(t)
	for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
		t.Run(string(policy), func(t *testing.T) {
			k := newKoordinator(t, agent, "sees\ncpu_burst_us 500\ndivide_quota 2", policy)
			k.create("nginx", "c1", cpu(80_000))
			cgroup := k.node.Layout.Container(k.pod, "c1")
			sees := func() string {
				t.Helper()
				resp, err := k.client.PreUpdateContainerResourcesHook(t.Context(), k.kept["c1"])
				if err != nil {
					t.Fatal(err)
				}
				return resp.ContainerAnnotations["sees"]
			}
			before := sees()
			k.restartProxy()
			if after := sees(); after != before || after != "web nginx 1 "+k.pod {
				t.Errorf("the plugin sees %q, before %q", after, before)
			}
			k.node.Tree.Write(cgroup, burstFile(k), "0")
			k.start("c1")
			if got := k.node.Tree.Read(cgroup, burstFile(k)); got != "500" {
				t.Errorf("the burst is %s", got)
			}
			k.stopContainer("c1")
			if d, ok := k.agent.State.Get(cgroup); ok {
				t.Errorf("after its end the state has %v", d)
			}
		})
	}
	t.Run("a pod that the node does not have", func(t *testing.T) {
		k := newKoordinator(t, agent, "divide_quota 2", host.Fail)
		k.create("nginx", "c1", cpu(80_000))
		k.restartProxy()
		before := maps.Clone(k.node.Files(k.pod))
		for _, uid := range []string{"", "u2", "../podu1", "u1/c1"} {
			req := proto.Clone(k.kept["c1"]).(*pb.ContainerResourceHookRequest)
			req.PodMeta.Uid = uid
			if _, err := k.client.PreUpdateContainerResourcesHook(t.Context(), req); err != nil {
				t.Errorf("%q: %v", uid, err)
			}
			if d := k.agent.State.Pod(uid); len(d) != 0 {
				t.Errorf("%q: the state has %v", uid, d)
			}
		}
		if !maps.Equal(before, k.node.Files(k.pod)) {
			t.Error("the pod's files were written")
		}
	})
}

func burstFile(k *koordinator) string {
	if k.node.Tree.V2 {
		return "cpu.max.burst"
	}
	return "cpu.cfs_burst_us"
}
