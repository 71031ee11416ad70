package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/sched/kube137"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// spreading is a cluster with many Pods, and one to be spread over it.
type spreading struct {
	ctx   context.Context
	pod   *corev1.Pod
	infos []fwk.NodeInfo
}

// newSpreading makes a cluster with as many Pods on each node, of several apps.
func newSpreading(ctx context.Context, nodes, each int) *spreading {
	s := &spreading{ctx: ctx, pod: pod()}
	for _, key := range []string{zoneLabel, corev1.LabelHostname} {
		s.pod.Spec.TopologySpreadConstraints = append(s.pod.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		})
	}
	for i := range nodes {
		var running []*corev1.Pod
		for j := range each {
			p := pod()
			p.Name, p.UID = fmt.Sprintf("web-%d-%d", i, j), types.UID(fmt.Sprintf("8dbc5577-d0e2-4706-8787-%012d", i*each+j))
			p.Labels["app"] = []string{"web", "cart", "search"}[(i+j)%3]
			p.Spec.NodeName = fmt.Sprint("node", i)
			running = append(running, p)
		}
		s.infos = append(s.infos, kube137test.NewNodeInfo(node(i, 12), running...))
	}
	return s
}

// preFilter begins a cycle.
func (s *spreading) preFilter(p fwk.PreFilterPlugin) (fwk.CycleState, error) {
	state := kube137test.NewCycleState()
	_, status := p.PreFilter(s.ctx, state, s.pod, s.infos)
	return state, status.AsError()
}

// filter asks about each node, on as many goroutines as the framework has, and returns how
// many pass.
func (s *spreading) filter(p fwk.FilterPlugin, state fwk.CycleState, goroutines int) (passed int) {
	forEach(s.infos, goroutines, func(n fwk.NodeInfo) int {
		if p.Filter(s.ctx, state, s.pod, n).IsSuccess() {
			return 1
		}
		return 0
	}, &passed)
	return passed
}

// dryRun tries out on the first nodes, as preemption does, what would be without their Pods,
// and which of these may stay. It returns how many may not.
func (s *spreading) dryRun(p cyclePlugin, state fwk.CycleState, nodes, goroutines int) (victims int) {
	extensions := p.PreFilterExtensions()
	forEach(s.infos[:nodes], goroutines, func(n fwk.NodeInfo) (victims int) {
		clone := state.Clone()
		for _, pod := range n.GetPods() {
			extensions.RemovePod(s.ctx, clone, s.pod, pod, n)
		}
		if !p.Filter(s.ctx, clone, s.pod, n).IsSuccess() {
			return 0
		}
		for _, pod := range n.GetPods() {
			extensions.AddPod(s.ctx, clone, s.pod, pod, n)
			if !p.Filter(s.ctx, clone, s.pod, n).IsSuccess() {
				extensions.RemovePod(s.ctx, clone, s.pod, pod, n)
				victims++
			}
		}
		return victims
	}, &victims)
	return victims
}

// forEach runs f for each node on goroutines and adds up what it returns.
func forEach(infos []fwk.NodeInfo, goroutines int, f func(fwk.NodeInfo) int, sum *int) {
	work := make(chan fwk.NodeInfo, len(infos))
	for _, n := range infos {
		work <- n
	}
	close(work)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range goroutines {
		wg.Go(func() {
			here := 0
			for n := range work {
				here += f(n)
			}
			mu.Lock()
			*sum += here
			mu.Unlock()
		})
	}
	wg.Wait()
}

// frameworkGoroutines is how many the framework filters and tries out on.
const frameworkGoroutines = 16

// benchSpreading measures examples/sched/topology-spread beside the same in Go.
func benchSpreading(b *bench, rt *host.Runtime) error {
	file, err := guestbuild.Build(b.ctx, source("../../examples/sched/topology-spread"))
	if err != nil {
		return err
	}
	const nodes, each, candidates = 1000, 3, 100
	s := newSpreading(b.ctx, nodes, each)
	what := fmt.Sprintf("%d Nodes, %d Pods", nodes, nodes*each)
	native := nativeSpread{}
	load := func(name, args string) (cyclePlugin, error) {
		p, err := loadPlugin(b, rt, name, file, args)
		if err != nil {
			return nil, err
		}
		return p.(cyclePlugin), nil
	}
	if err := benchFirstPreFilter(b, s, what, load, native); err != nil {
		return err
	}
	guest, err := load("spread", `, "limits": {"instances": 2}`)
	if err != nil {
		return err
	}
	var failed error
	begin := func(p fwk.PreFilterPlugin) fwk.CycleState {
		state, err := s.preFilter(p)
		if err != nil {
			failed = err
		}
		return state
	}
	theirs := begin(native)
	wantPassed, wantVictims := s.filter(native, theirs, 1), s.dryRun(native, theirs, candidates, 1)
	if wantPassed == 0 || wantPassed == nodes || wantVictims == 0 {
		return fmt.Errorf("%d of %d nodes pass, %d victims: there is nothing to tell apart", wantPassed, nodes, wantVictims)
	}
	check := func(kind string, got, want int) {
		if got != want {
			failed = fmt.Errorf("%s: %d, want %d as native", kind, got, want)
		}
	}
	cycle := func(p cyclePlugin, goroutines int) func(int) {
		return func(n int) {
			for range n {
				check("nodes that pass", s.filter(p, begin(p), goroutines), wantPassed)
			}
		}
	}
	// A cycle has a budget of guest time, so a state serves one round and not all of them.
	dryRuns := func(p cyclePlugin, goroutines int) func(int) {
		return func(n int) {
			state := begin(p)
			for range n {
				check("victims", s.dryRun(p, state, candidates, goroutines), wantVictims)
			}
		}
	}
	one, err := load("spread on one instance", `, "limits": {"instances": 1}`)
	if err != nil {
		return err
	}
	b.compareAll(
		comparison{"spreading guest: PreFilter, " + what, target{time: 5 * time.Millisecond}, func(n int) {
			for range n {
				begin(guest)
			}
		}, "native plugin", func(n int) {
			for range n {
				begin(native)
			}
		}},
		comparison{"the same with Filter of each, 16 goroutines", target{time: 10 * time.Millisecond}, cycle(guest, frameworkGoroutines), "native plugin", cycle(native, frameworkGoroutines)},
		comparison{"the same, two instances", target{ratio: 1.3}, cycle(guest, frameworkGoroutines), "one instance", cycle(one, frameworkGoroutines)},
		comparison{fmt.Sprintf("dry runs of %d Nodes, 16 goroutines", candidates), target{ratio: 5}, dryRuns(guest, frameworkGoroutines), "native plugin", dryRuns(native, frameworkGoroutines)},
		comparison{"the same on one goroutine", target{ratio: 5}, dryRuns(guest, 1), "native plugin", dryRuns(native, 1)},
	)
	return failed
}

// benchFirstPreFilter measures what a guest takes that has seen no object yet.
func benchFirstPreFilter(b *bench, s *spreading, what string, load func(name, args string) (cyclePlugin, error), native cyclePlugin) error {
	const most = 30 * time.Millisecond
	least := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for i := range 5 {
		guest, err := load(fmt.Sprint("first spread ", i), `, "limits": {"instances": 1}`)
		if err != nil {
			return err
		}
		for side, p := range []cyclePlugin{guest, native} {
			runtime.GC()
			least[side] = min(least[side], processorTime(func() { _, err = s.preFilter(p) }))
			if err != nil {
				return err
			}
		}
		if err := guest.(kube137.Plugin).Close(b.ctx); err != nil {
			return err
		}
	}
	b.add("spreading guest: processor time of the first PreFilter, "+what, short(least[0]), "native plugin", short(least[1]), float64(least[0])/float64(least[1]), "<= "+short(most), least[0] <= most)
	return nil
}

// nativeSpread does in Go what examples/sched/topology-spread does, as the scheduler's own
// plugin does it: for constraints without policies, of Pods without affinity.
type nativeSpread struct {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

const spreadKey = "spread"

type spreadState struct {
	constraints []spreadConstraint
	counts      []map[string]int
	least       []leastDomains
}

type spreadConstraint struct {
	key      string
	maxSkew  int
	selector labels.Selector
}

type leastDomains [2]struct {
	name string
	pods int
}

func (l *leastDomains) update(name string, pods int) {
	switch {
	case name == l[0].name:
		l[0].pods = pods
	case name == l[1].name:
		l[1].pods = pods
	case pods < l[0].pods:
		l[1] = l[0]
		l[0].name, l[0].pods = name, pods
	case pods < l[1].pods:
		l[1].name, l[1].pods = name, pods
	}
	if l[0].pods > l[1].pods {
		l[0], l[1] = l[1], l[0]
	}
}

func (s *spreadState) Clone() fwk.StateData {
	clone := &spreadState{constraints: s.constraints, least: append([]leastDomains(nil), s.least...)}
	for _, counts := range s.counts {
		clone.counts = append(clone.counts, maps.Clone(counts))
	}
	return clone
}

func (nativeSpread) Name() string { return "native spread" }

func (nativeSpread) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	s := &spreadState{}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return nil, fwk.AsStatus(err)
		}
		s.constraints = append(s.constraints, spreadConstraint{c.TopologyKey, int(c.MaxSkew), selector})
		s.counts = append(s.counts, make(map[string]int, len(nodes)))
		s.least = append(s.least, leastDomains{{pods: math.MaxInt32}, {pods: math.MaxInt32}})
	}
	for _, n := range nodes {
		if !s.has(n.Node()) {
			continue
		}
		for i, c := range s.constraints {
			count := 0
			for _, running := range n.GetPods() {
				p := running.GetPod()
				if p.DeletionTimestamp == nil && p.Namespace == pod.Namespace && c.selector.Matches(labels.Set(p.Labels)) {
					count++
				}
			}
			s.counts[i][n.Node().Labels[c.key]] += count
		}
	}
	for i, counts := range s.counts {
		for name, pods := range counts {
			s.least[i].update(name, pods)
		}
	}
	state.Write(spreadKey, s)
	return nil, nil
}

func (s *spreadState) has(node *corev1.Node) bool {
	for _, c := range s.constraints {
		if _, ok := node.Labels[c.key]; !ok {
			return false
		}
	}
	return true
}

func (p nativeSpread) PreFilterExtensions() fwk.PreFilterExtensions { return p }

func (nativeSpread) AddPod(_ context.Context, state fwk.CycleState, pod *corev1.Pod, added fwk.PodInfo, n fwk.NodeInfo) *fwk.Status {
	return spreadChange(state, pod, added.GetPod(), n.Node(), 1)
}

func (nativeSpread) RemovePod(_ context.Context, state fwk.CycleState, pod *corev1.Pod, removed fwk.PodInfo, n fwk.NodeInfo) *fwk.Status {
	return spreadChange(state, pod, removed.GetPod(), n.Node(), -1)
}

func spreadChange(state fwk.CycleState, pod, changed *corev1.Pod, node *corev1.Node, by int) *fwk.Status {
	v, err := state.Read(spreadKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	s := v.(*spreadState)
	if changed.Namespace != pod.Namespace || !s.has(node) {
		return nil
	}
	for i, c := range s.constraints {
		if c.selector.Matches(labels.Set(changed.Labels)) {
			name := node.Labels[c.key]
			s.counts[i][name] += by
			s.least[i].update(name, s.counts[i][name])
		}
	}
	return nil
}

func (nativeSpread) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	v, err := state.Read(spreadKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	s := v.(*spreadState)
	for i, c := range s.constraints {
		name, ok := n.Node().Labels[c.key]
		if !ok {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) didn't match pod topology spread constraints (missing required label)")
		}
		self := 0
		if c.selector.Matches(labels.Set(pod.Labels)) {
			self = 1
		}
		if s.counts[i][name]+self-s.least[i][0].pods > c.maxSkew {
			return fwk.NewStatus(fwk.Unschedulable, "node(s) didn't match pod topology spread constraints")
		}
	}
	return nil
}
