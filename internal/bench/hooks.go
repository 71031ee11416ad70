package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchHooks measures decisions about a container, and what brings them to the
// cgroups and keeps them there.
func benchHooks(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	if err := benchDecisions(b, rt); err != nil {
		return err
	}
	return benchReconcile(b, rt)
}

// hookRequest is a request as a node sends it.
func hookRequest() *hookmsg.Request {
	p := pod()
	request := &hookmsg.Request{
		Stage: abi.PreStartContainer, Level: abi.LevelContainer, QOSClass: abi.QOSBurstable,
		Pod:       hookmsg.PodMeta{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		Container: hookmsg.ContainerMeta{Name: "web", ID: strings.Repeat("4b1f", 16)},
		PodLabels: p.Labels, PodAnnotations: p.Annotations,
		CgroupParent: "kubepods/burstable/pod" + string(p.UID),
	}
	for i := range 24 {
		request.ContainerEnvs = append(request.ContainerEnvs, hookmsg.Env{
			Name: fmt.Sprintf("SHOP_FEATURE_%d_SETTING", i), Value: "a value of the usual length " + strconv.Itoa(i),
		})
	}
	return request
}

// benchDecisions measures one decision, of a guest in Go and of one in C, that see
// everything or what they read.
func benchDecisions(b *bench, rt *host.Runtime) error {
	inGo, err := guestbuild.Build(b.ctx, source("../../examples/hooks/cpu-from-annotation"))
	if err != nil {
		return err
	}
	inC, err := buildHookInC(b)
	if err != nil {
		return err
	}
	request := hookRequest()
	size := float64(len(request.Append(nil))) / 1e3
	// others asks for another amount each time, of more than an instance knows the
	// decisions of.
	others, amounts := hookRequest(), make([]string, 1<<13)
	for i := range amounts {
		amounts[i] = strconv.Itoa(1000+i) + "m"
	}
	var failed error
	check := func(d *hookmsg.Decision, err error, milli int64) {
		if want := milli * 1024 / 1000; err == nil && (d == nil || d.Resources == nil || *d.Resources.CPUShares != want) {
			err = fmt.Errorf("unexpected decision %+v, want %d shares", d, want)
		}
		if err != nil {
			failed = err
		}
	}
	type decide func(*hookmsg.Request) (*hookmsg.Decision, error)
	same := func(by decide) func(int) {
		return func(n int) {
			for range n {
				d, err := by(request)
				check(d, err, 1500)
			}
		}
	}
	other := func(by decide) func(int) {
		return func(n int) {
			for i := range n {
				i %= len(amounts)
				others.PodAnnotations["kubewasm.dev/cpu"] = amounts[i]
				d, err := by(others)
				check(d, err, 1000+int64(i))
			}
		}
	}
	for _, g := range []struct {
		language, file string
		limit          time.Duration
	}{{"Go", inGo, 5 * time.Microsecond}, {"C", inC, time.Microsecond}} {
		if g.file == "" {
			continue // There is no clang.
		}
		for _, reads := range [][]string{nil, {"pod_annotations[kubewasm.dev/cpu]"}} {
			engine, err := hooks.NewEngine(b.ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
				Config: host.Config{Name: "cpu-from-annotation", Module: host.ModuleConfig{File: g.file}}, Reads: reads,
			}}})
			if err != nil {
				return err
			}
			what := fmt.Sprintf("decision on a %.1f KB request, %s guest", size, g.language)
			if reads != nil {
				what += ", projected"
			}
			byGuest := func(r *hookmsg.Request) (*hookmsg.Decision, error) { return engine.Decide(b.ctx, r) }
			b.compareAll(
				comparison{what, target{time: g.limit}, same(byGuest), "native function", same(nativeDecide)},
				comparison{what + ", each another", target{time: g.limit}, other(byGuest), "native function", other(nativeDecide)},
			)
			if err := engine.Close(b.ctx); err != nil {
				return err
			}
		}
	}
	return failed
}

// buildHookInC compiles the guest in C, or returns no file where there is no
// compiler.
func buildHookInC(b *bench) (file string, err error) {
	if _, err := exec.LookPath("clang"); err != nil {
		fmt.Fprintln(os.Stderr, "bench: no clang, so no guest in C")
		return "", nil
	}
	dir, err := os.MkdirTemp("", "kubewasm-bench-")
	if err != nil {
		return "", err
	}
	context.AfterFunc(b.ctx, func() { os.RemoveAll(dir) })
	file = filepath.Join(dir, "hook.wasm")
	out, err := exec.CommandContext(b.ctx, "clang", "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", file, source("guests/hook/hook.c")).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the guest in C: %w: %s", err, out)
	}
	return file, nil
}

// cgroupMount is where the kernel's cgroups are.
const cgroupMount = "/sys/fs/cgroup"

// cgroupTree makes cgroups of the kernel in each hierarchy: root and those below
// it. remove removes them.
func cgroupTree(root string, cgroups []string) (remove func(), err error) {
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: cgroupMount})
	if err != nil {
		return nil, err
	}
	defer applier.Close()
	var made []string
	remove = func() {
		for _, dir := range slices.Backward(made) {
			syscall.Rmdir(dir)
		}
	}
	for _, h := range applier.Hierarchies() {
		for _, path := range append([]string{root}, cgroups...) {
			dir := filepath.Join(h, path)
			if err := os.Mkdir(dir, 0o755); err != nil {
				remove()
				return nil, err
			}
			made = append(made, dir)
			// A cpuset of cgroup v1 is empty at first; on v2, controllers are handed
			// down one by one.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				if text, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file)); err == nil {
					os.WriteFile(filepath.Join(dir, file), text, 0)
				}
			}
			if applier.Version() == cgroup.V2 {
				os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu +cpuset +memory"), 0)
			}
		}
	}
	return remove, nil
}

// benchReconcile measures the keeping of cgroups, on cgroups of the kernel.
func benchReconcile(b *bench, rt *host.Runtime) error {
	const pods = 200
	root := "kubewasm-bench-" + strconv.Itoa(os.Getpid())
	layout := cgroup.Layout{Root: root}
	above := []string{layout.QOS(abi.QOSGuaranteed), layout.QOS(abi.QOSBurstable)}
	var cgroups []string
	for i := range pods {
		pod := layout.Pod(abi.QOSBurstable, strconv.Itoa(i))
		cgroups = append(cgroups, pod, layout.Container(pod, "c"))
	}
	remove, err := cgroupTree(root, append(above, cgroups...))
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: no cgroups to be made, so nothing is reconciled:", err)
		return nil
	}
	defer remove()
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: cgroupMount})
	if err != nil {
		return err
	}
	defer applier.Close()
	var state cgroup.State
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: &state, Applier: applier, Contention: cgroup.Contention{Repairs: 1 << 30}})
	if err != nil {
		return err
	}
	defer enforcer.Close()
	// Five files of each cgroup, on v1; cgroup v2 has quota and period in one.
	for _, path := range cgroups {
		state.Put(cgroup.Target{Cgroup: path, Resources: &hookmsg.Resources{
			CPUShares: new(int64(512)), CFSQuotaUS: new(int64(50_000)), CFSPeriodUS: new(int64(100_000)), CPUSetCPUs: new("0"), MemoryLimitBytes: new(int64(1 << 30)),
		}})
	}
	if report := enforcer.Enforce(b.ctx); report.Err != nil {
		return report.Err
	}
	settled := enforcer.Enforce(b.ctx)
	if len(settled.Changes) != 0 || settled.Err != nil {
		return fmt.Errorf("the cgroups do not settle: %v, %v", settled.Changes, settled.Err)
	}
	// Koordinator's way: stat and read each file by its path.
	files := map[string]string{}
	for _, h := range applier.Hierarchies() {
		for _, path := range cgroups {
			for _, name := range []string{"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.weight", "cpu.max", "cpuset.cpus", "memory.limit_in_bytes", "memory.max"} {
				path := filepath.Join(h, path, name)
				if text, err := os.ReadFile(path); err == nil {
					files[path] = string(text)
				}
			}
		}
	}
	var failed error
	b.compare(fmt.Sprintf("reconcile %d pods, %d files, no drift", pods, settled.Files), target{time: 5 * time.Millisecond}, func(n int) {
		for range n {
			if r := enforcer.Enforce(b.ctx); len(r.Changes) != 0 || r.Files != settled.Files {
				failed = fmt.Errorf("without drift: %+v", r)
			}
		}
	}, "stat and read each", func(n int) {
		for range n {
			for path, want := range files {
				if _, err := os.Stat(path); err != nil {
					failed = err
				}
				if text, err := os.ReadFile(path); err != nil || string(text) != want {
					failed = fmt.Errorf("%s is %q: %v", path, text, err)
				}
			}
		}
	})
	if err := benchFloor(b, enforcer, files); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	enforcer.Close()
	if err := benchDrift(b, rt, root, pods); err != nil {
		return err
	}
	return benchHookMemory(b)
}

// benchFloor compares a look without drift with its reads alone, one after the
// other: what no way of looking at every file can save.
func benchFloor(b *bench, enforcer *cgroup.Enforcer, files map[string]string) error {
	var open []*os.File
	var want []string
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for path, text := range files {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		open, want = append(open, f), append(want, text)
	}
	var failed error
	buf := make([]byte, 4096)
	b.compare(fmt.Sprintf("the same beside its %d reads, one by one", len(open)), target{}, func(n int) {
		for range n {
			enforcer.Enforce(b.ctx)
		}
	}, "pread of open files", func(n int) {
		for range n {
			for i, f := range open {
				if n, err := f.ReadAt(buf, 0); err != nil && !errors.Is(err, io.EOF) || string(buf[:n]) != want[i] {
					failed = fmt.Errorf("%s is %q: %v", f.Name(), buf[:max(n, 0)], err)
				}
			}
		}
	})
	return failed
}

// listed is a Discovery of pods that are known.
type listed []standalone.Pod

func (l listed) Pods(context.Context) ([]standalone.Pod, error) { return l, nil }

// listedPods are pods with a container each, in the cgroups where the layout has them.
func listedPods(n int) (pods listed) {
	p := pod()
	for i := range n {
		pods = append(pods, standalone.Pod{
			Namespace: p.Namespace, Name: p.Name, UID: strconv.Itoa(i), Labels: p.Labels, Annotations: p.Annotations, QOSClass: abi.QOSBurstable,
			Containers: []standalone.Container{{Name: "web", ID: "c"}},
		})
	}
	return pods
}

// hookEngine loads the guest that the decisions are measured with.
func hookEngine(b *bench, rt *host.Runtime) (*hooks.Engine, error) {
	file, err := guestbuild.Build(b.ctx, source("../../examples/hooks/cpu-from-annotation"))
	if err != nil {
		return nil, err
	}
	return hooks.NewEngine(b.ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "cpu-from-annotation", Module: host.ModuleConfig{File: file}}}}})
}

// benchDrift measures the time from another's write to its repair by a reconciler
// of a whole node, beside a watch of one directory by hand.
func benchDrift(b *bench, rt *host.Runtime, root string, pods int) error {
	engine, err := hookEngine(b, rt)
	if err != nil {
		return err
	}
	defer engine.Close(b.ctx)
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: cgroupMount})
	if err != nil {
		return err
	}
	defer applier.Close()
	var state cgroup.State
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: &state, Applier: applier, Contention: cgroup.Contention{Repairs: 1 << 30}})
	if err != nil {
		return err
	}
	defer enforcer.Close()
	r, err := standalone.New(standalone.Config{
		Engine: engine, State: &state, Enforcer: enforcer, Discovery: listedPods(pods), Layout: cgroup.Layout{Root: root},
		Debounce: time.Nanosecond, // Each repair for itself.
		Resync:   time.Hour,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer cancel()

	name, drift, repaired := "cpu.shares", "77", "1536"
	if applier.Version() == cgroup.V2 {
		name, repaired = "cpu.weight", strconv.FormatInt(cgroup.WeightQuadratic.Weight(1536), 10)
	}
	dir := filepath.Join(applier.Hierarchies()[0], cgroup.Layout{Root: root}.Pod(abi.QOSBurstable, "0"))
	ours, theirs := filepath.Join(dir, "c", name), filepath.Join(dir, name)

	inotify, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	defer inotify.Close()
	running.Go(func() {
		for range inotify.Events {
			if text, err := os.ReadFile(theirs); err == nil && strings.TrimSpace(string(text)) == drift {
				os.WriteFile(theirs, []byte(repaired), 0)
			}
		}
	})
	if err := inotify.Add(dir); err != nil {
		return err
	}
	defer inotify.Close() // Before the wait.

	var failed error
	drifts := func(path string) func(int) {
		return func(n int) {
			for range n {
				if err := os.WriteFile(path, []byte(drift), 0); err != nil {
					failed = err
					return
				}
				for start := time.Now(); ; runtime.Gosched() {
					if text, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(text)) == repaired {
						break
					}
					if time.Since(start) > 5*time.Second {
						failed = fmt.Errorf("%s is not repaired", path)
						return
					}
				}
			}
		}
	}
	// Until all is decided and watched.
	drifts(ours)(1)
	b.compare(fmt.Sprintf("drift to repaired, %d pods watched", pods), target{time: time.Millisecond}, drifts(ours), "a watch of one directory", drifts(theirs))
	return failed
}

// benchHookMemory measures the memory of the example's node agent, a process of
// its own with one plugin that is in the cache, beside the same without any pods.
// The cgroups are files of a directory.
func benchHookMemory(b *bench) error {
	const pods, limit = 500, 50e6
	dir, err := os.MkdirTemp("", "kubewasm-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	agent := filepath.Join(dir, "node-agent")
	build := exec.CommandContext(b.ctx, "go", "build", "-ldflags=-s -w", "-o", agent, ".")
	build.Dir = source("../../cmd/kubewasm-agent")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the node agent: %w: %s", err, out)
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		fmt.Fprintln(os.Stderr, "bench: the kernel does not tell how much memory an agent takes:", err)
		return nil
	}
	if _, err := agentPeak(b.ctx, dir, 1); err != nil { // Which fills the cache.
		return err
	}
	few, err := agentPeak(b.ctx, dir, 1)
	if err != nil {
		return err
	}
	many, err := agentPeak(b.ctx, dir, pods)
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("peak resident memory of a node agent, %d pods", pods), fmt.Sprintf("%.1f MB", many/1e6), "with one pod", fmt.Sprintf("%.1f MB", few/1e6),
		many/few, fmt.Sprintf("<= %.0f MB", limit/1e6), many <= limit)
	return nil
}

// agentPeak runs the agent in dir on a node of files and returns its largest
// resident set in bytes. It ends after the agent has decided about all pods and
// compared them some more times.
func agentPeak(ctx context.Context, dir string, pods int) (bytes float64, err error) {
	guest, err := guestbuild.Build(ctx, source("../../examples/hooks/cpu-from-annotation"))
	if err != nil {
		return 0, err
	}
	root := filepath.Join(dir, "cgroup")
	defer os.RemoveAll(root)
	write := func(file, text string) {
		path := filepath.Join(dir, file)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	write("cgroup/cgroup.controllers", "cpu")
	var list corev1.PodList
	list.Kind = "PodList"
	for i := range pods {
		p := pod()
		p.UID = types.UID("u" + strconv.Itoa(i))
		p.Status.QOSClass = corev1.PodQOSBurstable
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: p.Spec.Containers[0].Name, ContainerID: "containerd://c"}}
		list.Items = append(list.Items, *p)
		for _, cgroup := range []string{"", "/c"} {
			at := "cgroup/kubepods/burstable/pod" + string(p.UID) + cgroup
			write(at+"/cpu.weight", "100\n")
			write(at+"/cpu.max", "max 100000\n")
		}
	}
	encoded, marshalErr := json.Marshal(list)
	write("pods.json", string(encoded))
	write("agent.yaml", fmt.Sprintf("{cacheDir: %s, cgroup: {root: %s}, standalone: {file: %s, resync: 500ms}, plugins: [{name: cpu, file: %s}]}",
		filepath.Join(dir, "cache"), root, filepath.Join(dir, "pods.json"), guest))
	if err := errors.Join(err, marshalErr); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	agent := exec.CommandContext(ctx, filepath.Join(dir, "node-agent"), "-config", filepath.Join(dir, "agent.yaml"))
	if err := agent.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	defer func() {
		cancel()
		if ended != nil {
			<-ended
		}
	}()
	last := filepath.Join(root, "kubepods/burstable/podu"+strconv.Itoa(pods-1), "c/cpu.max")
	for again := 0; again < 40; {
		select {
		case err := <-ended:
			ended = nil
			return 0, fmt.Errorf("the node agent ended: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
		if text, err := os.ReadFile(last); err == nil && strings.HasPrefix(string(text), "150000") {
			again++
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", agent.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscan(peak, &bytes)
	return bytes * 1024, err
}

// nativeDecide does what the guest does.
func nativeDecide(r *hookmsg.Request) (*hookmsg.Decision, error) {
	cpu, ok := r.PodAnnotations["kubewasm.dev/cpu"]
	if !ok {
		return nil, nil
	}
	digits, isMilli := strings.CutSuffix(cpu, "m")
	milli, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return nil, err
	}
	if !isMilli {
		milli *= 1000
	}
	shares, quota, period := milli*1024/1000, milli*100, int64(100_000)
	return &hookmsg.Decision{Resources: &hookmsg.Resources{CPUShares: &shares, CFSQuotaUS: &quota, CFSPeriodUS: &period}}, nil
}
