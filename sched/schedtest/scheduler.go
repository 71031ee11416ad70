package schedtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/harness"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	adapter "github.com/kubewasm/kubewasm/sched"
)

// Each runs test twice, in subtests: "native" on plugin itself, and "wasm" on the guest that is
// compiled from the package of the test, in the host that a component embeds. Both see and answer
// the same, so a test is written once.
//
// The guest runs with the declarations of the package's directives: a plugin that reads a field
// without declaring it passes natively and fails here. It is compiled in the directory of the
// running test, which go test sets to that of the package, and must register a plugin like the one
// given. With -short only the native test runs.
func Each(t *testing.T, plugin any, test func(t *testing.T, p *Plugin)) {
	t.Helper()
	harness.Each(t, plugin, func(t testing.TB, n *harness.Native, m *harness.Module) *Plugin {
		return &Plugin{native: n, module: m, owner: t}
	}, test)
}

// Plugin is a scheduler plugin under test, see [Each]. It has every grant.
type Plugin struct {
	native *harness.Native
	module *harness.Module
	// objects are the manifests of In, config the configuration.
	objects string
	config  []byte
	// owner is the test whose end closes the plugin.
	owner testing.TB

	// started is the plugin in its scheduler, once there was a call.
	mu      sync.Mutex
	started *running
}

// Load returns the plugin in a module, which may be written in any language: a file, or a
// directory that kubewasm build compiles.
func Load(t testing.TB, path string) *Plugin {
	t.Helper()
	return &Plugin{module: harness.Load(t, path), owner: t}
}

// running is a plugin in a scheduler.
type running struct {
	native *harness.Native
	module *harness.Module
	loaded *adapter.Plugin
	world  *world
}

// nativeName is the name of a native plugin.
const nativeName = "plugin"

// In returns the plugin in a scheduler that has the objects of manifests, one or more documents of
// YAML or JSON with apiVersion, kind and name each. The Nodes are its snapshot, with the Pods that
// have a spec.nodeName on them and their resources. A plugin gets and lists all objects. Without In
// the scheduler is empty.
func (s *Plugin) In(t testing.TB, manifests string) *Plugin {
	t.Helper()
	newWorld(t, manifests) // A mistake in them is one here.
	return &Plugin{native: s.native, module: s.module, objects: manifests, config: s.config, owner: t}
}

// Configure returns the plugin with a configuration, YAML or JSON. The test fails
// if the plugin refuses it.
func (s *Plugin) Configure(t testing.TB, configuration string) *Plugin {
	t.Helper()
	p, err := s.TryConfigure(t, configuration)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryConfigure is Configure for a plugin that may refuse its configuration: the error is the
// plugin's.
func (s *Plugin) TryConfigure(t testing.TB, configuration string) (*Plugin, error) {
	t.Helper()
	fresh := &Plugin{native: s.native, module: s.module, objects: s.objects, config: harness.JSON(t, configuration), owner: t}
	if s.native != nil {
		n, err := s.native.Configured(fresh.config)
		if err != nil {
			return nil, err
		}
		fresh.native = n
		return fresh, nil
	}
	var err error
	fresh.started, err = fresh.start(t)
	if err != nil {
		return nil, err
	}
	return fresh, nil
}

// start puts the plugin into a scheduler.
func (s *Plugin) start(t testing.TB) (*running, error) {
	t.Helper()
	r := &running{native: s.native, module: s.module, world: newWorld(t, s.objects)}
	if s.native != nil {
		return r, nil
	}
	cfg := adapter.PluginConfig{Config: s.module.Config(s.config), Objects: lookup.TestGrants(r.world.Resources...)}
	cfg.Grants = []string{adapter.GrantEvents, adapter.GrantWaitingPods, adapter.GrantActivate, adapter.GrantApply, adapter.GrantPreemptAny, host.GrantObjects, host.GrantState}
	p, err := adapter.Load(context.Background(), s.module.Runtime, cfg, framework.Of(r.world.Handle))
	if err != nil {
		return nil, harness.Refusal(t, err)
	}
	r.loaded = p
	s.owner.Cleanup(func() { r.loaded.Close(context.Background()) })
	return r, nil
}

// run returns the plugin in its scheduler.
func (s *Plugin) run(t testing.TB) *running {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started == nil {
		r, err := s.start(t)
		if err != nil {
			t.Fatal(err)
		}
		s.started = r
	}
	return s.started
}

// enter begins a call of the plugin. binding is set for calls during which other Pods may be
// scheduled, so that the snapshot may not be read. names are the nodes of the call; none means all
// of the snapshot.
func (r *running) enter(binding bool, names ...string) (leave func()) {
	return r.world.enter(r.native != nil, binding, names...)
}

// settle records the result of a call of a native plugin, which it returns.
func (r *running) settle(status *sched.Status) *sched.Status {
	r.world.code = status.Code()
	return status
}

// Events returns the events that the plugin has reported since the last call of
// Events.
func (s *Plugin) Events() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started == nil {
		return nil
	}
	return s.started.world.take()
}

// Activated returns the Pods that the plugin has activated since the last call of Activated.
func (s *Plugin) Activated() []sched.PodName {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started == nil {
		return nil
	}
	w := s.started.world
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.activated
	w.activated = nil
	return list
}

// Applied returns what the plugin has applied to objects since the last call of Applied, a line each:
// the resource, the object, and the annotations or the status as JSON.
func (s *Plugin) Applied() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started == nil {
		return nil
	}
	w := s.started.world
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.applied
	w.applied = nil
	return list
}

// Cycle is the scheduling of one Pod.
type Cycle struct {
	// Status is that of PreFilter, nil if the plugin has none. NodeNames are the nodes to
	// which PreFilter limited the cycle, nil for all.
	Status    *sched.Status
	NodeNames []string

	r  *running
	of *corev1.Pod
	// waiting is the Pod in Permit, if it waits there or did.
	waiting *framework.WaitingPod
	// Natively, and in a host.
	pod    core.Pod
	state  sched.CycleState
	hosted *adapter.Cycle
}

// Begin begins the scheduling of the Pod in manifest, YAML or JSON. A Pod without
// a UID gets one.
func (s *Plugin) Begin(t testing.TB, manifest string) *Cycle {
	t.Helper()
	r := s.run(t)
	c := &Cycle{r: r, of: harness.ReadPod(t, manifest)}
	identify(c.of)
	defer r.enter(false)()
	if r.native != nil {
		c.state, c.pod = sched.NewCycleState(), harness.PodView(t, c.of)
		if p, ok := r.native.Plugin.(sched.PreFilterPlugin); ok {
			var result *sched.PreFilterResult
			if result, c.Status = p.PreFilter(c.state, c.pod, nativeNodes()); result != nil {
				c.NodeNames = result.NodeNames
			}
		}
		r.settle(c.Status)
		return c
	}
	c.hosted = r.loaded.Begin(c.of)
	if r.loaded.Asks(abi.PreFilter) {
		names, status := r.loaded.PreFilter(c.hosted, nil)
		c.Status, c.NodeNames = statusOf(t, status), names
	}
	return c
}

// having returns the loaded plugin. The test fails if the guest has none of the functions, since
// the plugin would answer neutrally.
func (r *running) having(t testing.TB, name string, functions ...abi.Function) *adapter.Plugin {
	t.Helper()
	if r.loaded.Functions()&abi.MaskOf(functions...) == 0 {
		t.Fatalf("the plugin does not implement %s", name)
	}
	return r.loaded
}

// statusOf returns a status as the plugin made it.
func statusOf(t testing.TB, s *adapter.Status) *sched.Status {
	t.Helper()
	if s == nil {
		return nil
	}
	if err := s.Err(); err != nil && harness.IsTrap(err) {
		harness.Fail(t, err)
	}
	return sched.NewStatus(s.Code(), s.Message())
}

// nativeNodes returns all nodes for a native plugin, in a call.
func nativeNodes() sched.NodeInfos {
	var infos []sched.NodeInfo
	for _, name := range sched.SnapshotNodeNames() {
		if n, ok := sched.SnapshotNode(name); ok {
			infos = append(infos, n)
		}
	}
	return sched.NewNodeInfos(infos...)
}

// isName reports whether a node is given by its name, and not by a manifest.
func isName(node string) bool { return node != "" && !strings.ContainsAny(node, ":{\n") }

// podOf returns the Pod of a manifest, or the one with a name among those on nodes.
func (r *running) podOf(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	if !isName(text) {
		pod := harness.ReadPod(t, text)
		identify(pod)
		return pod
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = corev1.NamespaceDefault, text
	}
	for _, n := range r.world.Snapshot {
		for _, pod := range n.Pods {
			if pod.Namespace == namespace && pod.Name == name {
				pod = pod.DeepCopy()
				identify(pod)
				return pod
			}
		}
	}
	t.Fatalf("the scheduler has no Pod %q on a node: it has those of In. The Pod comes first, the node after it", text)
	return nil
}

// hostedNode returns a node for a guest.
func (r *running) hostedNode(t testing.TB, text string) *framework.NodeInfo {
	t.Helper()
	if isName(text) {
		n, _ := r.world.node(text)
		if n == nil {
			t.Fatalf("the scheduler has no node %q: it has those of In", text)
		}
		return n
	}
	node := &corev1.Node{}
	if err := harness.Decode(text, node); err != nil {
		t.Fatalf("read Node: %v", err)
	}
	return framework.NewNodeInfo(node)
}

// nativeNode returns a node for a native plugin, in a call.
func (r *running) nativeNode(t testing.TB, text string) sched.NodeInfo {
	t.Helper()
	if !isName(text) {
		return sched.NewNodeInfo(Node(t, text))
	}
	n, ok := sched.SnapshotNode(text)
	if !ok {
		t.Fatalf("the scheduler has no node %q: it has those of In", text)
	}
	return n
}

// Filter asks about a node: a manifest of a Node without Pods, or the name of one of
// the scheduler's. As in the scheduler, nothing is filtered in a cycle that PreFilter
// skipped.
func (c *Cycle) Filter(t testing.TB, node string) *sched.Status {
	t.Helper()
	if c.Status.Code() == abi.Skip {
		return nil
	}
	defer c.r.enter(false)()
	if n := c.r.native; n != nil {
		return c.r.settle(harness.As[sched.FilterPlugin](t, n.Plugin, "Filter").Filter(c.state, c.pod, c.r.nativeNode(t, node)))
	}
	return statusOf(t, c.r.having(t, "Filter", abi.Filter).Filter(c.hosted, c.r.hostedNode(t, node)))
}

// Score asks for the score of a node, a manifest or a name as in Filter. A plugin without
// NormalizeScore fails the test with a score that the scheduler refuses, one below 0 or above
// [sched.MaxNodeScore].
func (c *Cycle) Score(t testing.TB, node string) (int64, *sched.Status) {
	t.Helper()
	score, status, normalized := c.score(t, node)
	if status.IsSuccess() && !normalized {
		refuseScore(t, "Score without NormalizeScore", node, score)
	}
	return score, status
}

// score is Score without its rule. normalized reports whether the plugin has NormalizeScore.
func (c *Cycle) score(t testing.TB, node string) (score int64, status *sched.Status, normalized bool) {
	t.Helper()
	defer c.r.enter(false)()
	if n := c.r.native; n != nil {
		_, normalized = n.Plugin.(sched.ScoreExtensions)
		score, status = harness.As[sched.ScorePlugin](t, n.Plugin, "Score").Score(c.state, c.pod, c.r.nativeNode(t, node))
		return score, c.r.settle(status), normalized
	}
	score, s := c.r.having(t, "Score", abi.Score).Score(c.hosted, c.r.hostedNode(t, node))
	return score, statusOf(t, s), c.r.loaded.Functions().Has(abi.NormalizeScore)
}

// refuseScore fails the test if the scheduler refuses the score, and with it the Pod.
func refuseScore(t testing.TB, what, node string, score int64) {
	t.Helper()
	if score < 0 || score > sched.MaxNodeScore {
		t.Errorf("%s: the scheduler refuses the score %d of the node %.80q: it must lie between 0 and %d", what, score, node, sched.MaxNodeScore)
	}
}

// NormalizeScore returns the scores as the plugin changes them. It fails the test with a score that
// the scheduler refuses, one below 0 or above [sched.MaxNodeScore].
func (c *Cycle) NormalizeScore(t testing.TB, scores sched.NodeScoreList) (sched.NodeScoreList, *sched.Status) {
	t.Helper()
	out, status := c.normalizeScore(t, scores)
	if status.IsSuccess() {
		for _, s := range out {
			refuseScore(t, "NormalizeScore", s.Name(), s.Score)
		}
	}
	return out, status
}

func (c *Cycle) normalizeScore(t testing.TB, scores sched.NodeScoreList) (sched.NodeScoreList, *sched.Status) {
	t.Helper()
	scored := make([]string, len(scores))
	for i, s := range scores {
		scored[i] = s.Name()
	}
	defer c.r.enter(false, scored...)()
	if n := c.r.native; n != nil {
		out := append(sched.NodeScoreList(nil), scores...)
		status := harness.As[sched.ScoreExtensions](t, n.Plugin, "NormalizeScore").NormalizeScore(c.state, c.pod, out)
		return out, c.r.settle(status)
	}
	list := make(framework.Scores, len(scores))
	for i, s := range scores {
		list[i] = framework.Score{Name: s.Name(), Score: s.Score}
	}
	status := c.r.having(t, "NormalizeScore", abi.NormalizeScore).NormalizeScore(c.hosted, list)
	out := make(sched.NodeScoreList, len(list))
	for i, s := range list {
		out[i] = sched.NewNodeScore(s.Name, s.Score)
	}
	return out, statusOf(t, status)
}

// Filter begins a cycle for the Pod in a manifest, YAML or JSON, and asks about a
// node, a manifest too or a name. If PreFilter refuses the Pod, that is the answer.
func (s *Plugin) Filter(t testing.TB, pod, node string) *sched.Status {
	t.Helper()
	c := s.Begin(t, pod)
	if !c.Status.IsSuccess() && c.Status.Code() != abi.Skip {
		return c.Status
	}
	return c.Filter(t, node)
}
