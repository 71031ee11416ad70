package standalone_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/vm"
)

const (
	scripted          = "../../testdata/scripted"
	cpuFromAnnotation = "../../../examples/hooks/cpu-from-annotation"
)

var runtime *host.Runtime

func TestMain(m *testing.M) {
	spinIfTold()
	os.Exit(func() int {
		var err error
		if runtime, err = host.NewRuntime(compiled.Config()); err != nil {
			panic(err)
		}
		defer runtime.Close(context.Background())
		return m.Run()
	}())
}

func source(t testing.TB, dir string) host.Source {
	t.Helper()
	if guests := os.Getenv(vm.GuestDir); guests != "" {
		return host.File(filepath.Join(guests, filepath.Base(dir)+".wasm"))
	}
	file, err := guestbuild.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return host.File(file)
}

// node is a node's cgroups with an agent on it.
type node struct {
	*testing.T
	tree   *cgrouptest.Tree
	layout cgroup.Layout
	// pods is the file that discovery reads.
	pods     string
	engine   *hooks.Engine
	state    *cgroup.State
	enforcer *cgroup.Enforcer
}

func newNode(t *testing.T, plugins ...hooks.PluginConfig) *node {
	t.Helper()
	if len(plugins) == 0 {
		plugins = []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}}}}
	}
	n := &node{T: t, tree: cgrouptest.New(t), pods: filepath.Join(t.TempDir(), "pods.json")}
	n.layout = cgroup.Layout{Root: n.tree.Root}
	for _, class := range []string{"", "/burstable", "/besteffort"} {
		n.tree.Make("kubepods" + class)
	}
	var err error
	if n.engine, err = hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: plugins}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.engine.Close(context.Background()) })
	n.restart(cgroup.EnforcerConfig{})
	n.list()
	return n
}

// observer is a function as an observer of passes.
type observer func(cgroup.Report)

func (f observer) Enforced(_ context.Context, r cgroup.Report) { f(r) }

// restart begins with an empty state.
func (n *node) restart(cfg cgroup.EnforcerConfig) {
	n.Helper()
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: cgrouptest.Mount})
	if err != nil {
		n.Fatal(err)
	}
	n.state = new(cgroup.State)
	cfg.State, cfg.Applier = n.state, applier
	enforcer, err := cgroup.NewEnforcer(cfg)
	if err != nil {
		n.Fatal(err)
	}
	n.enforcer = enforcer
	n.Cleanup(func() {
		enforcer.Close()
		applier.Close()
	})
}

// pod is a Pod of the class Burstable with a container that runs.
func pod(name, script string) corev1.Pod {
	return corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Annotations: map[string]string{"p": script}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
		Status: corev1.PodStatus{
			QOSClass:          corev1.PodQOSBurstable,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "web", ContainerID: "containerd://" + name + "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		},
	}
}

// list makes the pods those that discovery finds.
func (n *node) list(pods ...corev1.Pod) {
	n.Helper()
	b, err := json.Marshal(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList"}, Items: pods})
	if err != nil {
		n.Fatal(err)
	}
	// By a rename, so that no reader sees half of it.
	if err := os.WriteFile(n.pods+".new", b, 0o644); err != nil {
		n.Fatal(err)
	}
	if err := os.Rename(n.pods+".new", n.pods); err != nil {
		n.Fatal(err)
	}
}

// make makes the cgroups of a pod and its container, and returns them.
func (n *node) make(name string) (pod, container string) {
	n.Helper()
	rel := strings.TrimPrefix(n.layout.Pod(abi.QOSBurstable, name), n.tree.Root+"/")
	return n.tree.Make(rel), n.tree.Make(rel + "/" + name + "c")
}

// run runs a reconciler until the test ends.
func (n *node) run(change func(*standalone.Config)) *standalone.Reconciler {
	n.Helper()
	cfg := standalone.Config{
		Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout,
		Resync: time.Hour, // What is found is found by hints.
	}
	if change != nil {
		change(&cfg)
	}
	r, err := standalone.New(cfg)
	if err != nil {
		n.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { r.Run(ctx) })
	n.Cleanup(func() {
		cancel()
		all.Wait()
	})
	return r
}

// shares is the file of the CPU's shares, and what it has for some.
func (n *node) shares(shares int64) (file, value string) {
	if n.tree.V2 {
		return "cpu.weight", strconv.FormatInt(cgroup.WeightQuadratic.Weight(shares), 10)
	}
	return "cpu.shares", strconv.FormatInt(shares, 10)
}

// within waits until a cgroup has some shares and returns how long that took.
func (n *node) within(limit time.Duration, cgroupPath string, shares int64) time.Duration {
	n.Helper()
	file, want := n.shares(shares)
	if n.tree.V2 && !strings.HasPrefix(path.Base(path.Dir(cgroupPath)), "pod") {
		want = strconv.FormatInt(cgroup.WeightLinear.Weight(shares), 10) // No container's.
	}
	start := time.Now()
	for {
		b, err := os.ReadFile(n.tree.Path(cgroupPath, file))
		took := time.Since(start)
		if got := strings.TrimSpace(string(b)); err == nil && got == want {
			return took
		} else if took > limit {
			n.Fatalf("after %s, %s of %s is %q (%v), want %s", took, file, cgroupPath, got, err, want)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// receive waits for a value, not for ever.
func receive[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(soon):
		t.Fatal("nothing came")
	}
	return v
}

const soon = time.Minute

func TestReconcilerBringsAndKeepsWhatIsDecided(t *testing.T) {
	n := newNode(t)
	n.restart(cgroup.EnforcerConfig{Contention: cgroup.Contention{Repairs: 1000}})
	podCgroup, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	n.run(nil)
	n.within(soon, podCgroup, 300)
	n.within(soon, container, 300)

	// Drift is repaired each time, on the event: the next resync is an hour away.
	file, _ := n.shares(0)
	var took []time.Duration
	for range 21 {
		n.tree.Write(container, file, "77")
		took = append(took, n.within(soon, container, 300))
		time.Sleep(12 * time.Millisecond) // More than the debounce.
	}
	slices.Sort(took)
	t.Logf("repairs took %s", took)
}

// A container whose cgroup comes before discovery knows of it.
func TestReconcilerFindsWhatComesLater(t *testing.T) {
	n := newNode(t)
	n.run(nil)
	podCgroup, container := n.make("a")
	time.Sleep(100 * time.Millisecond) // The kubelet is late.
	n.list(pod("a", "cpu_shares 300"))
	n.within(soon, podCgroup, 300)
	n.within(soon, container, 300)

	// It goes, and another one comes in its place.
	n.tree.Remove(podCgroup)
	n.list()
	n.make("b")
	n.list(pod("b", "cpu_shares 400"))
	_, b := n.make("b")
	n.within(soon, b, 400)
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, ok := n.state.Get(container); !ok {
			break
		}
		if time.Since(start) > soon {
			t.Fatal("the container that is gone is still in the state")
		}
	}
	// The same pod again, with the same cgroup.
	n.make("a")
	n.list(pod("a", "cpu_shares 500"), pod("b", "cpu_shares 400"))
	n.within(soon, container, 500)
}

func TestReconcilerDecidesOnQOSClasses(t *testing.T) {
	n := newNode(t, hooks.PluginConfig{
		Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}, GuestConfig: []byte(`{"qos": {"BestEffort": "cpu_shares 3"}}`)},
		Levels: []abi.Level{abi.LevelQOS},
	})
	n.run(nil)
	besteffort := n.layout.QOS(abi.QOSBestEffort)
	n.within(soon, besteffort, 3)
	file, _ := n.shares(0)
	n.tree.Write(besteffort, file, "77")
	n.within(soon, besteffort, 3)
}

// The state is in memory only: what runs makes it again.
func TestReconcilerAfterARestart(t *testing.T) {
	n := newNode(t)
	_, a := n.make("a")
	_, b := n.make("b")
	n.list(pod("a", "cpu_shares 300\ncfs_quota_us 20000"), pod("b", "cpu_shares 400"))
	sync := func() cgroup.Report {
		t.Helper()
		r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
		if err != nil {
			t.Fatal(err)
		}
		report, err := r.Sync(t.Context())
		if err != nil {
			t.Error(err)
		}
		return report
	}
	if report := sync(); len(report.Changes) != 6 {
		t.Errorf("the first sync changes %v", report.Changes)
	}
	before := n.state.All()
	file, _ := n.shares(0)
	n.tree.Write(b, file, "77") // Between two comparisons.

	n.restart(cgroup.EnforcerConfig{})
	report := sync()
	if len(report.Changes) != 1 || report.Changes[0].Cgroup != b {
		t.Errorf("after the restart, changes are %v", report.Changes)
	}
	if got := n.state.All(); len(got) != len(before) {
		t.Errorf("the state has %d cgroups, had %d", len(got), len(before))
	}
	n.within(soon, a, 300)
	n.within(soon, b, 400)
}

// Hints that the kernel drops are made up for by looking at everything.
func TestReconcilerAfterAnOverflow(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(n *node, pod, container string)
	}{
		{"a write is lost", func(n *node, _, container string) {
			file, _ := n.shares(0)
			n.tree.Write(container, file, "77")
		}},
		{"a cgroup is removed and made again, as that of a static pod", func(n *node, pod, _ string) {
			n.tree.Remove(pod)
			n.make("a")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { afterAnOverflow(t, c.lose) })
	}
}

func afterAnOverflow(t *testing.T, lose func(n *node, pod, container string)) {
	n := newNode(t)
	podCgroup, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	began, release := make(chan bool, 1), make(chan bool)
	first := true
	n.restart(cgroup.EnforcerConfig{Observer: observer(func(r cgroup.Report) {
		// The pass that repairs the first drift takes very long.
		if first && r.Repairs != 0 {
			first = false
			began <- true
			<-release
		}
	})})
	n.run(nil)
	releaseOnce := sync.OnceFunc(func() { close(release) })
	t.Cleanup(releaseOnce)
	n.within(soon, container, 300)
	file, _ := n.shares(0)
	for start := time.Now(); ; {
		n.tree.Write(podCgroup, file, "77")
		// The pass that wrote first may still be looking, and it is no repair then.
		select {
		case <-began:
		case <-time.After(100 * time.Millisecond):
			if time.Since(start) > soon {
				t.Fatal("no drift is repaired")
			}
			continue
		}
		break
	}
	b, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	// Equal hints in a row are one to the kernel.
	other := "cpu.idle"
	for i := range queue + 4096 {
		n.tree.Write(podCgroup, []string{file, other}[i%2], []string{"300", "0"}[i%2])
	}
	lose(n, podCgroup, container)
	releaseOnce()
	n.within(soon, container, 300)
	// What comes next is found by its event again.
	for _, cgroup := range []string{podCgroup, container} {
		n.tree.Write(cgroup, file, "77")
		n.within(soon, cgroup, 300)
	}
}

// Another writer who insists has his way after a while, of that one field, and is
// named. What else there is goes on being repaired.
func TestReconcilerGivesWayToAnotherWriter(t *testing.T) {
	n := newNode(t)
	var mu sync.Mutex
	var contended []cgroup.Contended
	n.restart(cgroup.EnforcerConfig{
		Contention: cgroup.Contention{Repairs: 5, Period: time.Hour, Backoff: time.Hour},
		Observer: observer(func(r cgroup.Report) {
			mu.Lock()
			defer mu.Unlock()
			contended = append(contended, r.Contended...)
		}),
	})
	_, a := n.make("a")
	_, b := n.make("b")
	n.list(pod("a", "cpu_shares 300\ncfs_quota_us 20000"), pod("b", "cpu_shares 400"))
	n.run(func(c *standalone.Config) { c.Resync, c.Debounce = 20*time.Millisecond, time.Millisecond })
	n.within(soon, a, 300)
	n.within(soon, b, 400)
	file, _ := n.shares(0)
	gaveWay := func() []cgroup.Contended {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(contended)
	}
	for start := time.Now(); len(gaveWay()) == 0; time.Sleep(time.Millisecond) {
		if n.tree.Read(a, file) != "77" {
			n.tree.Write(a, file, "77")
		}
		if time.Since(start) > soon {
			t.Fatal("nobody gives way")
		}
	}
	n.tree.Write(a, file, "78")
	quota, drifted, want := "cpu.cfs_quota_us", "10000", "20000"
	if n.tree.V2 {
		quota, drifted, want = "cpu.max", "10000 100000", "20000 100000"
	}
	n.tree.Write(a, quota, drifted)
	n.tree.Write(b, file, "77")
	n.within(soon, b, 400)
	for start := time.Now(); n.tree.Read(a, quota) != want; time.Sleep(time.Millisecond) {
		if time.Since(start) > soon {
			t.Fatal("the other field is not repaired any more")
		}
	}
	if got := n.tree.Read(a, file); got != "78" {
		t.Errorf("%s is %s, want the other writer's 78", file, got)
	}
	got := gaveWay()
	if len(got) != 1 || got[0].Field != hookmsg.FieldCPUShares || got[0].Cgroup != a || got[0].For != time.Hour {
		t.Errorf("contended is %v", got)
	}
}

// What no hint tells of, the next look at everything finds.
func TestReconcilerWithoutHints(t *testing.T) {
	n := newNode(t)
	n.run(func(c *standalone.Config) { c.Resync = 20 * time.Millisecond })
	podCgroup, _ := n.make("a")
	// Another mode has decided, and did not come to write it.
	n.state.Put(cgroup.Target{Cgroup: podCgroup, PodUID: "a", Level: abi.LevelPod, Resources: &hookmsg.Resources{CPUShares: new(int64(300))}})
	n.within(soon, podCgroup, 300)
}

type discoveryFunc func(context.Context) ([]standalone.Pod, error)

func (f discoveryFunc) Pods(ctx context.Context) ([]standalone.Pod, error) { return f(ctx) }

// Liveness fails for a reconciler that hangs, which a restart helps. Readiness fails for one
// whose list of pods fails, which a restart does not help.
func TestLivenessAndReadiness(t *testing.T) {
	n := newNode(t)
	refused := errors.New("no answer")
	discovery := standalone.File(n.pods)
	list := func(ctx context.Context) ([]standalone.Pod, error) { return nil, refused }
	r, err := standalone.New(standalone.Config{
		Engine: n.engine, State: n.state, Enforcer: n.enforcer, Layout: n.layout, Resync: time.Minute,
		Discovery: discoveryFunc(func(ctx context.Context) ([]standalone.Pod, error) { return list(ctx) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if _, err := r.Sync(t.Context()); !errors.Is(err, refused) || r.Ready() == nil {
		t.Errorf("without a discovery that answers: error %v, ready: %v", err, r.Ready())
	}
	list = discovery.Pods
	if _, err := r.Sync(t.Context()); err != nil || r.Ready() != nil {
		t.Errorf("with one: error %v, ready: %v", err, r.Ready())
	}
	// As good as a list that names pods of a node with another driver: nothing is in force.
	n.list(pod("elsewhere", ""))
	if _, err := r.Sync(t.Context()); err != nil || r.Ready() == nil || !strings.Contains(r.Ready().Error(), "none of the 1 running pods") {
		t.Errorf("with a pod without a cgroup: error %v, ready: %v", err, r.Ready())
	}
	n.list()
	if _, err := r.Sync(t.Context()); err != nil || r.Ready() != nil {
		t.Errorf("without the pod: error %v, ready: %v", err, r.Ready())
	}
	if err := r.ReadyAt(now.Add(time.Hour)); err == nil {
		t.Error("it is ready an hour after it knew what runs")
	}
	if err := r.HealthyAt(now.Add(time.Hour)); err != nil {
		t.Errorf("before it runs: %v", err)
	}

	begun := make(chan struct{})
	list = func(ctx context.Context) ([]standalone.Pod, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	healthy, hangs := make(chan error, 1), make(chan error, 1)
	running, end := context.WithCancel(t.Context())
	go func() {
		<-begun
		healthy <- r.Healthy()
		hangs <- r.HealthyAt(time.Now().Add(time.Hour))
		end()
	}()
	r.Run(running)
	if err := <-healthy; err != nil {
		t.Errorf("while discovery hangs: %v", err)
	}
	if err := <-hangs; err == nil {
		t.Error("it is healthy an hour after it looked at anything")
	}
}

// Hints are no more than that: a node on which others have taken all instances of
// inotify is looked at by the clock.
func TestReconcilerWithoutInotify(t *testing.T) {
	t.Cleanup(standalone.RefuseInotify(syscall.EMFILE))
	n := newNode(t)
	_, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	n.run(func(c *standalone.Config) { c.Resync = 20 * time.Millisecond })
	n.within(soon, container, 300)
	file, _ := n.shares(0)
	n.tree.Write(container, file, "77")
	n.within(soon, container, 300)
}

// Sync alone watches nothing: a user has 128 instances of inotify.
func TestSyncTakesNoInotify(t *testing.T) {
	defer standalone.RefuseInotify(syscall.EMFILE)()
	n := newNode(t)
	_, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Sync(t.Context()); err != nil {
		t.Error(err)
	}
	n.within(0, container, 300)
}

// A pod that is gone is forgotten, also by plugins that decided nothing on its
// cgroups.
func TestReconcilerForgetsPods(t *testing.T) {
	n := newNode(t, hooks.PluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}}, FailurePolicy: host.KeepLast, DecisionGrants: hooks.Grants{Env: []string{"A"}}})
	cgroup, _ := n.make("a")
	n.list(pod("a", "env A 1"))
	r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
	if err != nil {
		t.Fatal(err)
	}
	keeps := func() bool {
		t.Helper()
		if _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, err := n.engine.Decide(t.Context(), &hookmsg.Request{
			Stage: abi.Reconcile, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{UID: "a"}, Container: hookmsg.ContainerMeta{Name: "web"},
			PodAnnotations: map[string]string{"p": "error x"},
		})
		if err != nil {
			t.Fatal(err)
		}
		return d.ContainerEnvs["A"] == "1"
	}
	if !keeps() {
		t.Error("the last decision is not kept")
	}
	n.list() // The kubelet does not list it for a moment.
	if !keeps() {
		t.Error("the last decision is not kept while the cgroup is there")
	}
	n.tree.Remove(cgroup)
	if keeps() {
		t.Error("the pod is not forgotten")
	}
}

// Another version of a plugin decides anew, without a hint from any cgroup.
func TestReconcilerAfterASwap(t *testing.T) {
	n := newNode(t)
	_, container := n.make("a")
	p := pod("a", "cpu_shares 300")
	p.Annotations["kubewasm.dev/cpu"] = "1500m"
	n.list(p)
	n.run(nil)
	n.within(soon, container, 300)
	if err := n.engine.Swap(t.Context(), "p", source(t, cpuFromAnnotation), ""); err != nil {
		t.Fatal(err)
	}
	n.within(soon, container, 1536)
}

// A plugin that hangs on one pod costs that pod, and what was decided before is
// enforced meanwhile.
func TestReconcilerBesideAPluginThatHangs(t *testing.T) {
	p := hooks.PluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}, Limits: host.Limits{Timeout: 300 * time.Millisecond}}}
	n := newNode(t, p)
	_, a := n.make("a")
	_, b := n.make("b")
	n.list(pod("a", "cpu_shares 300"), pod("b", "cpu_shares 400"))
	n.run(func(c *standalone.Config) { c.Resync = 50 * time.Millisecond })
	n.within(soon, a, 300)
	n.list(pod("a", "loop"), pod("b", "cpu_shares 500"))
	n.within(soon, b, 500)
	file, _ := n.shares(0)
	n.tree.Write(a, file, "77")
	n.within(soon, a, 300)
}

// A cgroup that is removed while it is written is no error.
func TestReconcilerWhileCgroupsComeAndGo(t *testing.T) {
	n := newNode(t)
	var mu sync.Mutex
	var errs []error
	n.restart(cgroup.EnforcerConfig{Observer: observer(func(r cgroup.Report) {
		mu.Lock()
		defer mu.Unlock()
		// A pod's cpuset below that of a container that has just come is busy, until
		// the container's is written.
		if r.Err != nil && cgroup.CauseOf(r.Err) != "busy" {
			errs = append(errs, r.Err)
		}
	})})
	_, stays := n.make("stays")
	n.list(pod("stays", "cpu_shares 300"), pod("goes", "cpu_shares 400\ncfs_quota_us 20000\ncpuset_cpus 0"))
	n.run(func(c *standalone.Config) { c.Resync, c.Debounce = 5*time.Millisecond, time.Millisecond })
	for range 100 {
		gone, _ := n.make("goes")
		time.Sleep(time.Millisecond)
		n.tree.Remove(gone)
	}
	_, back := n.make("goes")
	n.within(soon, back, 400)
	n.within(soon, stays, 300)
	mu.Lock()
	defer mu.Unlock()
	if len(errs) != 0 {
		t.Errorf("%d errors, the first %v", len(errs), errs[0])
	}
}

func TestDryRunOfANode(t *testing.T) {
	n := newNode(t)
	_, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	reports := make(chan cgroup.Report, 1)
	n.restart(cgroup.EnforcerConfig{DryRun: true, Observer: observer(func(r cgroup.Report) {
		if len(r.Changes) != 0 && len(reports) == 0 {
			reports <- r
		}
	})})
	file, before := n.shares(1024)
	n.run(nil)
	report := receive(t, reports)
	if len(report.Changes) != 2 {
		t.Errorf("changes are %v", report.Changes)
	}
	if got := n.tree.Read(container, file); got != before {
		t.Errorf("a dry run wrote %s", got)
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	_, err := standalone.New(standalone.Config{Resync: -1, Debounce: -1})
	for _, want := range []string{"engine is missing", "state is missing", "enforcer is missing", "discovery is missing", "resync is -1ns", "debounce is -1ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %s", err, want)
		}
	}
}

// claims are pods that Discovery finds beside others, in cgroups of their choice.
type claims struct {
	standalone.Discovery
	pods []standalone.Pod
}

func (c claims) Pods(ctx context.Context) ([]standalone.Pod, error) {
	pods, err := c.Discovery.Pods(ctx)
	return append(slices.Clone(c.pods), pods...), err
}

// Pods that lie about themselves, or about which somebody does, keep nobody's
// cgroups but their own, and the others are served as before.
func TestReconcilerLeavesTheCgroupsOfOthersAlone(t *testing.T) {
	n := newNode(t)
	victim, victimContainer := n.make("victim")
	_, honest := n.make("honest")
	system, service := n.tree.Make("system.slice"), n.tree.Make("system.slice/kubelet.service")
	burstable := n.layout.QOS(abi.QOSBurstable)
	file, _ := n.shares(2)
	before := map[string]string{}
	for _, cgroup := range []string{victim, victimContainer, system, service, burstable, n.layout.QOS(abi.QOSGuaranteed)} {
		before[cgroup] = n.tree.Read(cgroup, file)
	}

	const evil = "cpu_shares 2"
	container := func(id string) corev1.Pod {
		p := pod("liar", evil)
		p.Status.ContainerStatuses[0].ContainerID = "containerd://" + id
		return p
	}
	annotated := func(key, value string) corev1.Pod {
		p := pod("liar", evil)
		p.Annotations[key] = value
		return p
	}
	liar := standalone.Pod{Namespace: "shop", Name: "liar", UID: "liar", Annotations: map[string]string{"p": evil}}
	in := func(pod, container string) []standalone.Pod {
		p := liar
		p.Cgroup = pod
		p.Containers = []standalone.Container{{Name: "web", ID: "liarc", Cgroup: container}}
		return []standalone.Pod{p}
	}
	own := n.layout.Pod(abi.QOSBurstable, "liar")
	for _, c := range []struct {
		name   string
		listed []corev1.Pod
		claims []standalone.Pod
		// refused is how many cgroups are, of the pod and its container.
		refused uint64
	}{
		{"the annotation of a mirror pod", []corev1.Pod{annotated("kubernetes.io/config.mirror", "victim")}, nil, 0},
		{"the annotation of CRI-O", []corev1.Pod{annotated("io.kubernetes.cri-o.CgroupParent", victim)}, nil, 0},
		{"a UID that climbs", []corev1.Pod{func() corev1.Pod {
			p := pod("liar", evil)
			p.UID = "x/../podvictim"
			return p
		}()}, nil, 1},
		{"a UID that names the class above", []corev1.Pod{func() corev1.Pod {
			p := pod("liar", evil)
			p.UID = "/.."
			return p
		}()}, nil, 1},
		{"no UID", []corev1.Pod{func() corev1.Pod {
			p := pod("liar", evil)
			p.UID = ""
			return p
		}()}, nil, 1},
		{"an identifier of a container that climbs", []corev1.Pod{container("../podvictim/victimc")}, nil, 1},
		{"an identifier of a container that is the pod above", []corev1.Pod{container("..")}, nil, 1},
		{"an identifier of a container below another", []corev1.Pod{container("a/b")}, nil, 1},
		{"the system's slice", nil, in(system, service), 1},
		{"a service as a container", nil, in(own, service), 1},
		{"another pod", nil, in(victim, victimContainer), 1},
		{"another pod's container", nil, in(own, victimContainer), 1},
		{"the class", nil, in(burstable, victim), 1},
		{"a path above the root", nil, in("../system.slice", "../system.slice/x"), 1},
		{"a path that is not clean", nil, in(own+"/../podvictim", own+"/../podvictim/victimc"), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n.restart(cgroup.EnforcerConfig{})
			_, gone := n.make("gone")
			n.list(append(c.listed, pod("honest", "cpu_shares 300"), pod("gone", "cpu_shares 300"))...)
			r, err := standalone.New(standalone.Config{
				Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: claims{standalone.File(n.pods), c.claims}, Layout: n.layout,
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				_, err = r.Sync(t.Context())
				var refused *cgroup.ClaimError
				if is := errors.As(err, &refused); is != (c.refused != 0) {
					t.Errorf("got error %v", err)
				} else if is && (refused.Pod.Name != "liar" || !strings.Contains(err.Error(), refused.Claimed)) {
					t.Errorf("got error %v", err)
				}
			}
			if r.Refused() != 2*c.refused {
				t.Errorf("%d are refused in two rounds, want %d", r.Refused(), 2*c.refused)
			}
			for cgroup, want := range before {
				if got := n.tree.Read(cgroup, file); got != want {
					t.Errorf("%s of %s is %s, was %s", file, cgroup, got, want)
				}
			}
			n.within(0, honest, 300)
			// What is gone is forgotten all the same.
			n.tree.Remove(n.layout.Pod(abi.QOSBurstable, "gone"))
			n.list(append(c.listed, pod("honest", "cpu_shares 300"))...)
			r.Sync(t.Context())
			if d, ok := n.state.Get(gone); ok {
				t.Errorf("the state still has %v", d)
			}
		})
	}
}

// counted counts how often it is asked.
type counted struct {
	standalone.Discovery
	n *atomic.Int64
}

func (c counted) Pods(ctx context.Context) ([]standalone.Pod, error) {
	c.n.Add(1)
	return c.Discovery.Pods(ctx)
}

// A container that makes cgroups in its own, as one may that has them delegated,
// costs no round of discovery.
func TestReconcilerIsNotBusyWithWhatContainersMake(t *testing.T) {
	n := newNode(t)
	_, container := n.make("a")
	n.list(pod("a", "cpu_shares 300"))
	var asked atomic.Int64
	n.run(func(cfg *standalone.Config) {
		cfg.Discovery, cfg.Rediscover = counted{standalone.File(n.pods), &asked}, time.Hour
	})
	n.within(soon, container, 300)
	file, _ := n.shares(2)
	settle := func() {
		t.Helper()
		// What was written after a cgroup was made is repaired after that was seen.
		n.tree.Write(container, file, "7")
		n.within(soon, container, 300)
	}
	settle()
	before := asked.Load()
	for i := range 20 {
		n.tree.Make(strings.TrimPrefix(container, n.tree.Root+"/") + "/made" + strconv.Itoa(i) + "/deeper")
		if i%7 == 0 { // Seldom enough to be no fight.
			settle()
		}
	}
	// One round may have been asked for before.
	if got := asked.Load() - before; got > 1 {
		t.Errorf("discovery was asked %d times for them", got)
	}
	// A pod that comes is found as before. It is listed before its cgroups are made, as by a
	// kubelet: a list that is read too early is not read again for an hour here.
	n.list(pod("a", "cpu_shares 300"), pod("b", "cpu_shares 300"))
	_, next := n.make("b")
	n.within(soon, next, 300)
}
