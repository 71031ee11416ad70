package nri_test

import (
	"context"
	"fmt"
	"log"
	"path/filepath"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// gpus is a plugin of NRI that somebody has, with hooks beside its own work.
type gpus struct {
	hooks  *hooks.Engine
	layout cgroup.Layout
}

var (
	_ stub.CreateContainerInterface = (*gpus)(nil)
	_ stub.UpdateContainerInterface = (*gpus)(nil)
)

// CreateContainer is called by NRI's stub.
func (g *gpus) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjustment := &api.ContainerAdjustment{}
	adjustment.AddEnv("GPU", "0") // The plugin's own work.
	req := nri.ContainerRequest(g.layout, abi.PreCreateContainer, pod, c, nil)
	req.Resources = req.Resources.Overlay(&hookmsg.Resources{Unified: nri.Files(cgroup.V2, c.GetLinux().GetResources())})
	decision, err := g.hooks.Decide(ctx, req)
	if err != nil {
		return nil, nil, err // The container is not created.
	}
	if left := nri.Adjust(adjustment, decision); left != 0 {
		return nil, nil, fmt.Errorf("NRI has no %s", left)
	}
	return adjustment, nil, nil
}

// UpdateContainer is called by NRI's stub.
func (g *gpus) UpdateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container, asked *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	decision, err := g.hooks.Decide(ctx, nri.ContainerRequest(g.layout, abi.PreUpdateContainerResources, pod, c, asked))
	if err != nil {
		return nil, err
	}
	update := &api.ContainerUpdate{ContainerId: c.GetId()}
	nri.AdjustUpdate(update, decision)
	return []*api.ContainerUpdate{update}, nil
}

// A plugin of NRI asks hooks about the containers that it adjusts itself. Its stub calls the two
// methods as the example does.
func ExampleAdjust() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: compiled.Config().CacheDir})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	file, err := guestbuild.Build(ctx, filepath.Join("..", "..", "..", "examples", "hooks", "cpu-from-annotation")) // Or kubewasm build.
	if err != nil {
		log.Fatal(err)
	}
	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "cpu", Module: host.ModuleConfig{File: file}}, Levels: []abi.Level{abi.LevelContainer},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)
	plugin := &gpus{hooks: engine, layout: cgroup.Layout{Driver: cgroup.Systemd}}

	pod := &api.PodSandbox{
		Namespace: "shop", Name: "web-0", Uid: "8dbc5577", Annotations: map[string]string{"kubewasm.dev/cpu": "1500m"},
		Linux: &api.LinuxPodSandbox{CgroupParent: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dbc5577.slice"},
	}
	adjustment, _, err := plugin.CreateContainer(ctx, pod, &api.Container{Id: "4b1f", Name: "nginx"})
	if err != nil {
		log.Fatal(err)
	}
	cpu := adjustment.GetLinux().GetResources().GetCpu()
	fmt.Println(adjustment.GetEnv()[0].GetKey(), cpu.GetShares().GetValue(), cpu.GetQuota().GetValue(), cpu.GetPeriod().GetValue())
	updates, err := plugin.UpdateContainer(ctx, pod, &api.Container{Id: "4b1f", Name: "nginx"}, &api.LinuxResources{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(updates[0].GetContainerId(), updates[0].GetLinux().GetResources().GetCpu().GetQuota().GetValue())
	// Output:
	// GPU 1536 150000 100000
	// 4b1f 150000
}

func TestRequestsOfEvents(t *testing.T) {
	const parent = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dbc5577.slice"
	pod := func(uid, parent string) *api.PodSandbox {
		return &api.PodSandbox{
			Namespace: "shop", Name: "web-0", Uid: uid, Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"a": "b"},
			Linux: &api.LinuxPodSandbox{
				CgroupParent: parent,
				PodResources: &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(50_000)}},
				PodOverhead:  &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(10_000)}},
			},
		}
	}
	container := &api.Container{
		Id: "4b1f", Name: "nginx", Annotations: map[string]string{"c": "d"}, Env: []string{"A=1=2", "B"},
		Linux: &api.LinuxContainer{
			OomScoreAdj: api.Int(967), Resources: &api.LinuxResources{Memory: &api.LinuxMemory{Limit: api.Int64(1 << 20)}},
		},
	}
	layout := cgroup.Layout{Driver: cgroup.Systemd}
	of := func(change func(*hookmsg.Request)) *hookmsg.Request {
		r := &hookmsg.Request{
			Stage: abi.PreRunPodSandbox, Level: abi.LevelPod, QOSClass: abi.QOSBurstable, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web-0", UID: "8dbc5577"},
			PodLabels: map[string]string{"app": "web"}, PodAnnotations: map[string]string{"a": "b"}, CgroupParent: parent[1:],
			Resources: &hookmsg.Resources{CFSQuotaUS: new(int64(60_000))},
		}
		change(r)
		return r
	}
	ofContainer := func(r *hookmsg.Request) {
		r.Level, r.Container = abi.LevelContainer, hookmsg.ContainerMeta{Name: "nginx", ID: "4b1f"}
		r.ContainerAnnotations, r.ContainerEnvs = map[string]string{"c": "d"}, []hookmsg.Env{{Name: "A", Value: "1=2"}, {Name: "B"}}
	}
	for name, c := range map[string]struct{ got, want *hookmsg.Request }{
		"a pod": {
			nri.PodRequest(layout, abi.PreRunPodSandbox, pod("8dbc5577", parent)),
			of(func(*hookmsg.Request) {}),
		},
		"a pod that names the cgroup of another": {
			nri.PodRequest(layout, abi.PreRunPodSandbox, pod("other", parent)),
			of(func(r *hookmsg.Request) { r.Pod.UID, r.QOSClass = "other", 0 }),
		},
		"a pod whose resources change": {
			nri.PodUpdateRequest(layout, pod("8dbc5577", parent), &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(5_000)}}, &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(20_000)}}),
			of(func(r *hookmsg.Request) {
				r.Stage, r.Resources.CFSQuotaUS = abi.PreUpdateContainerResources, new(int64(25_000))
			}),
		},
		"a container": {
			nri.ContainerRequest(layout, abi.PreCreateContainer, pod("8dbc5577", parent), container, nil),
			of(func(r *hookmsg.Request) {
				ofContainer(r)
				r.Stage, r.Resources = abi.PreCreateContainer, &hookmsg.Resources{MemoryLimitBytes: new(int64(1 << 20)), OOMScoreAdj: new(int64(967))}
			}),
		},
		"a container whose resources change": {
			nri.ContainerRequest(layout, abi.PreUpdateContainerResources, pod("8dbc5577", parent), container, &api.LinuxResources{Cpu: &api.LinuxCPU{Cpus: "0-1"}}),
			of(func(r *hookmsg.Request) {
				ofContainer(r)
				r.Stage, r.Resources = abi.PreUpdateContainerResources, &hookmsg.Resources{CPUSetCPUs: new("0-1"), OOMScoreAdj: new(int64(967))}
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCgroupsOfContainers(t *testing.T) {
	parent := "kubepods/burstable/pod8dbc5577"
	for name, c := range map[string]struct {
		parent, id, path, want string
		fails                  bool
	}{
		"the runtime names it":                           {parent: parent, id: "4b1f", path: "/kubepods/burstable/pod8dbc5577/4b1f", want: parent + "/4b1f"},
		"the runtime names the pod's":                    {parent: parent, id: "4b1f", want: parent + "/4b1f"},
		"the runtime names none":                         {id: "4b1f"},
		"the container has no identifier":                {parent: parent, fails: true},
		"the identifier leads out of the pod's cgroup":   {parent: parent, id: "../../x", fails: true},
		"the runtime names it in the words of systemd's": {parent: parent, id: "4b1f", path: "kubepods-pod1.slice:cri-containerd:4b1f", want: "kubepods.slice/kubepods-pod1.slice/cri-containerd-4b1f.scope"},
	} {
		t.Run(name, func(t *testing.T) {
			container := &api.Container{Id: c.id, Linux: &api.LinuxContainer{CgroupsPath: c.path}}
			pod := &api.PodSandbox{Uid: "8dbc5577", Linux: &api.LinuxPodSandbox{CgroupParent: "/" + c.parent}}
			layout := cgroup.Layout{}
			got, err := nri.ContainerCgroup(layout, nri.ContainerRequest(layout, abi.PostStartContainer, pod, container, nil), container)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %q, error %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestWhatNRIDoesNotCarryIsSaid(t *testing.T) {
	all := &hookmsg.Decision{
		Resources: &hookmsg.Resources{
			CPUShares: new(int64(2)), CPUSetCPUs: new(""), CPUSetMems: new("0"), OOMScoreAdj: new(int64(1000)), CPUBvt: new(int64(-1)),
			Unified: map[string]string{"memory.high": "max"},
		},
		ContainerEnvs: map[string]string{"A": "1"},
	}
	// What the caller has set stays.
	a := &api.ContainerAdjustment{}
	a.AddEnv("MINE", "2")
	left := nri.Adjust(a, all)
	if want := hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUBvt; left != want {
		t.Errorf("of a creation %s is left, want %s", left, want)
	}
	want := &api.ContainerAdjustment{
		Env: []*api.KeyValue{{Key: "MINE", Value: "2"}, {Key: "A", Value: "1"}},
		Linux: &api.LinuxContainerAdjustment{
			OomScoreAdj: &api.OptionalInt{Value: 1000},
			Resources:   &api.LinuxResources{Cpu: &api.LinuxCPU{Shares: api.UInt64(uint64(2)), Mems: "0"}, Unified: map[string]string{"memory.high": "max"}},
		},
	}
	if diff := cmp.Diff(want, a, protocmp.Transform()); diff != "" {
		t.Errorf("adjustment (-want +got):\n%s", diff)
	}
	u := &api.ContainerUpdate{ContainerId: "4b1f"}
	left = nri.AdjustUpdate(u, all)
	if want := hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUBvt | hookmsg.FieldOOMScoreAdj | hookmsg.FieldContainerEnvs; left != want {
		t.Errorf("of an update %s is left, want %s", left, want)
	}
	// Without a decision nothing changes.
	if left := nri.Adjust(a, nil) | nri.AdjustUpdate(u, nil) | nri.Adjust(a, &hookmsg.Decision{}); left != 0 {
		t.Errorf("of no decision %s is left", left)
	}
	if diff := cmp.Diff(want, a, protocmp.Transform()); diff != "" {
		t.Errorf("adjustment after no decision (-want +got):\n%s", diff)
	}
}

func TestFiles(t *testing.T) {
	amounts := func(limit, sum int64) *api.LinuxResources {
		return &api.LinuxResources{Memory: &api.LinuxMemory{Limit: api.Int64(limit), Swap: api.Int64(sum)}}
	}
	for name, c := range map[string]struct {
		has    *api.LinuxResources
		v1, v2 map[string]string
	}{
		"nothing":                       {nil, nil, nil},
		"swap":                          {amounts(100, 130), map[string]string{"memory.memsw.limit_in_bytes": "130"}, map[string]string{"memory.swap.max": "30"}},
		"no swap":                       {amounts(100, 100), map[string]string{"memory.memsw.limit_in_bytes": "100"}, map[string]string{"memory.swap.max": "0"}},
		"no limit of swap":              {amounts(100, -1), map[string]string{"memory.memsw.limit_in_bytes": "-1"}, map[string]string{"memory.swap.max": "max"}},
		"memory alone":                  {amounts(100, 0), nil, nil},
		"a sum without that of memory":  {amounts(0, 100), map[string]string{"memory.memsw.limit_in_bytes": "100"}, nil},
		"a sum below the memory's":      {amounts(100, 50), map[string]string{"memory.memsw.limit_in_bytes": "50"}, nil},
		"swap that the kubelet derives": {&api.LinuxResources{Memory: amounts(100, 100).Memory, Unified: map[string]string{"memory.swap.max": "20"}}, map[string]string{"memory.memsw.limit_in_bytes": "100"}, nil},
		"huge pages": {
			&api.LinuxResources{HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: 1 << 63}, {PageSize: "1GB"}}},
			map[string]string{"hugetlb.2MB.limit_in_bytes": "9223372036854775808", "hugetlb.1GB.limit_in_bytes": "0"},
			map[string]string{"hugetlb.2MB.max": "9223372036854775808", "hugetlb.1GB.max": "0"},
		},
	} {
		for version, want := range map[cgroup.Version]map[string]string{cgroup.V1: c.v1, cgroup.V2: c.v2} {
			if diff := cmp.Diff(want, nri.Files(version, c.has)); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", name, version, diff)
			}
		}
	}
}
