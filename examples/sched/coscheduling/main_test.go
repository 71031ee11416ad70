package main

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

//go:embed podgroups.yaml
var kind string

// podGroup is the manifest of a PodGroup, created so many seconds after the first Pod of a test of
// Less.
func podGroup(name string, after int, spec string) string {
	at := time.Unix(1_700_000_000+int64(after), 0).UTC().Format(time.RFC3339)
	return fmt.Sprintf("{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {namespace: shop, name: %s, creationTimestamp: %q}, spec: {%s}}", name, at, spec)
}

// pod is the manifest of a Pod of a group, with more fields: its name is that of the group and a
// number.
func pod(name, more string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: %s, uid: %[1]s, labels: {scheduling.x-k8s.io/pod-group: %[2]s}}%[3]s}`, name, strings.TrimRight(name, "0123456789"), more)
}

const (
	running     = `, spec: {nodeName: n1}, status: {phase: Running, startTime: "2026-11-01T00:00:00Z"}`
	succeeded   = `, spec: {nodeName: n1}, status: {phase: Succeeded}`
	failed      = `, spec: {nodeName: n1}, status: {phase: Failed}`
	gated       = `, spec: {schedulingGates: [{name: later}]}`
	terminating = `{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: a9, uid: a9, labels: {scheduling.x-k8s.io/pod-group: a}, deletionTimestamp: "2026-11-01T00:00:00Z"}, spec: {nodeName: n1}, status: {phase: Running}}`
	node        = `{apiVersion: v1, kind: Node, metadata: {name: n%d}, status: {allocatable: {cpu: "4", memory: 8Gi, pods: "%d", example.com/gpu: "2"}}}`
)

// in returns the manifests of a cluster of two nodes.
func in(manifests ...string) string {
	nodes := []string{kind, fmt.Sprintf(node, 1, 10), fmt.Sprintf(node, 2, 10)}
	return strings.Join(append(nodes, manifests...), "\n---\n")
}

// three are the Pods of a group of three.
func three(group string) []string {
	return []string{pod(group+"1", ""), pod(group+"2", ""), pod(group+"3", "")}
}

// seat goes through a cycle of a Pod to Permit.
func seat(t *testing.T, p *schedtest.Plugin, name, more string) (*schedtest.Cycle, string) {
	t.Helper()
	c := p.Begin(t, pod(name, more))
	if !c.Status.IsSuccess() {
		return c, c.Status.String()
	}
	if s := c.Reserve(t, "n1"); !s.IsSuccess() {
		return c, s.String()
	}
	s, wait := c.Permit(t, "n1")
	if wait != 0 {
		return c, s.Code().String() + " " + wait.String()
	}
	return c, s.String()
}

// unseat does what a scheduler does with Pods that were rejected.
func unseat(t *testing.T, cycles ...*schedtest.Cycle) {
	t.Helper()
	for _, c := range cycles {
		if strings.HasPrefix(c.Outcome(), "rejected") {
			c.Unreserve(t, "n1")
		}
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestPreFilter has the Pod a1 of group a, of at least three Pods, in clusters of other Pods.
func TestPreFilter(t *testing.T) {
	const small = "minMember: 3"
	for name, test := range map[string]struct {
		spec string // Of the PodGroup, empty if there is none.
		pods []string
		want string
	}{
		"no PodGroup":                        {"", three("a"), "UnschedulableAndUnresolvable: there is no PodGroup shop/a"},
		"the first of three":                 {small, three("a")[:1], "UnschedulableAndUnresolvable: PodGroup shop/a has 1 Pods of at least 3"},
		"the second of three":                {small, three("a")[:2], "UnschedulableAndUnresolvable: PodGroup shop/a has 2 Pods of at least 3"},
		"the third of three":                 {small, three("a"), "Success"},
		"the third is of another group":      {small, []string{pod("a1", ""), pod("a2", ""), pod("b3", "")}, "UnschedulableAndUnresolvable: PodGroup shop/a has 2 Pods of at least 3"},
		"the third has a gate":               {small, []string{pod("a1", ""), pod("a2", ""), pod("a3", gated)}, "UnschedulableAndUnresolvable: PodGroup shop/a has 1 Pods with scheduling gates"},
		"a fourth has a gate":                {small, append(three("a"), pod("a4", gated)), "Success"},
		"the third has failed":               {small, []string{pod("a1", ""), pod("a2", running), pod("a3", failed)}, "UnschedulableAndUnresolvable: PodGroup shop/a has 2 Pods of at least 3"},
		"the third has succeeded":            {small, []string{pod("a1", ""), pod("a2", running), pod("a3", succeeded)}, "Success"},
		"the third is about to end":          {small, []string{pod("a1", ""), pod("a2", running), terminating}, "UnschedulableAndUnresolvable: PodGroup shop/a has 2 Pods of at least 3"},
		"the resources fit all nodes":        {small + `, minResources: {cpu: 8, memory: 16Gi, example.com/gpu: 4}`, three("a"), "Success"},
		"the resources fit no nodes":         {small + `, minResources: {cpu: 8100m, memory: 17Gi, example.com/gpu: 4}`, three("a"), "UnschedulableAndUnresolvable: the nodes lack cpu 100m, memory 1Gi for PodGroup shop/a"},
		"there is no such resource":          {small + `, minResources: {example.com/fpga: 1}`, three("a"), "UnschedulableAndUnresolvable: the nodes lack example.com/fpga 1 for PodGroup shop/a"},
		"there is room for twenty Pods":      {`minMember: 1, minResources: {pods: 30}`, three("a"), "Success"},
		"others use the resources":           {small + `, minResources: {cpu: 8}`, append(three("a"), pod("b1", `, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 1500m}}}]}`)), "UnschedulableAndUnresolvable: the nodes lack cpu 1500m for PodGroup shop/a"},
		"the group itself uses the resource": {small + `, minResources: {cpu: 8}`, []string{pod("a1", ""), pod("a2", `, spec: {nodeName: n1, containers: [{name: c, resources: {requests: {cpu: 4}}}]}`), pod("a3", "")}, "Success"},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
				if test.spec != "" {
					test.pods = append([]string{podGroup("a", 0, test.spec)}, test.pods...)
				}
				p = p.In(t, in(test.pods...))
				equal(t, "PreFilter", p.Begin(t, pod("a1", "")).Status.String(), test.want)
				equal(t, "PreFilter of a Pod without a group", p.Begin(t, `metadata: {name: alone}`).Status.String(), "Success")
			})
		})
	}
}

// TestGroupsThatAreComplete has the Pods of a group come to Permit one after the other.
func TestGroupsThatAreComplete(t *testing.T) {
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		objects := append(three("a"), three("b")...)
		p = p.In(t, in(append(objects, podGroup("a", 0, "minMember: 3"), podGroup("b", 0, "minMember: 3, scheduleTimeoutSeconds: 5"))...))
		names := func(names ...string) (list []sched.PodName) {
			for _, name := range names {
				list = append(list, sched.PodName{Namespace: "shop", Name: name})
			}
			return list
		}
		a1, got := seat(t, p, "a1", "")
		equal(t, "the first", got, "Wait 1m0s")
		equal(t, "siblings", p.Activated(), names("a2", "a3"))
		b1, got := seat(t, p, "b1", "")
		equal(t, "the first of another group", got, "Wait 5s")
		equal(t, "siblings", p.Activated(), names("b2", "b3"))
		a2, got := seat(t, p, "a2", "")
		equal(t, "the second", got, "Wait 1m0s")
		equal(t, "siblings", p.Activated(), names())
		_, got = seat(t, p, "a3", "")
		equal(t, "the third", got, "Success")
		equal(t, "outcomes", []string{a1.Outcome(), a2.Outcome(), b1.Outcome()}, []string{"allowed", "allowed", ""})
		_, got = seat(t, p, "lost1", "")
		equal(t, "a Pod of a group that does not exist", got, "UnschedulableAndUnresolvable: there is no PodGroup shop/lost")
	})
}

// TestReplacedMembers has the Pods a1 and a2 come when others of their group have a node.
func TestReplacedMembers(t *testing.T) {
	for name, test := range map[string]struct {
		pods []string
		want []string // Of a1 and a2.
	}{
		"two run":                      {[]string{pod("a1", ""), pod("a3", running), pod("a4", running)}, []string{"Success", "Success"}},
		"one runs":                     {[]string{pod("a1", ""), pod("a2", ""), pod("a3", running)}, []string{"Wait 1m0s", "Success"}},
		"one runs, and two have ended": {[]string{pod("a1", ""), pod("a2", ""), pod("a3", running), terminating, pod("a4", failed)}, []string{"Wait 1m0s", "Success"}},
		"one has succeeded":            {[]string{pod("a1", ""), pod("a3", running), pod("a4", succeeded)}, []string{"Success", "Success"}},
		"none runs":                    {three("a"), []string{"Wait 1m0s", "Wait 1m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
				p = p.In(t, in(append(test.pods, podGroup("a", 0, "minMember: 3"))...))
				_, first := seat(t, p, "a1", "")
				_, second := seat(t, p, "a2", "")
				equal(t, "Permit", []string{first, second}, test.want)
			})
		})
	}
}

// TestGroupsThatDoNotFit has a Pod fit on no node while others of its group wait.
func TestGroupsThatDoNotFit(t *testing.T) {
	for name, test := range map[string]struct {
		configuration, spec string
		waiting             string // Of a1.
		status              string
	}{
		"half of it has no node": {"{}", "minMember: 3", "rejected: Pod a3 of PodGroup shop/a fits on no node", "Unschedulable: PodGroup shop/a is rejected since Pod a3 fits on no node"},
		"few have no node":       {"podGroupRejectPercentage: 40", "minMember: 3", "", "Unschedulable"},
		"it runs without":        {"{}", "minMember: 1", "", "Unschedulable"},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
				objects := append(three("a"), three("b")...)
				p = p.In(t, in(append(objects, podGroup("a", 0, test.spec), podGroup("b", 0, "minMember: 3"))...)).Configure(t, test.configuration)
				a1, _ := seat(t, p, "a1", "")
				a2, _ := seat(t, p, "a2", "")
				b1, _ := seat(t, p, "b1", "")
				_, status := p.Begin(t, pod("a3", "")).PostFilter(t)
				equal(t, "PostFilter", status.String(), test.status)
				equal(t, "outcome", a1.Outcome(), test.waiting)
				equal(t, "outcome of another group", b1.Outcome(), "")
				unseat(t, a1, a2)
				if test.waiting != "" {
					_, got := seat(t, p, "a1", "")
					equal(t, "the group is tried again", got, "Wait 1m0s")
				}
			})
		})
	}
}

// TestGroupsAgainstOneAnother has room for three Pods, and the Pods of two groups come in turn.
func TestGroupsAgainstOneAnother(t *testing.T) {
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		objects := append(three("a"), three("b")...)
		p = p.In(t, in(append(objects, podGroup("a", 0, "minMember: 3"), podGroup("b", 0, "minMember: 3"))...))
		var cycles []*schedtest.Cycle
		for _, name := range []string{"a1", "b1", "a2"} {
			c, got := seat(t, p, name, "")
			equal(t, name, got, "Wait 1m0s")
			cycles = append(cycles, c)
		}
		p.Begin(t, pod("b2", "")).PostFilter(t) // It gives way.
		unseat(t, cycles...)
		equal(t, "outcomes", []string{cycles[0].Outcome(), cycles[2].Outcome()}, []string{"", ""})
		_, got := seat(t, p, "a3", "")
		equal(t, "a3", got, "Success")
		equal(t, "outcomes", []string{cycles[0].Outcome(), cycles[1].Outcome(), cycles[2].Outcome()},
			[]string{"allowed", "rejected: Pod b2 of PodGroup shop/b fits on no node", "allowed"})
	})
}

// TestPodsThatLoseTheirNode has a Pod time out that waits for the others.
func TestPodsThatLoseTheirNode(t *testing.T) {
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, in(append(three("a"), podGroup("a", 0, "minMember: 3"))...))
		a1, _ := seat(t, p, "a1", "")
		a2, _ := seat(t, p, "a2", "")
		a1.Unreserve(t, "n1")
		equal(t, "outcome", a2.Outcome(), "rejected: Pod a1 of PodGroup shop/a has lost its node")
		a1.Unreserve(t, "n1") // A scheduler may call it more than once.
	})
}

// TestBackoff has a group fail that backs off for an hour.
func TestBackoff(t *testing.T) {
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		objects := append(three("a"), append(three("b")[:2], podGroup("a", 0, "minMember: 3"), podGroup("b", 0, "minMember: 3"))...)
		p = p.In(t, in(objects...)).Configure(t, "podGroupBackoffSeconds: 3600")
		p.Begin(t, pod("b1", "")).PostFilter(t)
		equal(t, "an incomplete group does not back off", p.Begin(t, pod("b1", "")).Status.String(), "UnschedulableAndUnresolvable: PodGroup shop/b has 2 Pods of at least 3")
		a1, _ := seat(t, p, "a1", "")
		p.Activated()
		p.Begin(t, pod("a2", "")).PostFilter(t)
		unseat(t, a1)
		// The first that is tried meanwhile is tried again, and the others when it has a node.
		for _, test := range []struct {
			name string
			want []sched.PodName
		}{{"a3", []sched.PodName{{Namespace: "shop", Name: "a3"}}}, {"a1", nil}, {"a3", []sched.PodName{{Namespace: "shop", Name: "a3"}}}} {
			c := p.Begin(t, pod(test.name, ""))
			equal(t, test.name, c.Status.String(), "UnschedulableAndUnresolvable: PodGroup shop/a failed recently")
			c.PostFilter(t)
			equal(t, "activated", p.Activated(), test.want)
		}
	})
}

// TestFullState has more Pods come and go than the state has entries.
func TestFullState(t *testing.T) {
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, in(append(three("a"), podGroup("a", 0, "minMember: 3"))...))
		for _, name := range []string{"a1", "a2"} {
			_, got := seat(t, p, name, "")
			equal(t, name, got, "Wait 1m0s")
		}
		for i := range 10_000 {
			if s := p.Begin(t, pod(fmt.Sprint("gone", i), "")).Reserve(t, "n1"); !s.IsSuccess() {
				t.Fatal(s)
			}
		}
		_, got := seat(t, p, "a3", "")
		equal(t, "a3", got, "Success")
	})
}

// TestLess compares Pods of which the first came a second before the other. The names of the rows are
// those of TestLess of scheduler-plugins (pkg/coscheduling/coscheduling_test.go, Apache License 2.0),
// where it has the same.
func TestLess(t *testing.T) {
	priority := func(n int) string { return fmt.Sprintf(", spec: {priority: %d}", n) }
	alone := func(name string) string {
		return fmt.Sprintf("metadata: {namespace: shop, name: %s}\nspec: {priority: 10}", name)
	}
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, in(podGroup("a", -60, "minMember: 1"), podGroup("b", -30, "minMember: 1"), podGroup("c", -30, "minMember: 1"), podGroup("z", 60, "minMember: 1")))
		for _, test := range []struct {
			name, first, second string
			want                bool
		}{
			{"p1.priority less than p2.priority, p1 belongs to pg1", pod("a1", priority(10)), pod("b1", priority(100)), false},
			{"p1.priority greater than p2.priority, p1 belongs to pg1", pod("b1", priority(100)), pod("a1", priority(10)), true},
			{"equal priority. p1 is added to schedulingQ earlier than p2", alone("p2"), alone("p1"), true},
			{"equal priority. p1's group is older", pod("a2", priority(10)), pod("b1", priority(10)), true},
			{"equal priority. p2's group is older", pod("b1", priority(10)), pod("a2", priority(10)), false},
			{"equal priority. p1 belongs to a group that came after p2", pod("z1", priority(10)), alone("p1"), false},
			{"equal priority. p1 belongs to a group that came before p2", pod("a1", priority(10)), alone("p1"), true},
			{"equal priority and creation time of groups", pod("c1", priority(10)), pod("b2", priority(10)), false},
			{"one group", pod("a2", priority(10)), pod("a1", priority(10)), true},
		} {
			for _, pod := range []string{test.first, test.second} {
				if s := p.PreEnqueue(t, pod); !s.IsSuccess() {
					t.Fatal(s)
				}
			}
			equal(t, test.name, p.Less(t, test.first, test.second), test.want)
		}
	})
}

func TestHints(t *testing.T) {
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, in(append(three("a"), pod("a4", running), podGroup("a", 0, "minMember: 3"))...))
		came := sched.ClusterEvent{Resource: abi.EventUnscheduledPod, ActionType: abi.ActionAdd}
		left := sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}
		changed := sched.ClusterEvent{Object: podGroups, ActionType: abi.ActionUpdate}
		for name, test := range map[string]struct {
			event         sched.ClusterEvent
			before, after string
			want          sched.QueueingHint
		}{
			"a Pod of the group comes":               {came, "", pod("a2", ""), sched.Queue},
			"a Pod of another group comes":           {came, "", pod("b1", ""), sched.QueueSkip},
			"a Pod without a group comes":            {came, "", `metadata: {name: p}`, sched.QueueSkip},
			"the group changes":                      {changed, podGroup("a", 0, "minMember: 4"), podGroup("a", 0, "minMember: 3"), sched.Queue},
			"the group comes":                        {changed, "", podGroup("a", 0, "minMember: 3"), sched.Queue},
			"another group changes":                  {changed, podGroup("b", 0, "minMember: 4"), podGroup("b", 0, "minMember: 3"), sched.QueueSkip},
			"a Pod without a group leaves":           {left, `metadata: {name: p}`, "", sched.Queue},
			"a Pod of another group is rejected":     {left, pod("b1", ""), "", sched.Queue},
			"a Pod of the group is rejected":         {left, pod("a2", ""), "", sched.QueueSkip},
			"a Pod of the group that has run leaves": {left, pod("a2", running), "", sched.Queue},
		} {
			got, err := p.QueueingHint(t, test.event, pod("a1", ""), test.before, test.after)
			if got != test.want || err != nil {
				t.Errorf("%s: got %v, error %v, want %v", name, got, err, test.want)
			}
		}
		want := []sched.PodName{{Namespace: "shop", Name: "a1"}, {Namespace: "shop", Name: "a2"}, {Namespace: "shop", Name: "a3"}}
		for what, pre := range map[string]struct {
			event sched.ClusterEvent
			after string
			want  []sched.PodName
		}{
			"a Pod of the group":  {came, pod("a3", ""), want},
			"the group":           {changed, podGroup("a", 0, "minMember: 3"), want},
			"a Pod of another":    {came, pod("b3", ""), nil},
			"a Pod without group": {came, `metadata: {name: p}`, nil},
		} {
			got, err := p.PreQueueingHint(t, pre.event, "", pre.after)
			if err != nil || got.AllPods {
				t.Errorf("%s: got %v, %v", what, got, err)
			}
			slices.SortFunc(got.Pods, func(a, b sched.PodName) int { return strings.Compare(a.Name, b.Name) })
			equal(t, what, got.Pods, pre.want)
		}
	})
}

func TestConfiguration(t *testing.T) {
	schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
		for configuration, want := range map[string]string{
			"permitWaitingTimeSeconds: 0":   "permitWaitingTimeSeconds must be above 0",
			"podGroupBackoffSeconds: -1":    "podGroupBackoffSeconds must not be negative",
			"podGroupRejectPercentage: 101": "podGroupRejectPercentage must lie between 0 and 100",
		} {
			if _, err := p.TryConfigure(t, configuration); err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", configuration, err, want)
			}
		}
	})
}
