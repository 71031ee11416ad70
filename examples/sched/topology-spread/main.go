// The topology-spread guest keeps Pods spread over zones, nodes, or other domains that a
// label of nodes names. Its rules are those of the scheduler's own plugin
// PodTopologySpread, for the constraints that must be met (DoNotSchedule).
package main

import (
	"maps"
	"math"
	"slices"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// topologySpread has no configuration.
type topologySpread struct{}

// counted is a number of Pods of a node. It holds for a generation of the node.
type counted struct {
	generation int64
	pods       int
}

// uncounted are nodes whose Pods must be counted.
type uncounted struct {
	numbers []int
	nodes   []sched.NodeInfo
}

func (u *uncounted) add(number int, node sched.NodeInfo) {
	u.numbers, u.nodes = append(u.numbers, number), append(u.nodes, node)
}

// known are the Pods that this instance has counted on the nodes, in the nodes' order, by the
// namespace and the selector. The Pods of a Deployment come one after another, and few nodes
// change between two of them.
var known = map[string][]counted{}

// maxKnown is how many selectors have their counts remembered.
const maxKnown = 16

// knownOf returns what is known of each of so many nodes.
func (c *constraint) knownOf(namespace string, nodes int) []counted {
	of := namespace + "/" + c.selector.String()
	list, ok := known[of]
	if !ok && len(known) == maxKnown {
		clear(known)
	}
	if len(list) < nodes {
		list = append(list, make([]counted, nodes-len(list))...)
		known[of] = list
	}
	return list
}

const key = "spread"

// spread is the state of a scheduling cycle.
type spread struct {
	affinity    core.RequiredNodeAffinity
	constraints []constraint
	counts      []counts // One for each constraint.
}

// Clone implements sched.StateData: it copies the counts and shares the rest, which never
// changes.
func (s *spread) Clone() sched.StateData {
	clone := *s
	clone.counts = slices.Clone(s.counts)
	for i := range clone.counts {
		clone.counts[i].pods = slices.Clone(clone.counts[i].pods)
	}
	return &clone
}

// constraint is a constraint of the Pod, with the defaults of its missing
// fields.
type constraint struct {
	maxSkew, minDomains int
	topologyKey         string
	selector            meta.Selector
	// pods are those that it counts.
	pods                          sched.PodSelector
	ignoresAffinity, honorsTaints bool
	// self is 1 if the constraint counts the Pod itself, 0 otherwise.
	self int
}

// counts has the number of Pods in each domain.
type counts struct {
	// numbers are the indices of the domains by name. All clones share them.
	numbers map[string]int
	pods    []int
	// least are two domains with few Pods, the first with the fewest. A dry run changes
	// one domain only, so that two are enough.
	least [2]domain
}

type domain struct{ number, pods int }

// add adds Pods to a domain.
func (c *counts) add(name string, pods int) {
	number, ok := c.numbers[name]
	if !ok {
		number = len(c.pods)
		c.numbers[name] = number
		c.pods = append(c.pods, 0)
	}
	c.pods[number] += pods
}

// rank finds the domains with the fewest Pods.
func (c *counts) rank() {
	c.least = [2]domain{{-1, math.MaxInt32}, {-1, math.MaxInt32}}
	for number, pods := range c.pods {
		c.update(number, pods)
	}
}

// update sets the number of Pods of a domain.
func (c *counts) update(number, pods int) {
	l := &c.least
	switch {
	case number == l[0].number:
		l[0].pods = pods
	case number == l[1].number:
		l[1].pods = pods
	case pods < l[0].pods:
		l[0], l[1] = domain{number, pods}, l[0]
	case pods < l[1].pods:
		l[1] = domain{number, pods}
	}
	if l[0].pods > l[1].pods {
		l[0], l[1] = l[1], l[0]
	}
}

// PreFilter counts the Pods in each domain.
func (topologySpread) PreFilter(state sched.CycleState, pod core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	constraints, err := constraintsOf(pod)
	if err != nil {
		return nil, sched.AsStatus(err)
	}
	if len(constraints) == 0 {
		return nil, sched.NewStatus(abi.Skip)
	}
	s := &spread{affinity: pod.RequiredNodeAffinity(), constraints: constraints, counts: make([]counts, len(constraints))}
	for i := range s.counts {
		s.counts[i].numbers = map[string]int{}
	}
	namespace, of := pod.Metadata().Namespace(), make([][]counted, len(constraints))
	unknown := make([]uncounted, len(constraints))
	for i := range constraints {
		of[i] = constraints[i].knownOf(namespace, nodes.Len())
	}
	for n, node := range nodes.All {
		if !s.has(node.Node()) {
			continue
		}
		generation := node.Generation()
		for i := range s.constraints {
			c := &s.constraints[i]
			if !c.includes(s, pod, node.Node()) {
				continue
			}
			if k := of[i][n]; k.generation == generation { // Which no other node has.
				s.counts[i].add(c.domainOf(node.Node()), k.pods)
			} else {
				unknown[i].add(n, node)
			}
		}
	}
	for i, u := range unknown {
		c := &s.constraints[i]
		for j, pods := range c.pods.Count(u.nodes...) {
			of[i][u.numbers[j]] = counted{u.nodes[j].Generation(), pods}
			s.counts[i].add(c.domainOf(u.nodes[j].Node()), pods)
		}
	}
	for i := range s.counts {
		s.counts[i].rank()
	}
	state.Write(key, s)
	return nil, nil
}

// constraintsOf returns the constraints that must be met.
func constraintsOf(pod core.Pod) (list []constraint, err error) {
	for _, t := range pod.Spec().TopologySpreadConstraints() {
		if t.WhenUnsatisfiable() != core.DoNotSchedule {
			continue
		}
		c := constraint{maxSkew: int(t.MaxSkew()), minDomains: 1, topologyKey: t.TopologyKey()}
		if t.HasMinDomains() {
			c.minDomains = int(t.MinDomains())
		}
		c.ignoresAffinity = t.NodeAffinityPolicy() == core.NodeInclusionPolicyIgnore
		c.honorsTaints = t.NodeTaintsPolicy() == core.NodeInclusionPolicyHonor
		if c.selector, err = t.ParseSelector(pod); err != nil {
			return nil, err
		}
		if !c.selector.Empty() { // As in the scheduler, it counts none then.
			c.pods = sched.NewPodSelector(pod.Metadata().Namespace(), c.selector).WithoutTerminating()
		}
		if c.selector.Matches(pod.Metadata().Labels()) {
			c.self = 1
		}
		list = append(list, c)
	}
	return list, nil
}

// has reports whether a node is in a domain of each constraint.
func (s *spread) has(node core.Node) bool {
	labels := node.Metadata().Labels()
	for i := range s.constraints {
		if !labels.Has(s.constraints[i].topologyKey) {
			return false
		}
	}
	return true
}

// includes reports whether the Pods of a node count.
func (c *constraint) includes(s *spread, pod core.Pod, node core.Node) bool {
	if !c.ignoresAffinity {
		// Terms that are not valid match no node, as in the scheduler.
		if matches, _ := s.affinity.Matches(node); !matches {
			return false
		}
	}
	if c.honorsTaints {
		if _, found := core.FindUntolerated(node.Spec().Taints(), pod.Spec().Tolerations()); found {
			return false
		}
	}
	return true
}

func (c *constraint) domainOf(node core.Node) string {
	return node.Metadata().Labels().Get(c.topologyKey)
}

// AddPod counts one Pod more.
func (topologySpread) AddPod(state sched.CycleState, pod, added core.Pod, node sched.NodeInfo) *sched.Status {
	return change(state, pod, added, node.Node(), 1)
}

// RemovePod counts one Pod less.
func (topologySpread) RemovePod(state sched.CycleState, pod, removed core.Pod, node sched.NodeInfo) *sched.Status {
	return change(state, pod, removed, node.Node(), -1)
}

func change(state sched.CycleState, pod, changed core.Pod, node core.Node, by int) *sched.Status {
	s, status := of(state)
	if status != nil || changed.Metadata().Namespace() != pod.Metadata().Namespace() || !s.has(node) {
		return status
	}
	for i := range s.constraints {
		c, counts := &s.constraints[i], &s.counts[i]
		if !c.selector.Matches(changed.Metadata().Labels()) || !c.includes(s, pod, node) {
			continue
		}
		name := c.domainOf(node)
		number, ok := counts.numbers[name]
		if !ok { // Of a node that PreFilter has not seen. Clones share the numbers.
			counts.numbers, number = maps.Clone(counts.numbers), len(counts.pods)
			counts.numbers[name] = number
			counts.pods = append(counts.pods, 0)
		}
		counts.pods[number] += by
		counts.update(number, counts.pods[number])
	}
	return nil
}

func of(state sched.CycleState) (*spread, *sched.Status) {
	v, ok := state.Read(key)
	if !ok {
		return nil, sched.NewStatus(abi.Error, "PreFilter has not run")
	}
	return v.(*spread), nil
}

// Filter refuses nodes of domains that have too many Pods already.
func (topologySpread) Filter(state sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	s, status := of(state)
	if status != nil {
		return status
	}
	labels := node.Node().Metadata().Labels()
	for i := range s.constraints {
		c, counts := &s.constraints[i], &s.counts[i]
		name, ok := labels.Lookup(c.topologyKey)
		if !ok {
			return sched.UnschedulableAndUnresolvable("node(s) didn't match pod topology spread constraints (missing required label)")
		}
		least := counts.least[0].pods
		if len(counts.pods) < c.minDomains {
			least = 0
		}
		pods := 0
		if number, ok := counts.numbers[name]; ok {
			pods = counts.pods[number]
		}
		if pods+c.self-least > c.maxSkew {
			return sched.Unschedulable("node(s) didn't match pod topology spread constraints")
		}
	}
	return nil
}

func init() { sched.Register(topologySpread{}) }

func main() {}
