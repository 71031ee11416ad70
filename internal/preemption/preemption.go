// Package preemption chooses the Pods to evict for a Pod that fits on no node, by the rules of
// k8s.io/kubernetes/pkg/scheduler/framework/preemption. It needs nothing of that module, which the
// adapters of the scheduler do not import, and no scheduler: a kit for tests has none.
package preemption

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// DryRun is a copy of a node, and of the state of the scheduling cycle, on which Pods are removed and
// added on trial.
type DryRun struct {
	Node string
	// Potential returns the Pods of the node that may be evicted. It is called once, before Remove.
	Potential func() ([]*corev1.Pod, error)
	// Remove removes a Pod from the node, and Add adds one that was removed.
	Remove, Add func(*corev1.Pod) error
	// Fits reports whether the Pod of the cycle fits on the node as it is now, and otherwise why
	// not. An error ends the dry run.
	Fits func() (fits bool, reasons []string, err error)
}

// Candidate is a node on which the Pod fits without the victims.
type Candidate struct {
	Node string
	// Victims are the Pods to evict, the most important first.
	Victims []*corev1.Pod
	// Violations is the number of victims that a PodDisruptionBudget does not allow to evict.
	Violations int
}

// Preemption is the search for the node and the victims of a Pod.
type Preemption struct {
	Pod *corev1.Pod
	// Nodes is the number of nodes that may have room without some of their Pods, and DryRun returns
	// one of them, counted from 0. It is called on several goroutines.
	Nodes  int
	DryRun func(n int) (*DryRun, error)
	// Nominated is nil unless the Pod is nominated for a node, on which it may still fit once its
	// victims are gone.
	Nominated func() (*DryRun, error)
	// Budgets are the PodDisruptionBudgets of the cluster.
	Budgets []*policyv1.PodDisruptionBudget
	// Extend returns the candidates that others than plugins leave, with their victims. It is nil if there
	// are no others.
	Extend func([]*Candidate) ([]*Candidate, error)
	// Parallel calls work for each piece, counted from 0, and returns when all calls have.
	Parallel func(pieces int, work func(piece int))
}

// candidates are as many as the scheduler's own preemption wants by default: a tenth of the nodes, at
// least 100.
const (
	minCandidates        = 100
	minCandidatesPercent = 10
)

// Refusal is the error of a search that finds no node.
type Refusal struct {
	Reason string
	// Pending is set if the Pod is not to preempt others now. Its nomination stays then.
	Pending bool
}

func (r *Refusal) Error() string { return r.Reason }

// Find returns the best node and its victims, the most important first. The error is a [*Refusal], or
// that of a dry run.
func (p *Preemption) Find(ctx context.Context) (node string, victims []*corev1.Pod, _ error) {
	if policy := p.Pod.Spec.PreemptionPolicy; policy != nil && *policy == corev1.PreemptNever {
		return "", nil, &Refusal{"not eligible due to preemptionPolicy=Never.", true}
	}
	switch pending, err := p.pending(); {
	case err != nil:
		return "", nil, err
	case pending:
		return "", nil, &Refusal{"not eligible due to a terminating pod on the nominated node.", true}
	}
	s := search{Preemption: p, found: make([]*Candidate, p.Nodes), reasons: map[string]int{}}
	s.wanted = min(p.Nodes, max(minCandidates, p.Nodes*minCandidatesPercent/100))
	if s.wanted < p.Nodes {
		s.offset = rand.IntN(p.Nodes)
	}
	ctx, s.enough = context.WithCancel(ctx)
	defer s.enough()
	p.Parallel(p.Nodes, func(n int) {
		if ctx.Err() == nil {
			s.try((n + s.offset) % p.Nodes)
		}
	})
	candidates := slices.DeleteFunc(s.found, func(c *Candidate) bool { return c == nil })
	if len(candidates) != 0 && p.Extend != nil {
		var err error
		if candidates, err = p.Extend(candidates); err != nil {
			return "", nil, err
		}
		if len(candidates) == 0 {
			return "", nil, &Refusal{"no candidate node for preemption", true}
		}
	}
	switch {
	case len(candidates) != 0:
		best := pick(candidates)
		return best.Node, best.Victims, nil
	case s.err != nil:
		return "", nil, s.err
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	}
	return "", nil, &Refusal{Reason: s.refusal()}
}

// pending reports whether a Pod that the guest would evict for the Pod is ending on its node.
func (p *Preemption) pending() (bool, error) {
	if p.Nominated == nil {
		return false, nil
	}
	run, err := p.Nominated()
	if run == nil || err != nil {
		return false, err
	}
	pods, err := run.Potential()
	return slices.ContainsFunc(pods, terminating), err
}

// terminating reports whether the scheduler has evicted a Pod for another one.
func terminating(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
	})
}

// search is a running Find.
type search struct {
	*Preemption
	offset, wanted int
	enough         context.CancelFunc

	mu sync.Mutex
	// found has a place for each node, so that the order of goroutines does not matter.
	found       []*Candidate
	count, kept int // candidates, and those that keep all budgets.
	reasons     map[string]int
	err         error // The first.
}

// try looks for victims on a node.
func (s *search) try(n int) {
	run, err := s.DryRun(n)
	var c *Candidate
	var reasons []string
	if err == nil {
		c, reasons, err = run.victims(s.Budgets)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.err == nil:
		s.err = err
	case c == nil:
		for _, reason := range reasons {
			s.reasons[reason]++
		}
		return
	case err == nil:
		s.found[n] = c
		if s.count++; c.Violations == 0 {
			s.kept++
		}
	}
	if s.kept > 0 && s.count >= s.wanted {
		s.enough()
	}
}

// refusal returns the reason why no node is a candidate.
func (s *search) refusal() string {
	if s.Nodes == 0 {
		return "Preemption is not helpful for scheduling"
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		list = append(list, fmt.Sprintf("%d %s", s.reasons[reason], reason))
	}
	return fmt.Sprintf("0/%d nodes have room without some of their Pods: %s", s.Nodes, strings.Join(list, ", "))
}

// victims returns the fewest Pods without which the Pod fits, nil if it does not.
func (r *DryRun) victims(budgets []*policyv1.PodDisruptionBudget) (*Candidate, []string, error) {
	potential, err := r.Potential()
	if err != nil {
		return nil, nil, err
	}
	if len(potential) == 0 {
		return nil, []string{"No preemption victims found for incoming pod"}, nil
	}
	for _, pod := range potential {
		if err := r.Remove(pod); err != nil {
			return nil, nil, err
		}
	}
	if fits, reasons, err := r.Fits(); err != nil || !fits {
		return nil, reasons, err
	}
	potential = slices.Clone(potential)
	sortByImportance(potential)
	violating, others := split(potential, budgets)
	c := &Candidate{Node: r.Node}
	// The budgets come first, so that they are kept if that is possible.
	for i, pods := range [][]*corev1.Pod{violating, others} {
		for _, pod := range pods {
			evicted, err := r.keep(pod)
			if err != nil {
				return nil, nil, err
			}
			if evicted {
				c.Victims = append(c.Victims, pod)
				if i == 0 {
					c.Violations++
				}
			}
		}
	}
	if len(c.Victims) == 0 {
		return nil, nil, fmt.Errorf("the Pod fits on the node %q without a victim", r.Node)
	}
	sortByImportance(c.Victims)
	return c, nil, nil
}

// keep adds a Pod again, and removes it if the Pod of the cycle does not fit beside it.
func (r *DryRun) keep(pod *corev1.Pod) (evicted bool, err error) {
	if err := r.Add(pod); err != nil {
		return false, err
	}
	fits, _, err := r.Fits()
	if fits || err != nil {
		return false, err
	}
	return true, r.Remove(pod)
}

// split returns the Pods whose eviction violates a budget, if those before them are evicted, and the
// others.
func split(pods []*corev1.Pod, budgets []*policyv1.PodDisruptionBudget) (violating, others []*corev1.Pod) {
	allowed := make([]int32, len(budgets))
	selectors := make([]labels.Selector, len(budgets))
	for i, b := range budgets {
		allowed[i], selectors[i] = b.Status.DisruptionsAllowed, labels.Nothing()
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && !s.Empty() {
			selectors[i] = s
		}
	}
	for _, pod := range pods {
		violates := false
		for i, b := range budgets {
			if b.Namespace != pod.Namespace || len(pod.Labels) == 0 || !selectors[i].Matches(labels.Set(pod.Labels)) {
				continue
			}
			if _, counted := b.Status.DisruptedPods[pod.Name]; counted {
				continue
			}
			if allowed[i]--; allowed[i] < 0 {
				violates = true
			}
		}
		if violates {
			violating = append(violating, pod)
		} else {
			others = append(others, pod)
		}
	}
	return violating, others
}

// Priority returns the priority of a Pod.
func Priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority != nil {
		return *pod.Spec.Priority
	}
	return 0
}

// sortByImportance puts the Pods of the highest priority first, and among them the oldest.
func sortByImportance(pods []*corev1.Pod) {
	now := time.Now()
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if x, y := Priority(a), Priority(b); x != y {
			return cmp.Compare(y, x)
		}
		return started(a, now).Compare(started(b, now))
	})
}

// started returns the time at which a Pod has started, now if it has not.
func started(pod *corev1.Pod, now time.Time) time.Time {
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return now
}

// pick returns the best candidate: by the fewest violated budgets, the lowest priority of the first
// victim, the lowest sum of priorities, the fewest victims, the latest start of the oldest one among
// those of the highest priority, and then the order of nodes.
func pick(candidates []*Candidate) *Candidate {
	now := time.Now()
	scores := []func(*Candidate) int64{
		func(c *Candidate) int64 { return -int64(c.Violations) },
		func(c *Candidate) int64 { return -int64(Priority(c.Victims[0])) },
		func(c *Candidate) (sum int64) {
			for _, pod := range c.Victims {
				sum -= int64(Priority(pod)) + math.MaxInt32 + 1 // Above 0, so that fewer victims are better.
			}
			return sum
		},
		func(c *Candidate) int64 { return -int64(len(c.Victims)) },
		func(c *Candidate) int64 { return started(c.Victims[0], now).UnixNano() },
	}
	for _, score := range scores {
		best := int64(math.MinInt64)
		var left []*Candidate
		for _, c := range candidates {
			n := score(c)
			if n > best {
				best, left = n, nil
			}
			if n == best {
				left = append(left, c)
			}
		}
		candidates = left
	}
	return candidates[0]
}
