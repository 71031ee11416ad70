package cri_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/fake"

	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks/runtime/cri"
	"github.com/kubewasm/kubewasm/hooks/standalone"
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
		Containers: []standalone.Container{{Name: "nginx", ID: nginx, Annotations: map[string]string{"hash": "1"}}},
	}}
	for i := range got {
		for j := range got[i].Containers {
			// The fake has no cgroups and makes up resources of its own.
			got[i].Containers[j].Resources = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	runtime.Stop()
	if _, err := d.Pods(t.Context()); err == nil {
		t.Error("a runtime that is gone is no error")
	}
}

func TestResourcesAndParent(t *testing.T) {
	got := cri.Resources(&runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: -1, CpusetCpus: "0-1", OomScoreAdj: 900, Unified: map[string]string{"io.weight": "1"}})
	want := &hookpb.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(-1)), CPUSetCPUs: new("0-1"), OOMScoreAdj: new(int64(900)), Unified: map[string]string{"io.weight": "1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for info, want := range map[string]string{
		`{"config": {"linux": {"cgroup_parent": "/kubepods/pod1"}}}`:                                    "/kubepods/pod1",
		`{"runtimeSpec": {"annotations": {"io.kubernetes.cri-o.CgroupParent": "kubepods-pod1.slice"}}}`: "kubepods-pod1.slice",
		`{`: "", ``: "",
	} {
		if got := cri.CgroupParent(map[string]string{"info": info}); got != want {
			t.Errorf("%s: got %q, want %q", info, got, want)
		}
	}
}

// What somebody has changed since the creation is not known to be the kubelet's.
func TestResourcesThatAPluginChanged(t *testing.T) {
	holds := &runtimeapi.LinuxContainerResources{
		CpuShares: 77, CpuQuota: 50_000, CpuPeriod: 100_000, MemoryLimitInBytes: 1 << 30, CpusetCpus: "0", CpusetMems: "0", Unified: map[string]string{"io.weight": "1"},
	}
	for _, c := range []struct {
		name, info string
		want       *hookpb.Resources
	}{
		{"the runtime does not tell", `{"pid": 1}`, cri.Resources(holds)},
		{"nonsense", `{`, cri.Resources(holds)},
		{"nothing has changed", `{"config": {"linux": {"resources": {"cpu_shares": 77, "cpu_quota": 50000, "cpu_period": 100000, "memory_limit_in_bytes": 1073741824, "cpuset_cpus": "0", "cpuset_mems": "0", "unified": {"io.weight": "1"}}}}}`, cri.Resources(holds)},
		{"some has", `{"config": {"linux": {"resources": {"cpu_shares": 512, "cpu_quota": 100000, "cpu_period": 100000, "memory_limit_in_bytes": 1073741824, "cpuset_mems": "0-1"}}}}`, &hookpb.Resources{
			CFSPeriodUS: new(int64(100_000)), MemoryLimitBytes: new(int64(1 << 30)),
		}},
		{"nothing was asked for", `{"config": {"linux": {"resources": {}}}}`, &hookpb.Resources{}},
	} {
		if diff := cmp.Diff(c.want, cri.Known(holds, map[string]string{"info": c.info})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}
