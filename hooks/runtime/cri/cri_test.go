package cri_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/cri"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
)

// The fake runtime of the CRI client, over its socket.
func TestDiscovery(t *testing.T) {
	endpoint, err := fake.GenerateEndpoint()
	if err != nil {
		t.Fatal(err)
	}
	runtime := fake.NewFakeRemoteRuntime()
	if err := runtime.Start(endpoint); err != nil {
		t.Fatal(err)
	}
	defer runtime.Stop()
	d, err := cri.New(cri.Config{Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	if got, err := d.Pods(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("an empty node has %v, error %v", got, err)
	}
	config := func(name string) *runtimeapi.PodSandboxConfig {
		return &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: name, Uid: "u-" + name},
			Labels:   map[string]string{"tier": "front"}, Annotations: map[string]string{"a": "b"},
			Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/kubepods/burstable/podu-" + name},
		}
	}
	web, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config("web")})
	if err != nil {
		t.Fatal(err)
	}
	old, err := runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config("old")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: old.PodSandboxId}); err != nil {
		t.Fatal(err)
	}
	create := func(name string) string {
		c, err := runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: web.PodSandboxId, SandboxConfig: config("web"),
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "busybox"},
				Annotations: map[string]string{"hash": "1"}, Labels: map[string]string{"io.kubernetes.container.name": name},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return c.ContainerId
	}
	nginx, ended := create("nginx"), create("ended")
	if _, err := runtime.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: nginx}); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: ended}); err != nil {
		t.Fatal(err)
	}
	got, err := d.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []standalone.Pod{{
		Namespace: "shop", Name: "web", UID: "u-web", Labels: map[string]string{"tier": "front"}, Annotations: map[string]string{"a": "b"},
		Containers: []standalone.Container{{Name: "nginx", ID: nginx, Annotations: map[string]string{"hash": "1"}, Inferred: true}},
	}}
	for i := range got {
		for j := range got[i].Containers {
			// The fake has no cgroups and makes up resources of its own.
			got[i].Containers[j].Resources = nil
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	runtime.Stop()
	if _, err := d.Pods(t.Context()); err == nil {
		t.Error("a runtime that is gone is no error")
	}
}

func TestResourcesAndParent(t *testing.T) {
	got := cri.Resources(&runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: -1, CpusetCpus: "0-1", OomScoreAdj: 900, Unified: map[string]string{"io.weight": "1"}})
	want := &hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(-1)), CPUSetCPUs: new("0-1"), OOMScoreAdj: new(int64(900)), Unified: map[string]string{"io.weight": "1"}}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	cgroupfs, systemd := cgroup.Layout{}, cgroup.Layout{Driver: cgroup.Systemd}
	for _, c := range []struct {
		name   string
		layout cgroup.Layout
		info   string
		want   string
	}{
		{"containerd with cgroupfs", cgroupfs, `{"config": {"linux": {"cgroup_parent": "/kubepods/pod1"}}, "runtimeSpec": {"linux": {"cgroupsPath": "/kubepods/pod1/4b1f"}}}`, "kubepods/pod1"},
		{"containerd with systemd", systemd, `{"config": {"linux": {"cgroup_parent": "/kubepods.slice/kubepods-pod1.slice"}}, "runtimeSpec": {"linux": {"cgroupsPath": "kubepods-pod1.slice:cri-containerd:4b1f"}}}`, "kubepods.slice/kubepods-pod1.slice"},
		{"CRI-O with cgroupfs", cgroupfs, `{"image": "pause", "pid": 7, "runtimeSpec": {"linux": {"cgroupsPath": "/kubepods/burstable/pod1/crio-4b1f"}}}`, "kubepods/burstable/pod1"},
		{"CRI-O with systemd", systemd, `{"image": "pause", "pid": 7, "runtimeSpec": {"linux": {"cgroupsPath": "kubepods-burstable-pod1.slice:crio:4b1f"}}}`, "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice"},
		{"an annotation beside it", systemd, `{"runtimeSpec": {"annotations": {"io.kubernetes.cri-o.CgroupParent": "system.slice"}, "linux": {"cgroupsPath": "kubepods-pod1.slice:crio:4b1f"}}}`, "kubepods.slice/kubepods-pod1.slice"},
		{"an annotation alone", systemd, `{"runtimeSpec": {"annotations": {"io.kubernetes.cri-o.CgroupParent": "kubepods-pod1.slice"}}}`, ""},
		{"a label in the configuration", cgroupfs, `{"config": {"labels": {"cgroup_parent": "/system.slice"}, "annotations": {"io.kubernetes.cri-o.CgroupParent": "/system.slice"}, "linux": {}}}`, ""},
		{"a path without a parent", cgroupfs, `{"runtimeSpec": {"linux": {"cgroupsPath": "/4b1f"}}}`, ""},
		{"nonsense", cgroupfs, `{`, ""},
		{"nothing", cgroupfs, ``, ""},
	} {
		if got := cri.PodCgroup(c.layout, map[string]string{"info": c.info}); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// The annotations and the environment of a container are those that the runtime gave
// it, whole.
func TestWhatARuntimeKnowsOfAContainer(t *testing.T) {
	server := &crio{paths: map[string]string{}}
	server.add("web", "c1", "/kubepods/burstable/podweb/crio-s", nil)
	server.containers[0].Annotations = map[string]string{"hash": "1"}
	server.info = `{"runtimeSpec": {"annotations": {"io.kubernetes.cri-o.Name": "x", "hash": "0"}, "process": {"env": ["PATH=/bin", "A=b=c", "EMPTY=", "A=d"]}}}`
	d := serve(t, server, cgroup.Layout{})
	pods, err := d.Pods(t.Context())
	if err != nil || len(pods) != 1 || len(pods[0].Containers) != 1 {
		t.Fatalf("got %v, error %v", pods, err)
	}
	c := pods[0].Containers[0]
	if diff := gocmp.Diff(map[string]string{"io.kubernetes.cri-o.Name": "x", "hash": "1"}, c.Annotations); diff != "" {
		t.Error(diff)
	}
	if diff := gocmp.Diff([]hookmsg.Env{{Name: "PATH", Value: "/bin"}, {Name: "A", Value: "b=c"}, {Name: "EMPTY"}, {Name: "A", Value: "d"}}, c.Envs); diff != "" {
		t.Error(diff)
	}
}

// crio is the CRI of CRI-O as far as Discovery asks: the specification of a sandbox
// has the pod's annotations, as CRI-O copies them, and the cgroup that it is in.
type crio struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	// paths are what the runtime says of the sandboxes' cgroups, by identifier.
	paths map[string]string
	// info is what it tells of containers.
	info string
}

// serve runs a runtime and returns its Discovery.
func serve(t *testing.T, server *crio, layout cgroup.Layout) *cri.Discovery {
	t.Helper()
	endpoint := filepath.Join(t.TempDir(), "crio.sock")
	listener, err := net.Listen("unix", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	grpcServer := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(grpcServer, server)
	go grpcServer.Serve(listener)
	t.Cleanup(grpcServer.Stop)
	d, err := cri.New(cri.Config{Endpoint: endpoint, Layout: layout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func (c *crio) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: c.sandboxes}, nil
}

func (c *crio) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: c.containers}, nil
}

func (c *crio) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	var spec struct {
		RuntimeSpec struct {
			Annotations map[string]string `json:"annotations"`
			Linux       struct {
				CgroupsPath string `json:"cgroupsPath"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	for _, s := range c.sandboxes {
		if s.Id == req.PodSandboxId {
			spec.RuntimeSpec.Annotations = s.Annotations
		}
	}
	spec.RuntimeSpec.Linux.CgroupsPath = c.paths[req.PodSandboxId]
	b, err := json.Marshal(spec)
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": string(b)}}, err
}

func (c *crio) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": c.info}}, nil
}

// add runs a pod with a container.
func (c *crio) add(name, container, cgroupsPath string, annotations map[string]string) {
	id := "sandbox-" + name
	c.sandboxes = append(c.sandboxes, &runtimeapi.PodSandbox{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: name, Uid: name}, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: annotations,
	})
	c.containers = append(c.containers, &runtimeapi.Container{
		Id: container, PodSandboxId: id, Metadata: &runtimeapi.ContainerMetadata{Name: "web"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Labels: map[string]string{"io.kubernetes.container.name": "kubelet"},
	})
	c.paths[id] = cgroupsPath
}

// No annotation of a pod makes the agent write into another pod's cgroup or the system's,
// and the other pods have their resources. With the kernel's cgroups.
func TestAPodCannotNameAnotherCgroup(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	root := node.Layout.Root
	victim, liar, honest := node.Pod(abi.QOSBurstable, "victim"), node.Pod(abi.QOSBurstable, "liar"), node.Pod(abi.QOSBestEffort, "honest")
	others := []string{victim, node.Tree.Make("kubepods/burstable/podvictim/c1"), node.Tree.Make("system.slice"), node.Tree.Make("system.slice/c1"), node.Layout.QOS(abi.QOSBurstable)}
	own, good := node.Tree.Make("kubepods/burstable/podliar/c1"), node.Tree.Make("kubepods/besteffort/podhonest/c2")

	server := &crio{paths: map[string]string{}}
	d := serve(t, server, node.Layout)

	file, shares := "cpu.shares", "77"
	if node.Tree.V2 {
		file, shares = "cpu.weight", strconv.FormatInt(cgroup.WeightQuadratic.Weight(77), 10)
	}
	before := map[string]string{}
	for _, cgroup := range others {
		before[cgroup] = node.Tree.Read(cgroup, file)
	}
	for _, c := range []struct {
		name string
		// The annotation's parent, and what the runtime itself says.
		claims, path string
		container    string
		// refused is how many cgroups are; the pod's own has what was decided if the
		// runtime tells where it is.
		refused uint64
		served  bool
	}{
		{name: "the system's slice", claims: root + "/system.slice", path: "/" + liar + "/crio-s", served: true},
		{name: "another pod", claims: "/" + victim, path: "/" + liar + "/crio-s", served: true},
		{name: "the class", claims: "/" + root + "/kubepods/burstable", path: "/" + liar + "/crio-s", served: true},
		{name: "above the root", claims: "../../..", path: "/" + liar + "/crio-s", served: true},
		{name: "another pod, and the runtime says nothing", claims: "/" + victim, path: ""},
		{name: "the runtime believes it of the system's slice", claims: root + "/system.slice", path: "/" + root + "/system.slice/crio-s", refused: 1},
		{name: "the runtime believes it of another pod", claims: "/" + victim, path: "/" + victim + "/crio-s", refused: 1},
		{name: "the runtime believes it of another pod's container", claims: "/" + victim + "/c1", path: "/" + victim + "/c1/crio-s", refused: 1},
		{name: "the runtime believes a path that climbs", claims: liar + "/../podvictim", path: "/" + liar + "/../podvictim/crio-s", refused: 1},
		{name: "the identifier of a container climbs", path: "/" + liar + "/crio-s", container: "../podvictim/c1", refused: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			agent.Restart(t)
			node.Tree.Write(good, file, "100")
			server.sandboxes, server.containers = nil, nil
			annotations := map[string]string{"p/Container": "cpu_shares 77", "p/Pod": "cpu_shares 77", "io.kubernetes.cri-o.CgroupParent": c.claims}
			server.add("liar", cmp.Or(c.container, "c1"), c.path, annotations)
			server.add("honest", "c2", "/"+honest+"/crio-s", map[string]string{"p/Container": "cpu_shares 77"})
			node.Tree.Write(own, file, "100")
			r, err := standalone.New(standalone.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Discovery: d, Layout: node.Layout})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Sync(t.Context())
			var refused *cgroup.ClaimError
			if errors.As(err, &refused) != (c.refused != 0) || r.Refused() != c.refused {
				t.Errorf("%d are refused, want %d; error %v", r.Refused(), c.refused, err)
			} else if c.refused != 0 && (refused.Pod.UID != "liar" || !strings.Contains(err.Error(), "shop/liar")) {
				t.Errorf("refused is %v", refused)
			}
			for _, cgroup := range others {
				if got := node.Tree.Read(cgroup, file); got != before[cgroup] {
					t.Errorf("%s of %s is %s, was %s", file, cgroup, got, before[cgroup])
				}
			}
			if got := node.Tree.Read(good, file); got != shares {
				t.Errorf("%s of the honest pod is %s, want %s", file, got, shares)
			}
			if got := node.Tree.Read(own, file); (got == shares) != c.served {
				t.Errorf("%s of the liar's own container is %s", file, got)
			}
		})
	}
}

// A value that changed since the creation is not known to be the kubelet's.
func TestResourcesThatAPluginChanged(t *testing.T) {
	holds := &runtimeapi.LinuxContainerResources{
		CpuShares: 77, CpuQuota: 50_000, CpuPeriod: 100_000, MemoryLimitInBytes: 1 << 30, CpusetCpus: "0", CpusetMems: "0", Unified: map[string]string{"io.weight": "1"},
	}
	for _, c := range []struct {
		name, info string
		want       *hookmsg.Resources
	}{
		{"the runtime does not tell", `{"pid": 1}`, cri.Resources(holds)},
		{"nonsense", `{`, cri.Resources(holds)},
		{"nothing has changed", `{"config": {"linux": {"resources": {"cpu_shares": 77, "cpu_quota": 50000, "cpu_period": 100000, "memory_limit_in_bytes": 1073741824, "cpuset_cpus": "0", "cpuset_mems": "0", "unified": {"io.weight": "1"}}}}}`, cri.Resources(holds)},
		{"some has", `{"config": {"linux": {"resources": {"cpu_shares": 512, "cpu_quota": 100000, "cpu_period": 100000, "memory_limit_in_bytes": 1073741824, "cpuset_mems": "0-1"}}}}`, &hookmsg.Resources{
			CFSPeriodUS: new(int64(100_000)), MemoryLimitBytes: new(int64(1 << 30)),
		}},
		{"nothing was asked for", `{"config": {"linux": {"resources": {}}}}`, &hookmsg.Resources{}},
	} {
		if diff := gocmp.Diff(c.want, cri.Known(holds, map[string]string{"info": c.info})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
