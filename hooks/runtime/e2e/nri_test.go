package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
	"github.com/kubewasm/kubewasm/hooks/runtime/cri"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
)

// node is a containerd with an agent beside it, in cgroups of their own.
type node struct {
	*runtimetest.Runtime
	*runtimetest.Agent
	*containerd
	// plugin is the one that was connected last.
	plugin *nri.Plugin
}

func newNode(t *testing.T) *node {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the first build of containerd takes minutes")
	}
	if os.Geteuid() != 0 {
		unable(t, fmt.Errorf("the user is %d, not root", os.Geteuid()))
	}
	cgroups := runtimetest.NewRuntime(t)
	// runc makes cgroups in every hierarchy, and removes those of containers only.
	t.Cleanup(func() { removeCgroup(t, cgroups.Tree.Root) })
	return &node{Runtime: cgroups, Agent: runtimetest.NewAgent(t, runtimetest.Scripted, nil), containerd: newContainerd(t)}
}

// removeCgroup removes a cgroup with those in it, in every hierarchy.
func removeCgroup(t *testing.T, cgroup string) {
	t.Helper()
	roots, err := filepath.Glob(filepath.Join(cgrouptest.Mount, "*", cgroup))
	if err != nil {
		t.Error(err)
	}
	for _, root := range append(roots, filepath.Join(cgrouptest.Mount, cgroup)) {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil {
				t.Errorf("remove %s: %v", dir, err)
			}
		}
	}
}

// connect runs the plugin until the test ends or until stop is called.
func (n *node) connect() (stop func()) {
	n.Helper()
	plugin, err := nri.New(nri.Config{
		Engine: n.Engine, State: n.State, Enforcer: n.Enforcer, Layout: n.Layout, Socket: n.NRI, Logger: slog.New(slog.NewTextHandler(n.Output(), nil)),
	})
	if err != nil {
		n.Fatal(err)
	}
	n.plugin = plugin
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { plugin.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	n.Cleanup(stop)
	return stop
}

// cpu is what the files have for shares and a quota, -1 for none, in a period of
// 100 ms.
func (n *node) cpu(shares, quota int64) map[string]string {
	if !n.Tree.V2 {
		return map[string]string{"cpu.shares": strconv.FormatInt(shares, 10), "cpu.cfs_quota_us": strconv.FormatInt(quota, 10), "cpu.cfs_period_us": "100000"}
	}
	limit := "max"
	if quota != -1 {
		limit = strconv.FormatInt(quota, 10)
	}
	return map[string]string{"cpu.weight": strconv.FormatInt(cgroup.WeightQuadratic.Weight(shares), 10), "cpu.max": limit + " 100000"}
}

// podCPU is cpu for the cgroup of a pod, which the kubelet has made.
func (n *node) podCPU(shares, quota int64) map[string]string {
	files := n.cpu(shares, quota)
	if n.Tree.V2 {
		files["cpu.weight"] = strconv.FormatInt(cgroup.WeightLinear.Weight(shares), 10)
	}
	return files
}

// differs returns how files of a cgroup differ from what they should have.
func (n *node) differs(cgroup string, want map[string]string) string {
	n.Helper()
	got := n.Files(cgroup)
	maps.DeleteFunc(got, func(file, _ string) bool { _, ok := want[file]; return !ok })
	return cmp.Diff(want, got)
}

func (n *node) check(cgroup string, want map[string]string) {
	n.Helper()
	if diff := n.differs(cgroup, want); diff != "" {
		n.Errorf("%s: %s", cgroup, diff)
	}
}

// file chooses a file's name by the version of cgroups.
func (n *node) file(v1, v2 string) string {
	if n.Tree.V2 {
		return v2
	}
	return v1
}

// asked is what the kubelet asks for a container.
func asked() *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 150_000, CpuPeriod: 100_000, MemoryLimitInBytes: 1 << 30}
}

// A containerd that requires the plugin makes no container while it is not connected,
// unless the pod tolerates that: the example's own configuration of it.
func TestContainerdRequiresThePlugin(t *testing.T) {
	n := newNode(t)
	n.containerd.stop(os.Interrupt)
	file := filepath.Join(n.dir, "config.toml")
	config, err := os.ReadFile(file)
	example, err2 := os.ReadFile("../../../cmd/kubewasm-agent/deploy/containerd.toml")
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(example), `  [plugins."io.containerd.nri.v1.nri".default_validator]`)
	if at < 0 {
		t.Fatalf("the example has no validator: %s", example)
	}
	if err := os.WriteFile(file, append(config, example[at:]...), 0o644); err != nil {
		t.Fatal(err)
	}
	n.containerd.start()
	web := n.Pod(abi.QOSBurstable, "web")
	sandbox, pod := n.sandbox("web", web, map[string]string{"p/Container": "cpu_shares 77"})
	if _, err := n.create("nginx", sandbox, pod, asked()); err == nil || !strings.Contains(err.Error(), `required plugin "kubewasm" not present`) {
		t.Errorf("without the plugin: error %v", err)
	}
	own := n.Pod(abi.QOSBurstable, "own")
	ownSandbox, ownPod := n.sandbox("own", own, map[string]string{"kubewasm.dev/tolerate-no-agent": "true"})
	if _, err := n.create("agent", ownSandbox, ownPod, asked()); err != nil {
		t.Errorf("the agent's own pod: %v", err)
	}
	n.connect()
	var id string
	n.until("a container is made with the plugin", func() bool {
		id, err = n.create("nginx", sandbox, pod, asked())
		return err == nil
	})
	if _, err := n.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	n.check(n.Layout.Container(web, id), n.cpu(77, 150_000))
}

// The plugin beside containerd: what runs before it connects, what is created and
// updated afterwards, guests that fail, the end of either side.
func TestContainerd(t *testing.T) {
	n := newNode(t)
	early := n.Pod(abi.QOSBurstable, "early")
	earlySandbox, earlyConfig := n.sandbox("early", early, map[string]string{"p/Container": "cpu_shares 77\ncfs_quota_us 20000", "p/Pod": "cpu_shares 300"})
	earlyID, _ := n.run("nginx", earlySandbox, earlyConfig, asked())
	earlyCgroup := n.Layout.Container(early, earlyID)
	n.check(earlyCgroup, n.cpu(512, 150_000))

	// Synchronize decides on what runs, and the runtime keeps that: another update
	// from the kubelet does not undo it.
	stop := n.connect()
	n.until("what runs is decided on", func() bool { return n.differs(earlyCgroup, n.cpu(77, 20_000)) == "" })
	n.check(early, map[string]string{n.file("cpu.shares", "cpu.weight"): n.podCPU(300, -1)[n.file("cpu.shares", "cpu.weight")]})
	n.until("the runtime knows", func() bool {
		status, err := n.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: earlyID})
		return err == nil && status.Status.Resources.Linux.CpuShares == 77
	})

	web := n.Pod(abi.QOSBurstable, "web")
	script := strings.Join([]string{
		"cpu_shares 77", "divide_quota 2", "cpu_burst_us 1000", "cpuset_cpus 0", "memory_limit_bytes 268435456", "oom_score_adj 123",
		"env C 4", "annotation note x", "mount /mnt /usr", "device /dev/kmsg c 1:11",
		// Where there is no such file the container is made all the same.
		`unified pids.max "77"`,
	}, "\n")
	sandbox, config := n.sandbox("web", web, map[string]string{"p/Container": script, "p/Pod": "cpu_shares 300\ncfs_quota_us 200000"})
	id, pid := n.run("nginx", sandbox, config, asked())
	path := n.Layout.Container(web, id)
	rest := map[string]string{
		n.file("cpu.cfs_burst_us", "cpu.max.burst"): "1000", "cpuset.cpus": "0", n.file("memory.limit_in_bytes", "memory.max"): "268435456",
	}
	if n.Tree.V2 {
		rest["pids.max"] = "77"
	}
	t.Run("a creation", func(t *testing.T) {
		n.check(path, n.cpu(77, 75_000))
		n.check(path, rest)
		n.check(web, n.podCPU(300, 200_000))
		for file, want := range map[string]string{"oom_score_adj": "123\n", "environ": "C=4\x00"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
			if err != nil || !strings.Contains(string(b), want) {
				t.Errorf("%s of the process is %q, want %q; error %v", file, b, want, err)
			}
		}
		inside := fmt.Sprintf("/proc/%d/root", pid)
		if _, err := os.Stat(inside + "/mnt/bin"); err != nil {
			t.Errorf("the mount: %v", err)
		}
		if info, err := os.Stat(inside + "/dev/kmsg"); err != nil || info.Mode().Type() != fs.ModeDevice|fs.ModeCharDevice {
			t.Errorf("the device: %v, %v", info, err)
		}
		if got := n.info(id).RuntimeSpec.Annotations; got["note"] != "x" {
			t.Errorf("annotations are %v", got)
		}
	})
	t.Run("an update", func(t *testing.T) {
		n.update(id, &runtimeapi.LinuxContainerResources{CpuShares: 600, CpuQuota: 60_000, CpuPeriod: 100_000})
		n.check(path, n.cpu(77, 30_000))
		n.check(path, rest)
	})
	t.Run("a guest that fails", func(t *testing.T) {
		for script, want := range map[string]string{"error it is Monday": "it is Monday", "loop": "hook trapped: ", "panic x": "trap"} {
			sandbox, config := n.sandbox("bad", n.Pod(abi.QOSBurstable, "bad"), map[string]string{"p/Container": script})
			if _, err := n.create("nginx", sandbox, config, asked()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want one with %s", script, err, want)
			}
			n.remove(sandbox)
		}
		// Nobody was dropped for it.
		n.update(id, &runtimeapi.LinuxContainerResources{CpuQuota: 80_000, CpuPeriod: 100_000})
		n.check(path, n.cpu(77, 40_000))
	})
	t.Run("a resize in place", func(t *testing.T) {
		quota := func(us int64) *hookmsg.Resources {
			return &hookmsg.Resources{CFSQuotaUS: &us, CFSPeriodUS: new(int64(100_000))}
		}
		pod := n.Pod(abi.QOSBurstable, "resized")
		n.Update(pod, quota(80_000)) // As the kubelet does.
		sandbox, config := n.sandbox("resized", pod, map[string]string{"p": "divide_quota 2"})
		defer n.remove(sandbox)
		id, _ := n.run("nginx", sandbox, config, &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 80_000, CpuPeriod: 100_000})
		path := n.Layout.Container(pod, id)
		n.check(path, n.cpu(512, 40_000))
		for _, us := range []int64{160_000, 60_000, 240_000} {
			asked := &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: us, CpuPeriod: 100_000}
			tell := func() {
				if _, err := n.UpdatePodSandboxResources(t.Context(), &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: sandbox, Resources: asked}); err != nil {
					t.Fatal(err)
				}
				n.Update(pod, quota(us))
			}
			if us > 80_000 {
				tell()
			}
			n.update(id, asked)
			if us < 80_000 {
				tell()
			}
			n.until("the container is resized", func() bool { return n.differs(path, n.cpu(512, us/2)) == "" })
			want := n.cpu(512, us/2)
			maps.DeleteFunc(want, func(file, _ string) bool { return file == "cpu.shares" || file == "cpu.weight" })
			n.until("the pod is resized", func() bool { return n.differs(pod, want) == "" })
		}
	})
	discovery, err := cri.New(cri.Config{Endpoint: n.socket(), Layout: n.Layout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { discovery.Close() })
	t.Run("the standalone mode beside it", func(t *testing.T) {
		r, err := standalone.New(standalone.Config{Engine: n.Engine, State: n.State, Enforcer: n.Enforcer, Layout: n.Layout, Discovery: discovery})
		if err != nil {
			t.Fatal(err)
		}
		// The quota is the guest's and not what was asked.
		pods, err := discovery.Pods(t.Context())
		want := standalone.Pod{
			Namespace: "shop", Name: "web", UID: "web", Labels: config.Labels, Annotations: config.Annotations, QOSClass: abi.QOSBurstable, Cgroup: web,
			Containers: []standalone.Container{{Name: "nginx", ID: id, Resources: &hookmsg.Resources{CFSPeriodUS: new(int64(100_000))}, Inferred: true}},
		}
		i := slices.IndexFunc(pods, func(p standalone.Pod) bool { return p.Name == "web" })
		if err != nil || i < 0 {
			t.Fatalf("the pods are %v, error %v", pods, err)
		}
		if diff := cmp.Diff(want, pods[i], cmpopts.EquateEmpty(), cmpopts.IgnoreFields(standalone.Container{}, "Annotations", "Envs")); diff != "" {
			t.Error(diff)
		}
		// What the container has of the runtime is what NRI has told.
		facts, c := (*facts.Store)(n.State.Facts()).Get(facts.Subject{PodUID: "web", ContainerID: id}), pods[i].Containers[0]
		if diff := cmp.Diff(facts.ContainerAnnotations, c.Annotations); diff != "" || c.Annotations["io.kubernetes.cri.container-name"] != "nginx" {
			t.Errorf("annotations by NRI and the CRI: %s", diff)
		}
		if diff := cmp.Diff(facts.ContainerEnvs, c.Envs); diff != "" || !slices.Contains(c.Envs, hookmsg.Env{Name: "A", Value: "1"}) {
			t.Errorf("environments by NRI and the CRI: %s", diff)
		}
		sync := func() cgroup.Report {
			t.Helper()
			report, err := r.Sync(t.Context())
			if err != nil && cgroup.CauseOf(err) != "unsupported" {
				t.Error(err)
			}
			return report
		}
		if report := sync(); len(report.Changes) != 0 {
			t.Errorf("the modes decide differently: %v", report.Changes)
		}
		n.Tree.Write(path, n.file("cpu.shares", "cpu.weight"), "99")
		if report := sync(); report.Repairs != 1 {
			t.Errorf("after drift: %+v", report)
		}
		n.check(path, n.cpu(77, 40_000))
	})
	t.Run("containerd is restarted", func(t *testing.T) {
		connections := n.plugin.Connections()
		n.stop(syscall.SIGKILL)
		n.Tree.Write(path, n.file("cpu.shares", "cpu.weight"), "99")
		n.start()
		// The enforcer may repair the file before that.
		n.until("the plugin has connected again", func() bool { return n.plugin.Connections() > connections && n.plugin.Ready() == nil })
		n.until("what runs is decided on again", func() bool { return n.differs(path, n.cpu(77, 40_000)) == "" })
		n.update(id, &runtimeapi.LinuxContainerResources{CpuQuota: 70_000, CpuPeriod: 100_000})
		n.check(path, n.cpu(77, 35_000))
		n.until("the discovery has connected again", func() bool {
			pods, err := discovery.Pods(t.Context())
			return err == nil && len(pods) == 2
		})
	})
	t.Run("the agent is restarted", func(t *testing.T) {
		stop()
		n.Restart(t)
		n.Tree.Write(path, n.file("cpu.shares", "cpu.weight"), "99")
		n.connect()
		n.until("what runs is decided on again", func() bool { return n.differs(path, n.cpu(77, 35_000)) == "" })
		n.check(path, rest)
	})
	t.Run("the end", func(t *testing.T) {
		n.remove(sandbox)
		for _, path := range []string{path, web} {
			removeCgroup(t, path) // As the kubelet does.
		}
		n.sandbox("later", n.Pod(abi.QOSBurstable, "later"), nil)
		n.until("the state has no word of it", func() bool {
			return !slices.ContainsFunc(n.State.All(), func(d cgroup.Target) bool { return d.PodUID == "web" })
		})
	})
}
