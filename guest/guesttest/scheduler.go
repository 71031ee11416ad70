//go:build !wasip1

package guesttest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/internal/framework"
	adapter "github.com/kubewasm/kubewasm/sched"
)

// Scheduler is a scheduler plugin under test, see [Each].
type Scheduler struct {
	native *native
	module *module
	loaded adapter.Plugin
}

// Configure returns the plugin with a configuration, YAML or JSON. The test fails
// if the plugin refuses it.
func (s *Scheduler) Configure(t testing.TB, configuration string) *Scheduler {
	t.Helper()
	p, err := s.TryConfigure(t, configuration)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryConfigure is Configure for a plugin that may refuse its configuration: the
// error is what it says.
func (s *Scheduler) TryConfigure(t testing.TB, configuration string) (*Scheduler, error) {
	t.Helper()
	data := json(t, configuration)
	if s.native != nil {
		n, err := s.native.configured(data)
		return &Scheduler{native: n}, err
	}
	p, err := adapter.Load(context.Background(), s.module.rt, s.module.config(data))
	if err != nil {
		return nil, refusal(t, err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	return &Scheduler{nil, s.module, p}, nil
}

// Cycle is the scheduling of one Pod.
type Cycle struct {
	// Status is what PreFilter said, nil if the plugin has none; NodeNames are the
	// nodes that it narrowed the cycle down to, nil for all.
	Status    *sched.Status
	NodeNames []string

	s   *Scheduler
	pod core.Pod
	// Natively, and in a host.
	state  sched.CycleState
	of     *corev1.Pod
	hosted fwk.CycleState
}

// Begin begins the scheduling of the Pod in manifest, YAML or JSON.
func (s *Scheduler) Begin(t testing.TB, manifest string) *Cycle {
	t.Helper()
	if s.native == nil && s.loaded == nil {
		s = s.Configure(t, "")
	}
	c := &Cycle{s: s}
	if s.native != nil {
		c.state, c.pod = sched.NewCycleState(), Pod(t, manifest)
		if p, ok := s.native.plugin.(sched.PreFilterPlugin); ok {
			var result *sched.PreFilterResult
			if result, c.Status = p.PreFilter(c.state, c.pod); result != nil {
				c.NodeNames = result.NodeNames
			}
		}
		return c
	}
	c.of, c.hosted = new(corev1.Pod), framework.NewCycleState()
	if err := yaml.UnmarshalStrict([]byte(manifest), c.of); err != nil {
		t.Fatalf("read Pod: %v", err)
	}
	if p, ok := s.loaded.(fwk.PreFilterPlugin); ok {
		result, status := p.PreFilter(context.Background(), c.hosted, c.of, nil)
		if c.Status = statusOf(t, status); !result.AllNodes() {
			c.NodeNames = result.NodeNames.UnsortedList()
		}
	}
	return c
}

// statusOf returns a status as the plugin made it.
func statusOf(t testing.TB, s *fwk.Status) *sched.Status {
	t.Helper()
	if s.IsSuccess() {
		return nil
	}
	if s.Code() == fwk.Error {
		if err := s.AsError(); isTrap(err) {
			fail(t, err)
		}
	}
	return sched.NewStatus(sched.Code(s.Code()), s.Message())
}

// node returns what a plugin gets of the Node in a manifest.
func nodeInfo(t testing.TB, manifest string) fwk.NodeInfo {
	t.Helper()
	node := &corev1.Node{}
	if err := yaml.UnmarshalStrict([]byte(manifest), node); err != nil {
		t.Fatalf("read Node: %v", err)
	}
	return framework.NewNodeInfo(node)
}

// as returns a plugin as an interface, and fails the test if it does not
// implement it.
func as[T any](t testing.TB, plugin any, name string) T {
	t.Helper()
	p, ok := plugin.(T)
	if !ok {
		t.Fatalf("the plugin does not implement %s", name)
	}
	return p
}

// Filter asks about the Node in manifest. As in the scheduler, nothing is filtered
// in a cycle that PreFilter skipped.
func (c *Cycle) Filter(t testing.TB, manifest string) *sched.Status {
	t.Helper()
	if c.Status.Code() == sched.CodeSkip {
		return nil
	}
	if n := c.s.native; n != nil {
		return as[sched.FilterPlugin](t, n.plugin, "Filter").Filter(c.state, c.pod, sched.NewNodeInfo(Node(t, manifest)))
	}
	p := as[fwk.FilterPlugin](t, c.s.loaded, "Filter")
	return statusOf(t, p.Filter(context.Background(), c.hosted, c.of, nodeInfo(t, manifest)))
}

// Score asks for the score of the Node in manifest.
func (c *Cycle) Score(t testing.TB, manifest string) (int64, *sched.Status) {
	t.Helper()
	if n := c.s.native; n != nil {
		return as[sched.ScorePlugin](t, n.plugin, "Score").Score(c.state, c.pod, sched.NewNodeInfo(Node(t, manifest)))
	}
	p := as[fwk.ScorePlugin](t, c.s.loaded, "Score")
	score, status := p.Score(context.Background(), c.hosted, c.of, nodeInfo(t, manifest))
	return score, statusOf(t, status)
}

// NormalizeScore returns the scores as the plugin changes them.
func (c *Cycle) NormalizeScore(t testing.TB, scores sched.NodeScoreList) (sched.NodeScoreList, *sched.Status) {
	t.Helper()
	if n := c.s.native; n != nil {
		out := append(sched.NodeScoreList(nil), scores...)
		status := as[sched.ScoreExtensions](t, n.plugin, "NormalizeScore").NormalizeScore(c.state, c.pod, out)
		return out, status
	}
	var extensions fwk.ScoreExtensions
	if p, ok := c.s.loaded.(fwk.ScorePlugin); ok {
		extensions = p.ScoreExtensions()
	}
	if extensions == nil {
		t.Fatal("the plugin does not implement NormalizeScore")
	}
	list := make(fwk.NodeScoreList, len(scores))
	for i, s := range scores {
		list[i] = fwk.NodeScore{Name: s.Name, Score: s.Score}
	}
	status := extensions.NormalizeScore(context.Background(), c.hosted, c.of, list)
	out := make(sched.NodeScoreList, len(list))
	for i, s := range list {
		out[i] = sched.NodeScore{Name: s.Name, Score: s.Score}
	}
	return out, statusOf(t, status)
}

// Filter begins a cycle for the Pod and asks about the Node, both manifests in
// YAML or JSON. If PreFilter refuses the Pod, that is the answer.
func (s *Scheduler) Filter(t testing.TB, pod, node string) *sched.Status {
	t.Helper()
	c := s.Begin(t, pod)
	if !c.Status.IsSuccess() && c.Status.Code() != sched.CodeSkip {
		return c.Status
	}
	return c.Filter(t, node)
}
