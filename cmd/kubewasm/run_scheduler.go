package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/sched"
)

// scheduling is the run of a scheduler plugin.
type scheduling struct {
	*trial
	plugin  *sched.Plugin
	cluster *framework.Cluster
	// waiting are the Pods that Permit makes wait.
	waiting []*cycle
}

// schedule schedules each Pod without a Node, as the scheduler does.
func (t *trial) schedule(ctx context.Context) error {
	pods := slices.DeleteFunc(slices.Clone(t.objects.Pods), func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	if len(pods) == 0 || len(t.objects.Nodes) == 0 {
		hint := ""
		for _, o := range t.objects.All {
			for _, kind := range []string{"Node", "Pod"} {
				if meant := corev1.SchemeGroupVersion.WithKind(kind); o.GroupVersionKind() != meant && strings.EqualFold(strings.TrimSuffix(strings.ToLower(o.Kind), "s"), kind) {
					hint = fmt.Sprintf("; the %s %s is of kind %s in %s, want %s in v1", o.Kind, o.Name, o.Kind, o.APIVersion, kind)
				}
			}
		}
		return fmt.Errorf("a scheduler plugin needs Pods without a spec.nodeName and Nodes, and there are %d and %d%s", len(pods), len(t.objects.Nodes), hint)
	}
	for _, pod := range pods {
		if pod.UID == "" {
			pod.UID = types.UID(pod.Namespace + "/" + pod.Name) // A Pod that waits is known by it.
		}
	}
	cluster, err := framework.NewCluster(t.objects)
	if err != nil {
		return err
	}
	t.warn(cluster.Warnings)
	for _, pod := range pods { // Lists have them with the same UIDs.
		if err := cluster.Informers[corev1.SchemeGroupVersion.WithResource("pods")].Update(pod); err != nil {
			return err
		}
	}
	cluster.Recorder, cluster.Activates, cluster.Applies = t.reportEvent, t.reportActivated, t.reportApplied
	p, err := t.loadScheduler(ctx, cluster)
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx))
	t.loaded()
	s := &scheduling{trial: t, plugin: p, cluster: cluster}
	for _, pod := range pods {
		s.schedulePod(pod)
		for s.wake() {
		}
	}
	if t.state {
		for key, value := range p.Guest().SharedState() {
			t.verdicts.add(verdict{heads: schedulerHeads, Object: strconv.Quote(key), Node: "(state)", Verdict: "entry", Message: entryText(value)})
		}
	}
	return nil
}

// entryText returns the value of an entry of the state as text: of 8 bytes it is the number of a
// counter.
func entryText(value []byte) string {
	if len(value) == 8 {
		return strconv.FormatInt(int64(binary.LittleEndian.Uint64(value)), 10)
	}
	return strconv.Quote(string(value))
}

// loadScheduler loads the plugin into a scheduler.
func (t *trial) loadScheduler(ctx context.Context, cluster *framework.Cluster) (*sched.Plugin, error) {
	cfg := sched.PluginConfig{Config: t.cfg}
	if slices.Contains(cfg.Grants, host.GrantObjects) {
		cfg.Objects = lookup.TestGrants(cluster.Resources...)
	}
	return sched.Load(ctx, t.rt, cfg, framework.Of(cluster.Handle))
}

// reportEvent prints an event that the plugin reports.
func (t *trial) reportEvent(regarding, _ runtime.Object, eventType, reason, _, note string) {
	about := ""
	if m, err := meta.Accessor(regarding); err == nil {
		about = m.GetNamespace() + "/" + m.GetName()
	}
	t.verdicts.add(verdict{heads: schedulerHeads, Object: about, Node: "(event)", Verdict: eventType, Message: reason + ": " + note})
}

// reportActivated prints Pods that the plugin activates.
func (t *trial) reportActivated(pods []types.NamespacedName) {
	for _, pod := range pods {
		t.verdicts.add(verdict{heads: schedulerHeads, Object: pod.String(), Node: "(activated)", Verdict: "Activated", Message: "the queue tries the Pod again"})
	}
}

// reportApplied prints what the plugin has applied to an object.
func (t *trial) reportApplied(of sched.Applied) {
	what := "status " + string(of.Status)
	if of.Annotations != nil {
		what = "annotations"
		for _, key := range slices.Sorted(maps.Keys(of.Annotations)) {
			what += fmt.Sprintf(" %s=%q", key, of.Annotations[key])
		}
	}
	t.verdicts.add(verdict{heads: schedulerHeads, Object: strings.TrimPrefix(of.Namespace+"/"+of.Name, "/"), Node: "(applied)", Verdict: of.Resource.Resource, Message: what})
}

// cycle is the scheduling of one Pod.
type cycle struct {
	pod   *corev1.Pod
	name  string // Namespace and name of the Pod.
	state *sched.Cycle
	// node is the chosen Node, empty before.
	node string
	// permit is the Pod in Permit while it waits.
	permit *framework.WaitingPod
}

// candidate is a Node for a Pod.
type candidate struct {
	name   string
	status *sched.Status
	score  int64
	scored bool
	fuel   int64
	took   time.Duration
}

// pays adds the cost of the calls since the last take.
func (c *candidate) pays(counter *fuelCounter) {
	fuel, took := counter.take()
	c.fuel, c.took = c.fuel+fuel, c.took+took
}

// implements reports whether the plugin implements an extension point. The framework's interfaces
// do not show that: a plugin may have a method that answers for the guest.
func (s *scheduling) implements(f abi.Function) bool { return s.plugin.Functions().Has(f) }

// schedulePod chooses a Node for a Pod and binds the Pod to it.
func (s *scheduling) schedulePod(pod *corev1.Pod) {
	c := &cycle{pod: pod, name: pod.Namespace + "/" + pod.Name, state: s.plugin.Begin(pod)}
	if s.implements(abi.PreEnqueue) && !s.report(c, "PreEnqueue", s.plugin.PreEnqueue(pod)) {
		return
	}
	var only []string // nil for all.
	skip := false
	if s.implements(abi.PreFilter) {
		names, status := s.plugin.PreFilter(c.state, s.cluster.Snapshot)
		if !s.report(c, "PreFilter", status) {
			if status.Code() == abi.Unschedulable {
				s.preempt(c, s.cluster.Snapshot)
			}
			return
		}
		only, skip = names, status.Code() == abi.Skip
	}
	var candidates, passed []*candidate
	var nodes framework.Nodes
	for _, info := range s.cluster.Snapshot {
		n := &candidate{name: info.Node().Name}
		candidates = append(candidates, n)
		switch {
		case only != nil && !slices.Contains(only, n.name):
			n.status = sched.NewStatus(abi.Unschedulable, "PreFilter left it out")
		case s.implements(abi.PotentialVictims) && info.Lacks(pod) != nil:
			// Preemption makes sense where nodes are full.
			n.status = sched.NewStatus(abi.Unschedulable, info.Lacks(pod)...)
		case s.implements(abi.Filter) && !skip:
			n.status = s.plugin.Filter(c.state, info)
		}
		if n.status.Code() == abi.Error {
			s.failed(n.status.AsError(), "Filter of the Pod %s for the Node %s", c.name, n.name)
		}
		if n.status == nil {
			passed, nodes = append(passed, n), append(nodes, info)
		}
		n.pays(&s.fuel)
	}
	scored := !s.implements(abi.Score) || len(passed) == 0 || s.score(c, passed, nodes)
	var best *candidate
	for _, n := range candidates {
		s.printCandidate(c, n)
		if n.status == nil && (best == nil || n.score > best.score) {
			best = n
		}
	}
	if !scored {
		return // The scheduler tries the Pod again later.
	}
	if best == nil {
		s.refusals++
		s.noNode(c)
		s.postFilter(c, candidates)
		var refusing framework.Nodes
		for i, n := range candidates {
			if n.status.Code() == abi.Unschedulable {
				refusing = append(refusing, s.cluster.Snapshot[i])
			}
		}
		s.preempt(c, refusing)
		return
	}
	c.node = best.name
	s.reserve(c)
}

func (s *scheduling) printCandidate(c *cycle, n *candidate) {
	reason, score := n.status.Message(), ""
	if n.status.Code() == abi.Error {
		reason = n.status.AsError().Error() // Its stack is printed at the end.
	}
	if n.scored {
		score = fmt.Sprint(n.score)
	}
	s.verdicts.add(verdict{heads: schedulerHeads, Object: c.name, Node: n.name, Verdict: n.status.Code().String(), Score: score, Cost: &callCost{n.took, n.fuel}, Message: reason, bad: n.status.Code() == abi.Error})
}

// noNode marks the verdicts about the Nodes of a Pod that fits none as bad ones.
func (s *scheduling) noNode(c *cycle) {
	for i := range s.verdicts.Verdicts {
		if one := &s.verdicts.Verdicts[i]; one.Object == c.name && !strings.HasPrefix(one.Node, "(") {
			one.bad = true
		}
	}
}

// report prints the status of an extension point that is called once for a Pod, and reports whether
// the Pod goes on.
func (s *scheduling) report(c *cycle, point string, status *sched.Status) bool {
	reason, bad := status.Message(), true
	switch {
	case status.Code() == abi.Error:
		reason = status.AsError().Error()
		s.failed(status.AsError(), "%s of the Pod %s", point, c.name)
	case status != nil && status.Code() != abi.Skip && status.Code() != abi.Wait:
		s.refusals++
	default:
		bad = false
	}
	s.print(c, point, status.Code().String(), reason, bad)
	return status == nil || status.Code() == abi.Skip
}

// print prints a line about a call for a Pod and, once a Node is chosen, the Node.
func (s *scheduling) print(c *cycle, point, word, reason string, bad bool) {
	if c.node != "" {
		point += " on " + c.node
	}
	s.verdicts.add(verdict{heads: schedulerHeads, Object: c.name, Node: "(" + point + ")", Verdict: word, Cost: s.cost(), Message: reason, bad: bad})
}

// score gives the Nodes that passed their scores, by PreScore, Score and NormalizeScore, and
// reports whether the scheduler goes on with the Pod.
func (s *scheduling) score(c *cycle, passed []*candidate, nodes framework.Nodes) (ok bool) {
	if s.implements(abi.PreScore) {
		status := s.plugin.PreScore(c.state, nodes)
		if !s.report(c, "PreScore", status) || status.Code() == abi.Skip {
			return status.Code() == abi.Skip
		}
	}
	ok = true
	var scored []*candidate
	var scores framework.Scores
	for i, n := range passed {
		score, status := s.plugin.Score(c.state, nodes[i])
		if status == nil {
			scored, scores = append(scored, n), append(scores, framework.Score{Name: n.name, Score: score})
		} else {
			n.status, ok = status, false
			s.failed(status.AsError(), "Score of the Pod %s for the Node %s", c.name, n.name)
		}
		n.pays(&s.fuel)
	}
	if s.implements(abi.NormalizeScore) && len(scores) > 0 {
		if status := s.plugin.NormalizeScore(c.state, scores); status != nil {
			ok = false
			s.failed(status.AsError(), "NormalizeScore of the Pod %s", c.name)
		}
		s.fuel.take()
	}
	for i, n := range scored {
		n.score, n.scored = scores[i].Score, true
		if n.score < 0 || n.score > maxNodeScore {
			ok = false
			err := fmt.Errorf("the scheduler refuses the score %d: it must lie between 0 and %d", n.score, maxNodeScore)
			if !s.implements(abi.NormalizeScore) {
				err = fmt.Errorf("%w, or NormalizeScore must bring it there", err)
			}
			n.status = sched.NewStatus(abi.Error, err.Error())
			s.failed(err, "Score of the Pod %s for the Node %s", c.name, n.name)
		}
	}
	return ok
}

// maxNodeScore is the highest score that the scheduler accepts. The lowest is 0.
const maxNodeScore = 100

// postFilter lets the plugin make room for a Pod that fits no Node.
func (s *scheduling) postFilter(c *cycle, candidates []*candidate) {
	if !s.implements(abi.PostFilter) {
		return
	}
	result, status := s.plugin.PostFilter(c.state, func() (list []schedmsg.NodeStatus) {
		for _, n := range candidates {
			list = append(list, schedmsg.NodeStatus{NodeName: n.name, Code: n.status.Code(), Message: n.status.Message()})
		}
		return list
	})
	switch {
	case status.Code() == abi.Error:
		s.report(c, "PostFilter", status)
	case result != nil && result.Override && result.NodeName != "":
		s.print(c, "PostFilter", status.Code().String(), "nominates "+result.NodeName, false)
	default:
		s.print(c, "PostFilter", status.Code().String(), status.Message(), false)
	}
}

// preempt lets the plugin name the Pods of nodes that may be evicted for a Pod, which leave the nodes.
func (s *scheduling) preempt(c *cycle, nodes framework.Nodes) {
	if !s.implements(abi.PotentialVictims) {
		return
	}
	nomination, victims, status := s.cluster.MakeRoom(s.plugin, c.state, c.pod, nodes)
	if nomination == nil || nomination.NodeName == "" {
		if status.Code() == abi.Error {
			s.report(c, "PotentialVictims", status)
			return
		}
		s.print(c, "PotentialVictims", status.Code().String(), status.Message(), false)
		return
	}
	s.print(c, "PotentialVictims", status.Code().String(), "nominates "+nomination.NodeName, false)
	for _, victim := range victims {
		s.verdicts.add(verdict{heads: schedulerHeads, Object: victim.Namespace + "/" + victim.Name, Node: nomination.NodeName, Verdict: "Evicted", Message: "preempted by " + c.name})
	}
}

// reserve calls Reserve and Permit for the chosen Node, and binds the Pod unless it waits.
func (s *scheduling) reserve(c *cycle) {
	if s.implements(abi.Reserve) && !s.report(c, "Reserve", s.plugin.Reserve(c.state, c.pod, c.node)) {
		s.unreserve(c)
		return
	}
	if s.implements(abi.Permit) {
		status, wait := s.plugin.Permit(c.state, c.pod, c.node)
		if status.Code() == abi.Wait {
			s.print(c, "Permit", status.Code().String(), strings.TrimPrefix(status.Message()+", at most "+wait.String(), ", "), false)
			c.permit = &framework.WaitingPod{Pod: c.pod, Pending: []string{s.cfg.Name}}
			s.waiting, s.cluster.Waiting = append(s.waiting, c), append(s.cluster.Waiting, c.permit)
			return
		}
		if !s.report(c, "Permit", status) {
			s.unreserve(c)
			return
		}
	}
	s.bind(c)
}

// wake binds the Pods that the plugin has allowed while they waited, gives up those that
// it has rejected, and reports whether there were any.
func (s *scheduling) wake() bool {
	var ready []*cycle
	s.waiting = slices.DeleteFunc(s.waiting, func(c *cycle) bool {
		if c.permit.Result() == "" {
			return false
		}
		ready = append(ready, c)
		return true
	})
	s.cluster.Waiting = slices.DeleteFunc(s.cluster.Waiting, func(w *framework.WaitingPod) bool { return w.Result() != "" })
	for _, c := range ready {
		result := c.permit.Result()
		if reason, rejected := strings.CutPrefix(result, "rejected by "+s.cfg.Name+": "); rejected {
			s.refusals++
			s.print(c, "Permit", "rejected", reason, true)
			s.unreserve(c)
			continue
		}
		s.print(c, "Permit", "allowed", "", false)
		s.bind(c)
	}
	return len(ready) != 0
}

// ended is the context of PreBind: no object changes while it waits.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// bind calls PreBind and Bind, and then PostBind.
func (s *scheduling) bind(c *cycle) {
	if s.implements(abi.PreBind) {
		_, status := s.plugin.PreBindPreFlight(c.state, c.pod, c.node)
		switch {
		case status.Code() == abi.Skip:
			s.print(c, "PreBindPreFlight", status.Code().String(), "", false)
		case status != nil:
			s.report(c, "PreBindPreFlight", status)
			s.unreserve(c)
			return
		case !s.report(c, "PreBind", s.plugin.PreBind(ended, c.state, c.pod, c.node)):
			s.unreserve(c)
			return
		}
	}
	if s.implements(abi.Bind) && !s.report(c, "Bind", s.plugin.Bind(c.state, c.pod, c.node)) {
		s.unreserve(c)
		return
	}
	if s.implements(abi.PostBind) {
		s.plugin.PostBind(c.state, c.pod, c.node)
		s.printInform(c, "PostBind")
	}
}

// unreserve tells the plugin that the Pod is not bound to the Node.
func (s *scheduling) unreserve(c *cycle) {
	if s.implements(abi.Unreserve) {
		s.plugin.Unreserve(c.state, c.pod, c.node)
		s.printInform(c, "Unreserve")
	}
}

// printInform prints a call that returns nothing.
func (s *scheduling) printInform(c *cycle, point string) {
	if err := s.fuel.failed(); err != nil {
		s.failed(err, "%s of the Pod %s", point, c.name)
		s.print(c, point, abi.Error.String(), err.Error(), true)
		return
	}
	s.print(c, point, abi.Success.String(), "", false)
}
