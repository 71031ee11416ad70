package cases

import (
	"fmt"
	"slices"

	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

// success is the expected status of a call without another expectation.
const success = "Success"

// scheduling is the calls of a case.
type scheduling struct {
	*question
	plugin *schedtest.Plugin
	cycle  *schedtest.Cycle
	// refused are the results of Filter, for PostFilter.
	refused []sched.NodeStatus
}

func (q *question) scheduler() *scheduling {
	return &scheduling{question: q, plugin: q.suite.kits.scheduler(q).In(q, q.objects).Configure(q, q.config)}
}

// filter calls the plugin's Filter for a Pod and a Node.
func (q *question) filter() {
	s := q.scheduler()
	want, ok := q.of.Want.text()
	if !ok && !q.of.Want.IsZero() {
		q.Fatal("want is a status, such as Success or \"Unschedulable: the reason\"")
	}
	s.status("filter", s.plugin.Filter(q, s.pod(q.of.Pod), s.node(q.of.Node)), want)
}

// pod returns a manifest of a Pod, which may be a file.
func (s *scheduling) pod(d Document) string {
	if d.IsZero() {
		return "{}"
	}
	return s.suite.read(s, d)
}

// node returns a manifest of a Node, or the name of one.
func (s *scheduling) node(d Document) string {
	if name, ok := d.text(); ok {
		return name
	}
	return s.pod(d)
}

// status checks that a status is the expected one.
func (s *scheduling) status(what string, got *sched.Status, want string) {
	if want == "" {
		want = success
	}
	if got.String() != want {
		s.Errorf("%s: got  %s\nwant %s", what, got, want)
	}
}

// schedule makes the calls of the steps.
func (q *question) schedule() {
	s := q.scheduler()
	for i := range q.of.Steps {
		s.step(i+1, &q.of.Steps[i])
	}
}

// step makes the call of a step.
func (s *scheduling) step(number int, step *Step) {
	var name string
	var call func(what string)
	one := func(n string, there bool, f func(what string)) {
		if there {
			if call != nil {
				s.Fatalf("step %d is two: %s and %s", number, name, n)
			}
			name, call = n, f
		}
	}
	about := func(n string, of *NodeStep, f func(what string, of *NodeStep)) {
		one(n, of != nil, func(what string) {
			s.begun(what)
			if of.Traps != "" {
				s.trapping(of.Traps, func() { f(what, of) })
				return
			}
			f(what, of)
		})
	}
	bind := func(n string, of *NodeStep, f func(node string) *sched.Status) {
		about(n, of, func(what string, of *NodeStep) { s.status(what, f(s.node(of.Node)), of.Want) })
	}
	one("preenqueue", step.PreEnqueue != nil, func(what string) {
		s.status(what, s.plugin.PreEnqueue(s, s.pod(step.PreEnqueue.Pod)), step.PreEnqueue.Want)
	})
	one("queuesort", step.QueueSort != nil, func(what string) { s.queueSort(what, step.QueueSort) })
	one("signpod", step.SignPod != nil, func(what string) { s.sign(what, step.SignPod) })
	one("prefilter", step.PreFilter != nil, func(what string) {
		s.cycle, s.refused = s.plugin.Begin(s, s.pod(step.PreFilter.Pod)), nil
		s.status(what, s.cycle.Status, step.PreFilter.Want)
		s.same(what+": nodes", step.PreFilter.Nodes, s.cycle.NodeNames)
	})
	about("addpod", step.AddPod, func(what string, of *NodeStep) {
		s.status(what, s.cycle.AddPod(s, s.pod(of.Pod), s.node(of.Node)), of.Want)
	})
	about("removepod", step.RemovePod, func(what string, of *NodeStep) {
		s.status(what, s.cycle.RemovePod(s, s.pod(of.Pod), s.node(of.Node)), of.Want)
	})
	about("filter", step.Filter, func(what string, of *NodeStep) {
		got := s.cycle.Filter(s, s.node(of.Node))
		if name, ok := of.Node.text(); ok && !got.IsSuccess() {
			s.refused = append(s.refused, sched.NodeStatus{NodeName: name, Status: got})
		}
		s.status(what, got, of.Want)
	})
	about("postfilter", step.PostFilter, func(what string, of *NodeStep) {
		result, status := s.cycle.PostFilter(s, s.refused...)
		s.status(what, status, of.Want)
		nominated := ""
		if result != nil {
			nominated = result.NominatedNodeName
		}
		s.same(what+": nominated", of.Nominated, nominated)
	})
	one("prescore", step.PreScore != nil, func(what string) {
		s.begun(what)
		var nodes []string
		for _, n := range step.PreScore.Nodes {
			nodes = append(nodes, s.node(n))
		}
		s.status(what, s.cycle.PreScore(s, nodes...), step.PreScore.Want)
	})
	about("score", step.Score, func(what string, of *NodeStep) {
		score, status := s.cycle.Score(s, s.node(of.Node))
		s.status(what, status, of.Want)
		s.same(what, of.Score, score)
	})
	one("normalizescore", step.NormalizeScore != nil, func(what string) { s.normalize(what, step.NormalizeScore) })
	about("permit", step.Permit, func(what string, of *NodeStep) {
		status, wait := s.cycle.Permit(s, s.node(of.Node))
		s.status(what, status, of.Want)
		if of.Wait != "" {
			s.same(what+": wait", of.Wait, wait.String())
		}
	})
	bind("reserve", step.Reserve, func(node string) *sched.Status { return s.cycle.Reserve(s, node) })
	bind("unreserve", step.Unreserve, func(node string) *sched.Status { s.cycle.Unreserve(s, node); return nil })
	bind("prebind", step.PreBind, func(node string) *sched.Status { return s.cycle.PreBind(s, node) })
	bind("bind", step.Bind, func(node string) *sched.Status { return s.cycle.Bind(s, node) })
	if call == nil {
		s.Fatalf("step %d is none", number)
	}
	call(fmt.Sprintf("step %d, %s", number, name))
}

// begun checks that a cycle was begun.
func (s *scheduling) begun(what string) {
	if s.cycle == nil {
		s.Fatalf("%s: there is no cycle, which a step prefilter begins", what)
	}
}

func (s *scheduling) normalize(what string, step *ScoresStep) {
	s.begun(what)
	var list sched.NodeScoreList
	for _, score := range step.Scores {
		list = append(list, sched.NewNodeScore(score.Name, score.Score))
	}
	list, status := s.cycle.NormalizeScore(s, list)
	s.status(what, status, "")
	var got []Score
	for _, score := range list {
		got = append(got, Score{score.Name(), score.Score})
	}
	s.same(what, step.Want, got)
}

func (s *scheduling) sign(what string, step *PodStep) {
	fragments, status := s.plugin.SignPod(s, s.pod(step.Pod))
	s.status(what, status, step.Want)
	var got map[string]string
	for _, f := range fragments {
		if got == nil {
			got = map[string]string{}
		}
		got[f.Key] = f.Value
	}
	s.same(what+": fragments", step.Fragments, got)
}

func (s *scheduling) queueSort(what string, step *QueueSortStep) {
	type queued struct {
		name, manifest string
		at             int
	}
	var pods []queued
	for i, d := range step.Pods {
		text := s.pod(d)
		var named struct {
			Metadata struct{ Name string }
		}
		read(s, text, &named)
		pods = append(pods, queued{named.Metadata.Name, text, i})
	}
	slices.SortStableFunc(pods, func(a, b queued) int {
		// Less takes the Pod that came first as its first argument.
		if a.at < b.at {
			if s.plugin.Less(s, a.manifest, b.manifest) {
				return -1
			}
			return 1
		}
		if s.plugin.Less(s, b.manifest, a.manifest) {
			return 1
		}
		return -1
	})
	var got []string
	for _, p := range pods {
		got = append(got, p.name)
	}
	s.same(what, step.Want, got)
}
