package runtimehook_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/runtimehook"
	pb "github.com/kubewasm/kubewasm/hooks/runtime/runtimehook/runtimehookpb"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// serve runs a server and returns a client over its socket.
func serve(t *testing.T, cfg runtimehook.Config) (client pb.RuntimeHookServiceClient, stop func()) {
	t.Helper()
	cfg.Socket = filepath.Join(t.TempDir(), "hooks.sock")
	s, err := runtimehook.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { s.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	// A client that comes too early waits for a second.
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(cfg.Socket); err == nil {
			break
		} else if time.Since(start) > time.Minute {
			t.Fatal(err)
		}
	}
	conn, err := grpc.NewClient("unix://"+cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewRuntimeHookServiceClient(conn), stop
}

var meta = &pb.PodSandboxMetadata{Namespace: "shop", Name: "web", Uid: "u1"}

// An answer repeats what was asked, with what was decided in its place.
func TestAnswersEchoAndChange(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	client, _ := serve(t, runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout})
	pod := node.Pod(abi.QOSBurstable, "u1")
	asked := &pb.LinuxContainerResources{
		CpuPeriod: 100_000, CpuQuota: 150_000, CpuShares: 512, MemoryLimitInBytes: 1 << 30, OomScoreAdj: 900, CpusetMems: "0",
		HugepageLimits: []*pb.HugepageLimit{{PageSize: "2MB", Limit: 1 << 21}}, Unified: map[string]string{"pids.max": "7"}, MemorySwapLimitInBytes: 1 << 31,
	}
	request := func(script, id string) *pb.ContainerResourceHookRequest {
		return &pb.ContainerResourceHookRequest{
			PodMeta: meta, ContainerMeta: &pb.ContainerMetadata{Name: "nginx", Id: id},
			ContainerAnnotations: map[string]string{"hash": "1"}, ContainerResources: proto.Clone(asked).(*pb.LinuxContainerResources),
			PodAnnotations: map[string]string{"p/Container": script}, PodCgroupParent: "/" + pod, ContainerEnvs: map[string]string{"A": "1"},
		}
	}
	echo := func(change func(*pb.ContainerResourceHookResponse)) *pb.ContainerResourceHookResponse {
		r := &pb.ContainerResourceHookResponse{
			ContainerAnnotations: map[string]string{"hash": "1"}, ContainerResources: proto.Clone(asked).(*pb.LinuxContainerResources),
			PodCgroupParent: "/" + pod, ContainerEnvs: map[string]string{"A": "1"},
		}
		change(r)
		return r
	}
	for _, c := range []struct {
		name, script string
		want         *pb.ContainerResourceHookResponse
	}{
		{"nothing decided", "", echo(func(*pb.ContainerResourceHookResponse) {})},
		{"numbers", "cpu_shares 2\ncfs_quota_us -1\ncfs_period_us 50000\nmemory_limit_bytes 4096\noom_score_adj -5", echo(func(r *pb.ContainerResourceHookResponse) {
			r.ContainerResources.CpuShares, r.ContainerResources.CpuQuota, r.ContainerResources.CpuPeriod = 2, -1, 50_000
			r.ContainerResources.MemoryLimitInBytes, r.ContainerResources.OomScoreAdj = 4096, -5
		})},
		{"lists", "cpuset_cpus 0\ncpuset_mems 0", echo(func(r *pb.ContainerResourceHookResponse) {
			r.ContainerResources.CpusetCpus, r.ContainerResources.CpusetMems = "0", "0"
		})},
		{"an empty list takes away what was asked", "cpuset_cpus", echo(func(r *pb.ContainerResourceHookResponse) { r.ContainerResources.CpusetCpus = "" })},
		{"maps", "unified io.weight \"1\"\nenv B 2\nenv A 3\nannotation note x", echo(func(r *pb.ContainerResourceHookResponse) {
			if node.Tree.V2 { // On v1 runc makes no container with one.
				r.ContainerResources.Unified["io.weight"] = "1"
			}
			r.ContainerEnvs["A"], r.ContainerEnvs["B"] = "3", "2"
			r.ContainerAnnotations["note"] = "x"
		})},
		{"what the protocol has no field for", "cpu_burst_us 1000\ncpu_idle 0", echo(func(*pb.ContainerResourceHookResponse) {})},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := client.PreCreateContainerHook(t.Context(), request(c.script, ""))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}

	t.Run("a plugin that fails", func(t *testing.T) {
		_, err := client.PreCreateContainerHook(t.Context(), request("error it is Monday", ""))
		if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "it is Monday") {
			t.Errorf("got error %v", err)
		}
	})
	t.Run("an identifier that leads elsewhere", func(t *testing.T) {
		if _, err := client.PostStartContainerHook(t.Context(), request("", "../x")); status.Code(err) != codes.InvalidArgument {
			t.Errorf("got error %v", err)
		}
	})
	t.Run("a request without anything", func(t *testing.T) {
		if _, err := client.PreCreateContainerHook(t.Context(), &pb.ContainerResourceHookRequest{}); err != nil {
			t.Error(err)
		}
		if _, err := client.PreRunPodSandboxHook(t.Context(), &pb.PodSandboxHookRequest{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("a plugin without an end", func(t *testing.T) {
		if _, err := client.PreCreateContainerHook(t.Context(), request("loop", "")); err == nil {
			t.Error("it was answered")
		}
	})
	t.Run("the end of a container and a pod", func(t *testing.T) {
		agent.State.Put(cgroup.Target{Cgroup: pod + "/c1", PodUID: "u1", Resources: &hookmsg.Resources{CPUShares: new(int64(2))}})
		agent.State.Put(cgroup.Target{Cgroup: pod, PodUID: "u1", Resources: &hookmsg.Resources{CPUShares: new(int64(2))}})
		if _, err := client.PostStopContainerHook(t.Context(), request("cpu_shares 5", "c1")); err != nil {
			t.Error(err)
		}
		if agent.State.Len() != 1 {
			t.Errorf("the state is %v", agent.State.All())
		}
		if _, err := client.PostStopPodSandboxHook(t.Context(), &pb.PodSandboxHookRequest{PodMeta: meta, CgroupParent: "/" + pod}); err != nil {
			t.Error(err)
		}
		if agent.State.Len() != 0 {
			t.Errorf("the state is %v", agent.State.All())
		}
	})
}

// Limits of huge pages and of swap are handed to plugins that own the files, and answered in the
// fields of the protocol.
func TestSwapAndHugePages(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	hugepages, swap := "hugetlb.2MB.limit_in_bytes", "memory.memsw.limit_in_bytes"
	if node.Tree.V2 {
		hugepages, swap = "hugetlb.2MB.max", "memory.swap.max"
	}
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, func(p *hooks.PluginConfig) { p.Owns = []string{"unified"} })
	client, _ := serve(t, runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout})
	const limit = 64 << 20
	for _, c := range []struct {
		name, script string
		asked        *pb.LinuxContainerResources
		change       func(v1, v2 *pb.LinuxContainerResources)
	}{
		{
			"halved", "divide_unified " + hugepages + " 2\ndivide_unified " + swap + " 2",
			&pb.LinuxContainerResources{MemoryLimitInBytes: limit, MemorySwapLimitInBytes: limit + 8<<20, HugepageLimits: []*pb.HugepageLimit{{PageSize: "1GB"}, {PageSize: "2MB", Limit: 4 << 20}}},
			func(v1, v2 *pb.LinuxContainerResources) {
				v1.HugepageLimits[1].Limit, v2.HugepageLimits[1].Limit = 2<<20, 2<<20
				v1.MemorySwapLimitInBytes, v2.Unified = limit/2+4<<20, map[string]string{swap: "4194304"}
			},
		},
		{
			"a size without a limit", "unified " + hugepages + " \"2097152\"", &pb.LinuxContainerResources{},
			func(v1, v2 *pb.LinuxContainerResources) {
				v1.HugepageLimits = []*pb.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}
				v2.HugepageLimits = []*pb.HugepageLimit{{PageSize: "2MB", Limit: 2 << 20}}
			},
		},
		{
			"a file that is asked for", "divide_unified " + hugepages + " 2", &pb.LinuxContainerResources{Unified: map[string]string{hugepages: "4194304"}},
			func(v1, v2 *pb.LinuxContainerResources) {
				v1.Unified, v2.Unified = map[string]string{hugepages: "2097152"}, map[string]string{hugepages: "2097152"}
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			want, v2 := proto.Clone(c.asked).(*pb.LinuxContainerResources), proto.Clone(c.asked).(*pb.LinuxContainerResources)
			if c.change(want, v2); node.Tree.V2 {
				want = v2
			}
			got, err := client.PreCreateContainerHook(t.Context(), &pb.ContainerResourceHookRequest{
				PodMeta: meta, ContainerMeta: &pb.ContainerMetadata{Name: "nginx"}, ContainerResources: c.asked,
				PodAnnotations: map[string]string{"p/Container": c.script}, PodCgroupParent: "/" + node.Layout.Pod(abi.QOSBurstable, "u1"),
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got.ContainerResources, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The answer about a pod is the question, whatever a plugin decides; and what claims
// another's cgroup has nothing written there.
func TestAnswersDoNotMoveAPod(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, func(p *hooks.PluginConfig) {
		p.DecisionGrants = hooks.Grants{Annotations: []string{"io.kubernetes.cri-o.CgroupParent", "note"}, Env: []string{"A"}}
	})
	client, _ := serve(t, runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: node.Layout})
	victim := node.Pod(abi.QOSBurstable, "victim")
	others := []string{victim, node.Tree.Make("kubepods/burstable/podvictim/c1"), node.Tree.Make("system.slice"), node.Tree.Make("system.slice/c1")}
	file := "cpu.shares"
	if node.Tree.V2 {
		file = "cpu.weight"
	}
	before := map[string]string{}
	for _, cgroup := range others {
		before[cgroup] = node.Tree.Read(cgroup, file)
	}
	const script = "cpu_shares 77\nannotation io.kubernetes.cri-o.CgroupParent system.slice\nannotation note x\nenv A 2"
	for _, parent := range []string{"/" + victim, "/" + node.Layout.Root + "/system.slice", node.Layout.Root + "//system.slice", "system.slice", "../" + victim} {
		pod := &pb.PodSandboxHookRequest{
			PodMeta: meta, RuntimeHandler: "runc", Labels: map[string]string{"tier": "web"}, Annotations: map[string]string{"p": script}, CgroupParent: parent,
			Resources: &pb.LinuxContainerResources{CpuShares: 512},
		}
		got, err := client.PreRunPodSandboxHook(t.Context(), pod)
		if err != nil {
			t.Fatal(err)
		}
		want := &pb.PodSandboxHookResponse{Labels: pod.Labels, Annotations: pod.Annotations, CgroupParent: parent, Resources: pod.Resources}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
		// A parent that is no path is the caller's mistake; others are no known cgroup.
		answer, err := client.PostStartContainerHook(t.Context(), &pb.ContainerResourceHookRequest{
			PodMeta: meta, ContainerMeta: &pb.ContainerMetadata{Name: "nginx", Id: "c1"}, PodAnnotations: map[string]string{"p": script}, PodCgroupParent: parent,
		})
		if err != nil && status.Code(err) != codes.InvalidArgument || err == nil && answer.PodCgroupParent != parent {
			t.Errorf("%s: got %v, error %v", parent, answer, err)
		}
		for _, cgroup := range others {
			if got := node.Tree.Read(cgroup, file); got != before[cgroup] {
				t.Errorf("%s: %s of %s is %s, was %s", parent, file, cgroup, got, before[cgroup])
			}
		}
		if agent.State.Len() != 0 {
			// But for the classes, on which nothing is decided.
			t.Errorf("%s: the state is %v", parent, agent.State.All())
		}
	}
}

// A version that is swapped in while containers are created: each of them is
// decided on by one or the other, and none is lost.
func TestSwapDuringCreations(t *testing.T) {
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, func(p *hooks.PluginConfig) {
		p.GuestConfig = []byte(`{}`)
		p.Limits = host.Limits{Instances: 2}
	})
	client, _ := serve(t, runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer})
	scripted, err := os.ReadFile(source(t, runtimetest.Scripted))
	if err != nil {
		t.Fatal(err)
	}
	// Another module with the same behaviour: a custom section makes the digest.
	other := append(append([]byte{}, scripted...), 0, 3, 1, 'x', 'y')
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				r, err := client.PreCreateContainerHook(t.Context(), &pb.ContainerResourceHookRequest{PodMeta: meta, PodAnnotations: map[string]string{"p": "cpu_shares 77"}})
				if err != nil || r.ContainerResources.GetCpuShares() != 77 {
					t.Errorf("got %v, error %v", r, err)
				}
			}
		})
	}
	for _, module := range [][]byte{other, scripted, other} {
		if err := agent.Engine.Swap(t.Context(), "p", host.Bytes(module), ""); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}

func TestRegistration(t *testing.T) {
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	file := filepath.Join(t.TempDir(), "kubewasm.json")
	client, stop := serve(t, runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Registration: file, FailurePolicy: host.Ignore})
	if _, err := client.PreRunPodSandboxHook(t.Context(), &pb.PodSandboxHookRequest{PodMeta: meta}); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		var err error
		if b, err = os.ReadFile(file); err == nil {
			break
		} else if time.Since(start) > time.Minute {
			t.Fatal(err)
		}
	}
	var got struct {
		Endpoint string   `json:"remote-endpoint"`
		Policy   string   `json:"failure-policy"`
		Hooks    []string `json:"runtime-hooks"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(got.Endpoint, "/hooks.sock") || got.Policy != "Ignore" {
		t.Errorf("got %s", b)
	}
	want := []string{"PreRunPodSandbox", "PostStopPodSandbox", "PreCreateContainer", "PreStartContainer", "PostStartContainer", "PostStopContainer", "PreUpdateContainerResources"}
	if diff := cmp.Diff(want, got.Hooks); diff != "" {
		t.Error(diff)
	}
	stop()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the registration outlives the server: %v", err)
	}
}

// A socket that an earlier process left is replaced; a file is left alone.
func TestAStaleSocketIsReplaced(t *testing.T) {
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	dir := t.TempDir()
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "left.sock")})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, want := range map[string]string{"left.sock": "context canceled", "file": "no socket"} {
		s, err := runtimehook.New(runtimehook.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Socket: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		if err := agent.Engine.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Run(ended); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %s", name, err, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "precious" {
		t.Errorf("the file has %q, error %v", b, err)
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	_, err := runtimehook.New(runtimehook.Config{FailurePolicy: host.KeepLast, Timeout: -1})
	for _, want := range []string{"socket is missing", `failurePolicy is "KeepLast"`, "engine is missing", "state is missing", "enforcer is missing", "timeout is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %s", err, want)
		}
	}
}

// The generated code is that of api.proto: go run ./internal/generate makes it
// anew.
func TestGeneratedCodeIsUpToDate(t *testing.T) {
	c := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{"runtimehookpb"}}}
	files, err := c.Compile(t.Context(), "api.proto")
	if err != nil {
		t.Fatal(err)
	}
	want, got := protodesc.ToFileDescriptorProto(files[0]), protodesc.ToFileDescriptorProto(pb.File_api_proto)
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("run go run ./internal/generate: %s", diff)
	}
}

// source builds a guest and returns its file.
func source(t testing.TB, dir string) string {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
