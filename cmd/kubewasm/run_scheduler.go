package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/testkit/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// scheduling is the run of a scheduler plugin.
type scheduling struct {
	*trial
	plugin  sched.Plugin
	cluster *framework.Cluster
	// waiting are the Pods that Permit lets wait.
	waiting []*cycle
}

// schedule schedules each Pod without a Node, as the scheduler does.
func (t *trial) schedule(ctx context.Context) error {
	pods := slices.DeleteFunc(slices.Clone(t.objects.Pods), func(pod *corev1.Pod) bool { return pod.Spec.NodeName != "" })
	if len(pods) == 0 || len(t.objects.Nodes) == 0 {
		return fmt.Errorf("a scheduler plugin needs Pods without a spec.nodeName and Nodes, and there are %d and %d", len(pods), len(t.objects.Nodes))
	}
	cluster, err := framework.NewCluster(t.objects)
	if err != nil {
		return err
	}
	cluster.Recorder = recorder{t}
	p, err := t.loadScheduler(ctx, cluster)
	if err != nil {
		return err
	}
	defer p.Close(context.WithoutCancel(ctx))
	t.fuel.take()
	fmt.Fprintln(t.out, "POD\tNODE\tVERDICT\tSCORE\tTIME\tFUEL\tREASON")
	s := &scheduling{trial: t, plugin: p, cluster: cluster}
	for _, pod := range pods {
		if pod.UID == "" {
			pod.UID = types.UID(pod.Namespace + "/" + pod.Name) // A Pod that waits is known by it.
		}
		s.schedulePod(ctx, pod)
		for s.wake(ctx) {
		}
	}
	return nil
}

// loadScheduler loads the plugin into a scheduler.
func (t *trial) loadScheduler(ctx context.Context, cluster *framework.Cluster) (sched.Plugin, error) {
	cfg := sched.PluginConfig{Config: t.cfg, Handle: cluster.Handle}
	if slices.Contains(cfg.Grants, sched.GrantObjects) {
		cfg.Objects = cluster.Resources
	}
	return sched.Load(ctx, t.rt, cfg)
}

// recorder prints the events that the plugin reports.
type recorder struct{ *trial }

func (r recorder) WithLogger(klog.Logger) events.EventRecorderLogger { return r }

func (r recorder) Eventf(regarding, _ runtime.Object, eventType, reason, _, note string, args ...any) {
	about := ""
	if m, err := meta.Accessor(regarding); err == nil {
		about = m.GetNamespace() + "/" + m.GetName()
	}
	fmt.Fprintf(r.out, "%s\t(event)\t%s\t\t\t\t%s: %s\n", about, eventType, reason, fmt.Sprintf(note, args...))
}

// cycle is the scheduling of one Pod.
type cycle struct {
	pod   *corev1.Pod
	name  string // Namespace and name of the Pod.
	state fwk.CycleState
	// node is the Node that was chosen, empty before.
	node string
	// permit is the Pod in Permit while it waits.
	permit *framework.WaitingPod
}

// candidate is a Node for a Pod.
type candidate struct {
	name   string
	status *fwk.Status
	score  int64
	scored bool
	fuel   int64
	took   time.Duration
}

// pays adds what the calls since the last take took.
func (c *candidate) pays(counter *fuelCounter) {
	fuel, took := counter.take()
	c.fuel, c.took = c.fuel+fuel, c.took+took
}

// implements reports whether the plugin implements an extension point. The framework's
// interfaces do not tell: a plugin may have a method that answers for the guest.
func (s *scheduling) implements(f abi.Function) bool { return s.plugin.Functions().Has(f) }

// schedulePod chooses a Node for a Pod and binds the Pod to it.
func (s *scheduling) schedulePod(ctx context.Context, pod *corev1.Pod) {
	c := &cycle{pod: pod, name: pod.Namespace + "/" + pod.Name, state: framework.NewCycleState()}
	if s.implements(abi.PreEnqueue) && !s.report(c, "PreEnqueue", s.plugin.(fwk.PreEnqueuePlugin).PreEnqueue(ctx, pod)) {
		return
	}
	infos := make([]fwk.NodeInfo, len(s.cluster.Nodes))
	for i, n := range s.cluster.Nodes {
		infos[i] = n
	}
	var only *fwk.PreFilterResult
	skip := false
	if s.implements(abi.PreFilter) {
		result, status := s.plugin.(fwk.PreFilterPlugin).PreFilter(ctx, c.state, pod, infos)
		if !s.report(c, "PreFilter", status) {
			return
		}
		only, skip = result, status.IsSkip()
	}
	var candidates, passed []*candidate
	var nodes []fwk.NodeInfo
	for _, info := range infos {
		n := &candidate{name: info.Node().Name}
		candidates = append(candidates, n)
		switch {
		case !only.AllNodes() && !only.NodeNames.Has(n.name):
			n.status = fwk.NewStatus(fwk.Unschedulable, "PreFilter left it out")
		case s.implements(abi.Filter) && !skip:
			n.status = s.plugin.(fwk.FilterPlugin).Filter(ctx, c.state, pod, info)
		}
		if n.status.Code() == fwk.Error {
			s.failed(n.status.AsError(), "Filter of the Pod %s for the Node %s", c.name, n.name)
		}
		if n.status.IsSuccess() {
			passed, nodes = append(passed, n), append(nodes, info)
		}
		n.pays(&s.fuel)
	}
	if s.implements(abi.Score) && len(passed) > 0 {
		s.score(ctx, c, passed, nodes)
	}
	var best *candidate
	for _, n := range candidates {
		s.printCandidate(c, n)
		if n.status.IsSuccess() && (best == nil || n.score > best.score) {
			best = n
		}
	}
	if best == nil {
		s.refusals++
		s.postFilter(ctx, c, candidates)
		return
	}
	c.node = best.name
	s.reserve(ctx, c)
}

func (s *scheduling) printCandidate(c *cycle, n *candidate) {
	reason, score := n.status.Message(), ""
	if n.status.Code() == fwk.Error {
		reason = n.status.AsError().Error() // Its stack is printed at the end.
	}
	if n.scored {
		score = fmt.Sprint(n.score)
	}
	fmt.Fprintf(s.out, "%s\t%s\t%s\t%s\t%s\t%s\n", c.name, n.name, n.status.Code(), score, cost(n.fuel, n.took), reason)
}

// report prints the status of an extension point that is called once for a Pod, and
// returns whether the Pod goes on.
func (s *scheduling) report(c *cycle, point string, status *fwk.Status) bool {
	reason := status.Message()
	if status.Code() == fwk.Error {
		reason = status.AsError().Error()
		s.failed(status.AsError(), "%s of the Pod %s", point, c.name)
	} else if !status.IsSuccess() && !status.IsSkip() && !status.IsWait() {
		s.refusals++
	}
	s.print(c, point, status.Code().String(), reason)
	return status.IsSuccess() || status.IsSkip()
}

// print prints a line about a call for a Pod and, after one was chosen, its Node.
func (s *scheduling) print(c *cycle, point, verdict, reason string) {
	if c.node != "" {
		point += " on " + c.node
	}
	fmt.Fprintf(s.out, "%s\t(%s)\t%s\t\t%s\t%s\n", c.name, point, verdict, s.cost(), reason)
}

// score gives the Nodes that passed their scores, by PreScore, Score and NormalizeScore.
func (s *scheduling) score(ctx context.Context, c *cycle, passed []*candidate, nodes []fwk.NodeInfo) {
	if s.implements(abi.PreScore) {
		status := s.plugin.(fwk.PreScorePlugin).PreScore(ctx, c.state, c.pod, nodes)
		if !s.report(c, "PreScore", status) || status.IsSkip() {
			return
		}
	}
	scorer := s.plugin.(fwk.ScorePlugin)
	var scored []*candidate
	var scores fwk.NodeScoreList
	for i, n := range passed {
		score, status := scorer.Score(ctx, c.state, c.pod, nodes[i])
		if status.IsSuccess() {
			scored, scores = append(scored, n), append(scores, fwk.NodeScore{Name: n.name, Score: score})
		} else {
			n.status = status
			s.failed(status.AsError(), "Score of the Pod %s for the Node %s", c.name, n.name)
		}
		n.pays(&s.fuel)
	}
	if extensions := scorer.ScoreExtensions(); extensions != nil && len(scores) > 0 {
		if status := extensions.NormalizeScore(ctx, c.state, c.pod, scores); !status.IsSuccess() {
			s.failed(status.AsError(), "NormalizeScore of the Pod %s", c.name)
		}
		s.fuel.take()
	}
	for i, n := range scored {
		n.score, n.scored = scores[i].Score, true
	}
}

// postFilter lets the plugin make room for a Pod that fits no Node.
func (s *scheduling) postFilter(ctx context.Context, c *cycle, candidates []*candidate) {
	if !s.implements(abi.PostFilter) {
		return
	}
	statuses := framework.NodeStatuses{ByName: map[string]*fwk.Status{}}
	for _, n := range candidates {
		statuses.ByName[n.name] = n.status
	}
	result, status := s.plugin.(fwk.PostFilterPlugin).PostFilter(ctx, c.state, c.pod, statuses)
	switch {
	case status.Code() == fwk.Error:
		s.report(c, "PostFilter", status)
	case result != nil && result.Mode() == fwk.ModeOverride && result.NominatedNodeName != "":
		s.print(c, "PostFilter", status.Code().String(), "nominates "+result.NominatedNodeName)
	default:
		s.print(c, "PostFilter", status.Code().String(), status.Message())
	}
}

// reserve asks Reserve and Permit about the Node that was chosen, and binds the Pod unless
// it waits.
func (s *scheduling) reserve(ctx context.Context, c *cycle) {
	if s.implements(abi.Reserve) && !s.report(c, "Reserve", s.plugin.(fwk.ReservePlugin).Reserve(ctx, c.state, c.pod, c.node)) {
		s.unreserve(ctx, c)
		return
	}
	if s.implements(abi.Permit) {
		status, wait := s.plugin.(fwk.PermitPlugin).Permit(ctx, c.state, c.pod, c.node)
		if status.IsWait() {
			s.print(c, "Permit", status.Code().String(), strings.TrimPrefix(status.Message()+", at most "+wait.String(), ", "))
			c.permit = &framework.WaitingPod{Pod: c.pod, Pending: []string{s.cfg.Name}}
			s.waiting, s.cluster.Waiting = append(s.waiting, c), append(s.cluster.Waiting, c.permit)
			return
		}
		if !s.report(c, "Permit", status) {
			s.unreserve(ctx, c)
			return
		}
	}
	s.bind(ctx, c)
}

// wake binds the Pods that the plugin has allowed while they waited, gives up those that
// it has rejected, and reports whether there were any.
func (s *scheduling) wake(ctx context.Context) bool {
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
			s.print(c, "Permit", "rejected", reason)
			s.unreserve(ctx, c)
			continue
		}
		s.print(c, "Permit", "allowed", "")
		s.bind(ctx, c)
	}
	return len(ready) != 0
}

// bind asks PreBind and Bind, and tells PostBind.
func (s *scheduling) bind(ctx context.Context, c *cycle) {
	if s.implements(abi.PreBind) {
		binder := s.plugin.(fwk.PreBindPlugin)
		_, status := binder.PreBindPreFlight(ctx, c.state, c.pod, c.node)
		switch {
		case status.IsSkip():
			s.print(c, "PreBindPreFlight", status.Code().String(), "")
		case !status.IsSuccess():
			s.report(c, "PreBindPreFlight", status)
			s.unreserve(ctx, c)
			return
		case !s.report(c, "PreBind", binder.PreBind(ctx, c.state, c.pod, c.node)):
			s.unreserve(ctx, c)
			return
		}
	}
	if s.implements(abi.Bind) && !s.report(c, "Bind", s.plugin.(fwk.BindPlugin).Bind(ctx, c.state, c.pod, c.node)) {
		s.unreserve(ctx, c)
		return
	}
	if s.implements(abi.PostBind) {
		s.plugin.(fwk.PostBindPlugin).PostBind(ctx, c.state, c.pod, c.node)
		s.printInform(c, "PostBind")
	}
}

// unreserve tells the plugin that the Pod is not bound to the Node.
func (s *scheduling) unreserve(ctx context.Context, c *cycle) {
	if s.implements(abi.Unreserve) {
		s.plugin.(fwk.ReservePlugin).Unreserve(ctx, c.state, c.pod, c.node)
		s.printInform(c, "Unreserve")
	}
}

// printInform prints a call that returns nothing.
func (s *scheduling) printInform(c *cycle, point string) {
	if err := s.fuel.failed(); err != nil {
		s.failed(err, "%s of the Pod %s", point, c.name)
		s.print(c, point, fwk.Error.String(), err.Error())
		return
	}
	s.print(c, point, fwk.Success.String(), "")
}
