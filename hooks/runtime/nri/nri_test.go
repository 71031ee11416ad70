package nri_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
)

// peer is a container runtime's side of NRI, NRI's own, with what it runs.
type peer struct {
	*adaptation.Adaptation
	socket string

	mu         sync.Mutex
	pods       []*api.PodSandbox
	containers []*api.Container
	synced     chan []*api.ContainerUpdate
}

func newPeer(t *testing.T, socket string, options ...adaptation.Option) *peer {
	t.Helper()
	p := &peer{socket: socket, synced: make(chan []*api.ContainerUpdate, 10)}
	var err error
	p.Adaptation, err = adaptation.New("test", "v1", func(ctx context.Context, sync adaptation.SyncCB) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		updates, err := sync(ctx, p.pods, p.containers)
		p.synced <- updates
		return err
	}, func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		append([]adaptation.Option{adaptation.WithSocketPath(socket), adaptation.WithPluginPath(t.TempDir()), adaptation.WithPluginConfigPath(t.TempDir())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	<-p.synced // With the plugins that it starts itself: none.
	return p
}

func (p *peer) wait(t *testing.T) []*api.ContainerUpdate {
	t.Helper()
	select {
	case updates := <-p.synced:
		p.BlockPluginSync().Unblock() // Until it is one of the plugins.
		return updates
	case <-time.After(time.Minute):
		t.Fatal("the plugin does not connect")
		return nil
	}
}

// run runs a plugin until the test ends or until stop is called.
func run(t *testing.T, agent *runtimetest.Agent, socket string, layout cgroup.Layout) (plugin *nri.Plugin, stop func()) {
	t.Helper()
	plugin, err := nri.New(nri.Config{
		Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Layout: layout, Socket: socket, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})), Backoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { plugin.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(stop)
	return plugin, stop
}

// relay is a socket between the plugin and a runtime: NRI leaves the connections
// open when it stops, which in a runtime the end of the process closes.
type relay struct {
	socket string
	mu     sync.Mutex
	target string
	conns  []net.Conn
	// sent counts the bytes that went to the plugin.
	sent atomic.Int64
}

func (r *relay) Write(b []byte) (int, error) {
	r.sent.Add(int64(len(b)))
	return len(b), nil
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	r := &relay{socket: filepath.Join(t.TempDir(), "relay.sock")}
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		r.cut()
	})
	go func() {
		for {
			plugin, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			runtime, err := net.Dial("unix", r.target)
			if err != nil {
				plugin.Close()
			} else {
				r.conns = append(r.conns, plugin, runtime)
				// The end of one is that of the other.
				for _, way := range []func() (int64, error){
					func() (int64, error) { return io.Copy(io.MultiWriter(plugin, r), runtime) },
					func() (int64, error) { return io.Copy(runtime, plugin) },
				} {
					go func() {
						way()
						plugin.Close()
						runtime.Close()
					}()
				}
			}
			r.mu.Unlock()
		}
	}()
	return r
}

// to makes new connections lead to a socket.
func (r *relay) to(socket string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.target = socket
	return socket
}

// cut ends the connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns, r.target = nil, ""
}

func sandbox(cgroup, script string) *api.PodSandbox {
	return &api.PodSandbox{
		Id: "s1", Namespace: "shop", Name: "web", Uid: "u1", Annotations: map[string]string{"p/Container": script},
		Linux: &api.LinuxPodSandbox{CgroupParent: "/" + cgroup},
	}
}

func nginx(cgroup string) *api.Container {
	return &api.Container{
		Id: "c1", PodSandboxId: "s1", Name: "nginx", State: api.ContainerState_CONTAINER_RUNNING, Env: []string{"A=1", "B=2=3"},
		Linux: &api.LinuxContainer{CgroupsPath: "/" + cgroup + "/c1", Resources: &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(100_000)}}},
	}
}

func TestPlugin(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	socket := filepath.Join(t.TempDir(), "nri.sock")
	runtime := newPeer(t, socket)
	run(t, agent, socket, node.Layout)
	runtime.wait(t)
	path := node.Pod(abi.QOSBurstable, "u1")

	t.Run("a creation", func(t *testing.T) {
		resp, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{
			Pod: sandbox(path, strings.Join([]string{
				"cpu_shares 77", "cpuset_cpus 0", "memory_limit_bytes 4096", "oom_score_adj -3", "unified io.weight \"default 5\"", "divide_quota 2",
				"env C 4", "annotation note x", "mount /a /usr", "device /dev/null c", "cpu_burst_us 1000",
			}, "\n")), Container: nginx(path),
		})
		if err != nil {
			t.Fatal(err)
		}
		a := resp.Adjust
		cpu := a.GetLinux().GetResources().GetCpu()
		if cpu.GetShares().GetValue() != 77 || cpu.GetCpus() != "0" || cpu.GetQuota().GetValue() != 50_000 || a.GetLinux().GetResources().GetMemory().GetLimit().GetValue() != 4096 {
			t.Errorf("resources are %v", a.GetLinux().GetResources())
		}
		unified := map[string]string{"io.weight": "default 5"}
		if !node.Tree.V2 {
			unified = nil // On v1 runc makes no container with one.
		}
		if a.GetLinux().GetOomScoreAdj().GetValue() != -3 || !maps.Equal(a.GetLinux().GetResources().GetUnified(), unified) {
			t.Errorf("the rest is %v", a.GetLinux())
		}
		if len(a.GetEnv()) != 1 || a.GetEnv()[0].GetKey() != "C" || a.GetAnnotations()["note"] != "x" {
			t.Errorf("environment %v and annotations %v", a.GetEnv(), a.GetAnnotations())
		}
		if len(a.GetMounts()) != 1 || a.GetMounts()[0].GetSource() != "/usr" || !slices.Equal(a.GetMounts()[0].GetOptions(), []string{"bind", "ro"}) || len(a.GetLinux().GetDevices()) != 1 || a.GetLinux().GetDevices()[0].GetMajor() != 1 {
			t.Errorf("mounts %v and devices %v", a.GetMounts(), a.GetLinux().GetDevices())
		}
	})
	t.Run("an update", func(t *testing.T) {
		resp, err := runtime.UpdateContainer(t.Context(), &api.UpdateContainerRequest{
			Pod: sandbox(path, "cpu_shares 78\ndivide_quota 2"), Container: nginx(path), LinuxResources: &api.LinuxResources{Cpu: &api.LinuxCPU{Quota: api.Int64(60_000), Period: api.UInt64(100_000)}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.Update) != 1 || resp.Update[0].ContainerId != "c1" {
			t.Fatalf("updates are %v", resp.Update)
		}
		cpu := resp.Update[0].GetLinux().GetResources().GetCpu()
		if cpu.GetShares().GetValue() != 78 || cpu.GetQuota().GetValue() != 30_000 || cpu.GetPeriod().GetValue() != 100_000 {
			t.Errorf("the update is %v", cpu)
		}
	})
	t.Run("nothing decided", func(t *testing.T) {
		resp, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, ""), Container: nginx(path)})
		if err != nil {
			t.Errorf("got %v, error %v", resp, err)
		}
	})
	t.Run("a plugin that fails", func(t *testing.T) {
		_, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, "error it is Monday"), Container: nginx(path)})
		if err == nil || !strings.Contains(err.Error(), "it is Monday") {
			t.Errorf("got error %v", err)
		}
	})
	// A plugin that misses the runtime's timeout is dropped: the next call shows
	// that this one was not.
	t.Run("a plugin without an end", func(t *testing.T) {
		if _, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, "loop"), Container: nginx(path)}); err == nil {
			t.Error("no error")
		}
		resp, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, "cpu_shares 5"), Container: nginx(path)})
		if err != nil || resp.GetAdjust().GetLinux().GetResources().GetCpu().GetShares().GetValue() != 5 {
			t.Errorf("got %v, error %v", resp, err)
		}
	})
	t.Run("the end of a container and its pod", func(t *testing.T) {
		if err := runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: sandbox(path, "")}); err != nil {
			t.Error(err)
		}
		agent.State.Put(cgroup.Target{Cgroup: path + "/c1", PodUID: "u1", Resources: &hookmsg.Resources{CPUShares: new(int64(2))}})
		// The other plugins of NRI must hear of it even if a guest fails.
		if _, err := runtime.StopContainer(t.Context(), &api.StopContainerRequest{Pod: sandbox(path, "error x"), Container: nginx(path)}); err != nil {
			t.Error(err)
		}
		if err := runtime.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: sandbox(path, "")}); err != nil {
			t.Error(err)
		}
		if agent.State.Len() != 0 {
			t.Errorf("the state is %v", agent.State.All())
		}
	})
	runtime.Stop()
}

// Limits of huge pages and of swap are handed to plugins that own the files, and go back to the
// runtime in NRI's fields for them.
func TestSwapAndHugePages(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	hugepages, swap := "hugetlb.2MB.limit_in_bytes", "memory.memsw.limit_in_bytes"
	if node.Tree.V2 {
		hugepages, swap = "hugetlb.2MB.max", "memory.swap.max"
	}
	const limit = 64 << 20
	halves := "divide_unified " + hugepages + " 2\ndivide_unified " + swap + " 2"
	asks := func(sum int64) *api.LinuxResources {
		return &api.LinuxResources{
			Memory:         &api.LinuxMemory{Limit: api.Int64(limit), Swap: api.Int64(sum)},
			HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: 4 << 20}, {PageSize: "1GB"}},
		}
	}
	for _, c := range []struct {
		name   string
		owns   []string
		script string
		has    *api.LinuxResources
		// v1 and v2 are what NRI carries of the decision.
		v1, v2 map[string]string
	}{
		{
			"both are halved", []string{"unified[" + hugepages + "]", "unified[" + swap + "]"}, halves, asks(limit + 8<<20),
			map[string]string{"hugepages 2MB": "2097152", "memory+swap": "37748736"}, map[string]string{"hugepages 2MB": "2097152", swap: "4194304"},
		},
		{
			"no swap", []string{"unified"}, "divide_unified " + swap + " 1", asks(limit),
			map[string]string{"memory+swap": "67108864"}, map[string]string{swap: "0"},
		},
		{
			"a plugin that owns neither is handed neither", []string{"cpu_shares"}, halves + "\ncpu_shares 5", asks(limit),
			map[string]string{"shares": "5"}, map[string]string{"shares": "5"},
		},
		{
			"a file of the runtime's own is handed instead", []string{"unified[" + hugepages + "]"}, "divide_unified " + hugepages + " 2",
			&api.LinuxResources{Unified: map[string]string{hugepages: "4194304"}, HugepageLimits: []*api.HugepageLimit{{PageSize: "2MB", Limit: 1 << 30}}},
			map[string]string{"hugepages 2MB": "2097152", hugepages: "2097152"}, map[string]string{"hugepages 2MB": "2097152", hugepages: "2097152"},
		},
		{
			"no limit of huge pages, of which NRI has no number", []string{"unified"}, "unified " + hugepages + " \"max\"", asks(0),
			map[string]string{hugepages: "max"}, map[string]string{hugepages: "max"},
		},
		{
			"a memory limit above the sum of memory and swap", nil, "memory_limit_bytes 268435456", asks(limit + 1<<20),
			map[string]string{"memory": "268435456", "memory+swap": "269484032"}, map[string]string{"memory": "268435456", "memory+swap": "269484032"},
		},
		{
			"no memory limit any more", nil, "memory_limit_bytes -1", asks(limit),
			map[string]string{"memory": "-1", "memory+swap": "-1"}, map[string]string{"memory": "-1", "memory+swap": "-1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			agent := runtimetest.NewAgent(t, runtimetest.Scripted, func(p *hooks.PluginConfig) { p.Owns = c.owns })
			runtime := newPeer(t, filepath.Join(t.TempDir(), "nri.sock"))
			defer runtime.Stop()
			run(t, agent, runtime.socket, node.Layout)
			runtime.wait(t)
			path := node.Layout.Pod(abi.QOSBurstable, "u1")
			carried := c.v1
			if node.Tree.V2 {
				carried = c.v2
			}
			has := func() *api.LinuxResources { return proto.Clone(c.has).(*api.LinuxResources) } // NRI changes its own.
			container := func() *api.Container {
				c := nginx(path)
				c.Linux.Resources = has()
				return c
			}
			created, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, c.script), Container: container()})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(carried, limits(created.GetAdjust().GetLinux().GetResources())); diff != "" {
				t.Errorf("created (-want +got):\n%s", diff)
			}
			// The answer to an update has what the runtime asks for as well.
			updated, err := runtime.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: sandbox(path, c.script), Container: container(), LinuxResources: has()})
			if err != nil || len(updated.Update) != 1 {
				t.Fatalf("updates are %v, error %v", updated, err)
			}
			want := limits(has())
			maps.Copy(want, carried)
			if diff := cmp.Diff(want, limits(updated.Update[0].GetLinux().GetResources())); diff != "" {
				t.Errorf("updated (-want +got):\n%s", diff)
			}
		})
	}
}

// limits returns the limits that a runtime takes from resources: of a size of huge pages the last.
func limits(l *api.LinuxResources) map[string]string {
	limits := map[string]string{}
	maps.Copy(limits, l.GetUnified())
	for _, h := range l.GetHugepageLimits() {
		limits["hugepages "+h.GetPageSize()] = strconv.FormatUint(h.GetLimit(), 10)
	}
	for name, v := range map[string]*api.OptionalInt64{"memory": l.GetMemory().GetLimit(), "memory+swap": l.GetMemory().GetSwap()} {
		if v.GetValue() != 0 {
			limits[name] = strconv.FormatInt(v.GetValue(), 10)
		}
	}
	if v := l.GetCpu().GetShares().GetValue(); v != 0 {
		limits["shares"] = strconv.FormatUint(v, 10)
	}
	return limits
}

// A runtime may believe what a pod says of its cgroup. The plugin does not, on no
// event: the cgroups of others stay as they are, and the container has its
// adjustment.
func TestPluginBelievesNoCgroupOfAnother(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	socket := filepath.Join(t.TempDir(), "nri.sock")
	runtime := newPeer(t, socket)
	defer runtime.Stop()
	run(t, agent, socket, node.Layout)
	runtime.wait(t)
	own, victim := node.Pod(abi.QOSBurstable, "u1"), node.Pod(abi.QOSBurstable, "victim")
	node.Create(own, "c1", &hookmsg.Resources{})
	others := []string{victim, node.Tree.Make("kubepods/burstable/podvictim/c1"), node.Tree.Make("system.slice"), node.Tree.Make("system.slice/c1"), node.Layout.QOS(abi.QOSBurstable)}
	file := "cpu.shares"
	if node.Tree.V2 {
		file = "cpu.weight"
	}
	before := map[string]string{}
	for _, cgroup := range others {
		before[cgroup] = node.Tree.Read(cgroup, file)
	}
	for name, c := range map[string]struct{ parent, path string }{
		"the system's slice":                      {"/" + node.Layout.Root + "/system.slice", "/" + node.Layout.Root + "/system.slice/c1"},
		"another pod":                             {"/" + victim, "/" + victim + "/c1"},
		"another pod's container":                 {"/" + own, "/" + victim + "/c1"},
		"a container in systemd's notation":       {"/" + own, "kubepods-burstable-podvictim.slice:cri-containerd:c1"},
		"the class":                               {"/" + node.Layout.QOS(abi.QOSBurstable), "/" + victim},
		"a path that climbs":                      {"/" + own + "/../podvictim", "/" + own + "/../podvictim/c1"},
		"a container that climbs":                 {"/" + own, "/" + own + "/../podvictim/c1"},
		"another pod's, and none for a container": {"/" + victim, ""},
	} {
		t.Run(name, func(t *testing.T) {
			agent.State.Put(cgroup.Target{Cgroup: victim + "/c1", PodUID: "victim", Resources: &hookmsg.Resources{CPUBurstUS: new(int64(0))}})
			pod := sandbox(own, "cpu_shares 77")
			pod.Annotations["p/Pod"] = "cpu_shares 77"
			pod.Annotations["io.kubernetes.cri-o.CgroupParent"] = c.parent
			pod.Linux.CgroupParent = c.parent
			container := nginx(own)
			container.Linux.CgroupsPath = c.path
			if err := runtime.RunPodSandbox(t.Context(), &api.RunPodSandboxRequest{Pod: pod}); err != nil {
				t.Error(err)
			}
			resp, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: pod, Container: container})
			if err != nil || resp.GetAdjust().GetLinux().GetResources().GetCpu().GetShares().GetValue() != 77 {
				t.Errorf("got %v, error %v", resp, err)
			}
			if err := runtime.StartContainer(t.Context(), &api.StartContainerRequest{Pod: pod, Container: container}); err != nil {
				t.Error(err)
			}
			if _, err := runtime.UpdateContainer(t.Context(), &api.UpdateContainerRequest{Pod: pod, Container: container, LinuxResources: &api.LinuxResources{}}); err != nil {
				t.Error(err)
			}
			if _, err := runtime.StopContainer(t.Context(), &api.StopContainerRequest{Pod: pod, Container: container}); err != nil {
				t.Error(err)
			}
			if _, ok := agent.State.Get(victim + "/c1"); !ok {
				t.Errorf("the state is %v", agent.State.All())
			}
			if err := runtime.StopPodSandbox(t.Context(), &api.StopPodSandboxRequest{Pod: pod}); err != nil {
				t.Error(err)
			}
			for _, cgroup := range others {
				if got := node.Tree.Read(cgroup, file); got != before[cgroup] {
					t.Errorf("%s of %s is %s, was %s", file, cgroup, got, before[cgroup])
				}
			}
		})
	}
}

// A runtime that is restarted lists what runs, and all of it is decided on again.
func TestPluginConnectsAgain(t *testing.T) {
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	relay := newRelay(t)
	// The plugin is there before the runtime is.
	plugin, _ := run(t, agent, relay.socket, node.Layout)
	if plugin.Ready() == nil {
		t.Error("the plugin is ready without a runtime")
	}
	first := newPeer(t, relay.to(filepath.Join(t.TempDir(), "first.sock")))
	first.wait(t)
	if err := errors.Join(plugin.Ready(), plugin.Healthy()); err != nil {
		t.Error(err)
	}
	// Its guests were warm before.
	if stats := agent.Runtime.Plugins()[0].Stats(); stats.Instances < goruntime.GOMAXPROCS(0) {
		t.Errorf("on the first connection there are %d instances", stats.Instances)
	}
	first.Stop()
	relay.cut()

	pod := node.Pod(abi.QOSBurstable, "u1")
	cgroup, _ := node.Create(pod, "c1", &hookmsg.Resources{CPUShares: new(int64(512))})
	second := newPeer(t, filepath.Join(t.TempDir(), "second.sock"))
	second.mu.Lock()
	gone := nginx(pod)
	gone.Id, gone.State = "c0", api.ContainerState_CONTAINER_STOPPED
	second.pods, second.containers = []*api.PodSandbox{sandbox(pod, "cpu_shares 77\ncpu_burst_us 0\ncfs_quota_us 20000")}, []*api.Container{gone, nginx(pod)}
	second.mu.Unlock()
	relay.to(second.socket)
	var updates []*api.ContainerUpdate
	for len(updates) == 0 {
		updates = second.wait(t)
	}
	if len(updates) != 1 || updates[0].ContainerId != "c1" || updates[0].GetLinux().GetResources().GetCpu().GetShares().GetValue() != 77 {
		t.Errorf("updates are %v", updates)
	}
	if _, ok := agent.State.Get(cgroup); !ok {
		t.Errorf("the state is %v", agent.State.All())
	}
	if n := plugin.Connections(); n != 2 {
		t.Errorf("the plugin has counted %d connections", n)
	}
	second.Stop()
}

// A guest that hangs on what runs must not keep the plugin out: the runtime drops
// one that does not answer in time. What there was no time for comes later.
//
// A quarter of the timeout is left for the answer. On a busy machine that may not be enough: with
// longer and longer ones it must be.
func TestPluginConnectsWithAGuestThatHangs(t *testing.T) {
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout) })
	for timeout := 600 * time.Millisecond; ; timeout *= 4 {
		err := connectWithAGuestThatHangs(t, timeout)
		if err == nil {
			return
		}
		if timeout > 5*time.Second {
			t.Fatal(err)
		}
		t.Logf("with a timeout of %s: %v", timeout, err)
	}
}

func connectWithAGuestThatHangs(t *testing.T, timeout time.Duration) error {
	t.Helper()
	adaptation.SetPluginRequestTimeout(timeout)
	node := runtimetest.NewRuntime(t)
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, func(p *hooks.PluginConfig) {
		p.Limits.Timeout, p.Limits.Fuel = timeout/3, math.MaxInt64 // Time ends it, however long that is.
	})
	runtime := newPeer(t, filepath.Join(t.TempDir(), "nri.sock"))
	defer runtime.Stop()
	pod := node.Pod(abi.QOSBurstable, "u1")
	cgroup, _ := node.Create(pod, "c1", &hookmsg.Resources{CPUShares: new(int64(512))})
	var hanging []*api.Container
	for i := range 5 {
		c := nginx(pod)
		c.Id, c.PodSandboxId = "h"+strconv.Itoa(i), "s0"
		c.Linux.CgroupsPath = "/" + pod + "/" + c.Id
		hanging = append(hanging, c)
	}
	runtime.mu.Lock()
	bad := sandbox(pod, "loop")
	bad.Id, bad.Uid = "s0", "u0"
	runtime.pods, runtime.containers = []*api.PodSandbox{bad, sandbox(pod, "cpu_shares 77")}, append(hanging, nginx(pod))
	runtime.mu.Unlock()
	_, stop := run(t, agent, runtime.socket, node.Layout)
	defer stop()
	runtime.wait(t)
	// It is connected, and has not been dropped.
	resp, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(pod, "cpu_shares 5"), Container: nginx(pod)})
	if err != nil || resp.GetAdjust().GetLinux().GetResources().GetCpu().GetShares().GetValue() != 5 {
		return fmt.Errorf("the plugin was dropped when it connected: got %v, error %v", resp, err)
	}
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, ok := agent.State.Get(cgroup); ok {
			break
		}
		if time.Since(start) > time.Minute {
			return fmt.Errorf("the last container is not decided on; the state is %v", agent.State.All())
		}
	}
	// A single answer keeps to the runtime's patience, too.
	if _, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(pod, "loop"), Container: nginx(pod)}); err == nil {
		return errors.New("a guest that hangs: no error")
	}
	if _, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(pod, "error it is Monday"), Container: nginx(pod)}); err == nil {
		return errors.New("the plugin was dropped after a guest that hangs")
	}
	return nil
}

// records are the attributes "after" of what is logged.
type records struct {
	slog.Handler
	after chan time.Duration
}

func (r records) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == "after" {
			r.after <- a.Value.Duration()
		}
		return true
	})
	return nil
}

func (records) Enabled(context.Context, slog.Level) bool { return true }

func TestPluginWaitsEverLonger(t *testing.T) {
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	log := records{after: make(chan time.Duration)}
	plugin, err := nri.New(nri.Config{
		Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer, Socket: filepath.Join(t.TempDir(), "nobody"), Logger: slog.New(log),
		Backoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- plugin.Run(ctx) }()
	var got []time.Duration
	for len(got) < 5 {
		got = append(got, <-log.after)
	}
	cancel()
	for {
		select {
		case <-log.after:
			continue
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the plugin ended with %v", err)
			}
		}
		break
	}
	if diff := cmp.Diff([]time.Duration{1e6, 2e6, 4e6, 5e6, 5e6}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	_, err := nri.New(nri.Config{Index: "5", Timeout: -1})
	var missing []string
	for _, want := range []string{`index "5"`, "engine is missing", "state is missing", "enforcer is missing", "timeout is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			missing = append(missing, want)
		}
	}
	if diff := cmp.Diff([]string(nil), missing); diff != "" {
		t.Errorf("%v has no word of: %s", err, diff)
	}
}
