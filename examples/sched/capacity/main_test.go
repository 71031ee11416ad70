package main

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/sched/schedtest"
)

//go:embed elasticquotas.yaml
var kind string

// node is the manifest of a node with so much memory, pod that of a Pod with a priority, which runs on a
// node unless that is empty, and elastic that of the ElasticQuota of a namespace with a min and a max.
func node(name, memory string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {allocatable: {memory: %q, cpu: 100}}}", name, memory)
}

func pod(namespace, name string, memory, priority int, node, more string) string {
	if node != "" {
		node = ", nodeName: " + node
	}
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s, uid: %[1]s-%[2]s, labels: {app: %[2]s}%[6]s}, "+
		"spec: {priority: %[4]d, containers: [{name: c, resources: {requests: {memory: %[3]d}}}]%[5]s}}", namespace, name, memory, priority, node, more)
}

func elastic(namespace string, least, most int) string {
	return fmt.Sprintf("{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {namespace: %s, name: q}, spec: {min: {memory: %d}, max: {memory: %d}}}", namespace, least, most)
}

func cluster(manifests ...string) string {
	return strings.Join(append([]string{kind}, manifests...), "\n---\n")
}

const (
	low  = 0
	mid  = 100
	high = 1000
)

// TestPreFilter has the cases of TestPreFilter of scheduler-plugins (Apache 2.0, commit 903da7df), and
// more.
func TestPreFilter(t *testing.T) {
	const (
		beyondMax = "Unschedulable: the ElasticQuota of ns1 has no room below its max"
		beyondMin = "Unschedulable: the ElasticQuotas have no room below the sum of their min"
	)
	for name, test := range map[string]struct {
		cluster []string
		pod     string
		want    string
	}{
		"pod subjects to ElasticQuota": {[]string{elastic("ns1", 1000, 2000), pod("ns1", "used", 300, mid, "n1", "")}, pod("ns1", "p", 500, mid, "", ""), "Success"},
		"beyond max":                   {[]string{elastic("ns1", 1000, 2000), pod("ns1", "used", 300, mid, "n1", "")}, pod("ns1", "p", 1800, mid, "", ""), beyondMax},
		"the sum of used is bigger than the sum of min": {[]string{elastic("ns1", 1000, 2000), elastic("ns2", 1000, 2000), pod("ns1", "used", 1800, mid, "n1", ""), pod("ns2", "used", 200, mid, "n1", "")},
			pod("ns2", "p", 500, mid, "", ""), beyondMin},
		"without elasticQuotaInfo": {nil, pod("ns2", "p", 500, mid, "", ""), "Success"},
		"exactly max":              {[]string{elastic("ns1", 2000, 2000), pod("ns1", "used", 1500, mid, "n1", "")}, pod("ns1", "p", 500, mid, "", ""), "Success"},
		"borrowed":                 {[]string{elastic("ns1", 0, 2000), elastic("ns2", 1000, 2000)}, pod("ns1", "p", 1000, mid, "", ""), "Success"},
		"a Pod that has ended": {[]string{elastic("ns1", 1000, 1000),
			strings.TrimSuffix(pod("ns1", "done", 800, mid, "n1", ""), "}") + ", status: {phase: Succeeded}}"}, pod("ns1", "p", 500, mid, "", ""), "Success"},
		"a nominated Pod of the same priority": {[]string{elastic("ns1", 1000, 1000),
			strings.TrimSuffix(pod("ns1", "soon", 800, mid, "", ""), "}") + ", status: {nominatedNodeName: n1}}"}, pod("ns1", "p", 500, mid, "", ""), beyondMax},
		"a nominated Pod of a lower priority": {[]string{elastic("ns1", 1000, 1000),
			strings.TrimSuffix(pod("ns1", "soon", 800, low, "", ""), "}") + ", status: {nominatedNodeName: n1}}"}, pod("ns1", "p", 500, mid, "", ""), "Success"},
		"a nominated Pod of another namespace": {[]string{elastic("ns1", 1000, 2000), elastic("ns2", 1000, 2000),
			strings.TrimSuffix(pod("ns2", "soon", 1600, low, "", ""), "}") + ", status: {nominatedNodeName: n1}}"}, pod("ns1", "p", 500, mid, "", ""), beyondMin},
		"a resource without a max": {[]string{`{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {namespace: ns1, name: q}, spec: {min: {memory: 1000}, max: {cpu: 1}}}`},
			pod("ns1", "p", 500, mid, "", ""), "Success"},
		"no max":                     {[]string{`{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {namespace: ns1, name: q}, spec: {min: {memory: 1000}}}`}, pod("ns1", "p", 500, mid, "", ""), "Success"},
		"a resource without a min":   {[]string{`{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {namespace: ns1, name: q}, spec: {min: {cpu: 1}}}`}, pod("ns1", "p", 500, mid, "", ""), beyondMin},
		"the first quota by name":    {[]string{elastic("ns1", 1000, 2000), strings.Replace(elastic("ns1", 1, 2), "name: q", "name: z", 1)}, pod("ns1", "p", 500, mid, "", ""), "Success"},
		"the Pod's own old instance": {[]string{elastic("ns1", 1000, 1000), pod("ns1", "p", 600, mid, "", "")}, pod("ns1", "p", 600, mid, "", ""), "Success"},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, capacity{}, func(t *testing.T, p *schedtest.Plugin) {
				p = p.In(t, cluster(append(test.cluster, node("n1", "10000"))...))
				if diff := cmp.Diff(test.want, p.Begin(t, test.pod).Status.String()); diff != "" {
					t.Errorf("PreFilter (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPreempt has the cases of TestPostFilter, TestDryRunPreemption and TestPodEligibleToPreemptOthers
// of scheduler-plugins (Apache 2.0, commit 903da7df), and more.
func TestPreempt(t *testing.T) {
	const (
		evicted = `, deletionTimestamp: "2026-11-01T00:00:00Z"`
		never   = ", preemptionPolicy: Never"
	)
	ending := func(pod string) string {
		return strings.TrimSuffix(pod, "}") + ", status: {conditions: [{type: DisruptionTarget, status: 'True', reason: PreemptionByScheduler}]}}"
	}
	nominated := func(pod string) string {
		return strings.TrimSuffix(pod, "}") + ", status: {nominatedNodeName: node-a}}"
	}
	budget := func(namespace, app string, allowed int) string {
		return fmt.Sprintf("{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {namespace: %s, name: b}, spec: {selector: {matchLabels: {app: %s}}}, status: {disruptionsAllowed: %d}}", namespace, app, allowed)
	}
	p := pod("ns1", "p", 50, high, "", "")
	one := node("node-a", "150")
	for name, test := range map[string]struct {
		cluster []string
		pod     string
		want    string
	}{
		"in-namespace preemption": {[]string{one, elastic("ns1", 50, 200), elastic("ns2", 200, 200),
			pod("ns1", "p1", 50, mid, "node-a", ""), pod("ns2", "p2", 50, mid, "node-a", ""), pod("ns2", "p3", 50, mid, "node-a", "")}, p, "node-a: ns1/p1"},
		"cross-namespace preemption": {[]string{one, elastic("ns1", 150, 200), elastic("ns2", 50, 200),
			pod("ns1", "p1", 50, mid, "node-a", ""), pod("ns2", "p2", 50, high, "node-a", ""), pod("ns2", "p3", 50, mid, "node-a", "")}, p, "node-a: ns2/p3"},
		"without elasticQuotas": {[]string{one,
			pod("ns1", "p2", 50, mid, "node-a", ""), pod("ns2", "p3", 50, low, "node-a", ""), pod("ns2", "p4", 50, mid, "node-a", "")}, p, "node-a: ns2/p3"},
		"borrowers of any priority": {[]string{one, elastic("ns1", 100, 200), elastic("ns2", 50, 200),
			pod("ns2", "p2", 50, high+1, "node-a", ""), pod("ns2", "p3", 50, high+2, "node-a", ""), pod("ns2", "p4", 50, high+3, "node-a", "")}, pod("ns1", "p", 50, low, "", ""), "node-a: ns2/p2"},
		"critical borrowers": {[]string{one, elastic("ns1", 100, 200), elastic("ns2", 50, 200),
			pod("ns2", "p2", 50, systemCritical, "node-a", ""), pod("ns2", "p3", 100, systemCritical, "node-a", "")}, pod("ns1", "p", 50, low, "", ""), "No preemption victims"},
		"only what was borrowed": {[]string{one, elastic("ns1", 100, 200), elastic("ns2", 100, 200),
			pod("ns2", "p2", 50, low, "node-a", ""), pod("ns2", "p3", 50, low, "node-a", ""), pod("ns2", "p4", 50, low, "node-a", "")}, pod("ns1", "p", 100, low, "", ""), "Insufficient memory"},
		"those who have not borrowed": {[]string{one, elastic("ns1", 100, 200), elastic("ns2", 150, 200),
			pod("ns2", "p2", 50, low, "node-a", ""), pod("ns2", "p3", 100, low, "node-a", "")}, p, "No preemption victims"},
		"a quota that has room by an eviction": {[]string{node("node-a", "1000"), elastic("ns1", 100, 100), elastic("ns2", 0, 200),
			pod("ns1", "p1", 60, low, "node-a", ""), pod("ns1", "p2", 40, low, "node-a", "")}, p, "node-a: ns1/p1"},
		"Pods without a quota, for one with a quota": {[]string{one, elastic("ns1", 100, 200),
			pod("ns3", "p1", 150, low, "node-a", "")}, p, "No preemption victims"},
		"the node with fewer violated budgets": {[]string{node("node-a", "50"), node("node-b", "50"), elastic("ns1", 100, 200), elastic("ns2", 0, 200), budget("ns2", "p2", 0),
			pod("ns2", "p2", 50, low, "node-a", ""), pod("ns2", "p3", 50, mid, "node-b", "")}, p, "node-b: ns2/p3"},
		"a budget on one node": {[]string{one, elastic("ns1", 100, 200), elastic("ns2", 50, 200), budget("ns2", "p2", 0),
			pod("ns2", "p2", 50, low, "node-a", ""), pod("ns2", "p3", 50, low, "node-a", ""), pod("ns2", "p4", 50, mid, "node-a", "")}, p, "node-a: ns2/p3"},
		"Pod with PreemptNever preemption policy": {[]string{one, elastic("ns1", 50, 150), pod("ns1", "p0", 150, mid, "node-a", "")},
			strings.Replace(p, ", containers", never+", containers", 1), "not eligible due to preemptionPolicy=Never."},
		"Pod with terminating pod in the same namespace": {[]string{one, elastic("ns1", 50, 150),
			ending(pod("ns1", "p0", 50, mid, "node-a", evicted)), pod("ns1", "p1", 50, mid, "node-a", "")}, nominated(p), "not eligible due to a terminating pod on the nominated node."},
		"Pod with terminating pod in another namespace": {[]string{one, elastic("ns1", 50, 150), elastic("ns2", 50, 150),
			ending(pod("ns2", "p0", 100, mid, "node-a", evicted))}, nominated(p), "not eligible due to a terminating pod on the nominated node."},
		"Pod without elasticQuotas and terminating pod exists in the same namespace": {[]string{one,
			ending(pod("ns2", "p0", 150, mid, "node-a", evicted))}, nominated(p), "not eligible due to a terminating pod on the nominated node."},
		"Pod without ElasticQuotas and terminating pod exists in another namespace": {[]string{one, elastic("ns2", 50, 150),
			ending(pod("ns2", "p0", 100, mid, "node-a", evicted)), pod("ns3", "p1", 50, low, "node-a", "")}, nominated(p), "node-a: ns3/p1"},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, capacity{}, func(t *testing.T, plugin *schedtest.Plugin) {
				plugin = plugin.In(t, cluster(test.cluster...))
				node, victims, status := plugin.Begin(t, test.pod).Preempt(t)
				got := node + ": " + strings.Join(victims, " ")
				if node == "" {
					got = status.String()
				}
				if !strings.Contains(got, test.want) {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestReserve has Pods take room at once, before others can see their nodes, and give it back. The
// entries of Pods with a node for all to see are dropped.
func TestReserve(t *testing.T) {
	schedtest.Each(t, capacity{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, cluster(node("n1", "1000"), elastic("ns1", 100, 100), pod("ns1", "a", 60, mid, "", ""), pod("ns1", "b", 60, mid, "", "")))
		begin := func(name, want string) *schedtest.Cycle {
			t.Helper()
			c := p.Begin(t, pod("ns1", name, 60, mid, "", ""))
			if got := c.Status.String(); got != want {
				t.Errorf("PreFilter of %s: got %s, want %s", name, got, want)
			}
			return c
		}
		a := begin("a", "Success")
		if s := a.Reserve(t, "n1"); !s.IsSuccess() {
			t.Error(s)
		}
		begin("b", "Unschedulable: the ElasticQuota of ns1 has no room below its max")
		begin("a", "Success")
		a.Unreserve(t, "n1")
		begin("b", "Success")
	})
}

// TestPreemptedAndBack has a namespace lend its share, and get it back.
func TestPreemptedAndBack(t *testing.T) {
	schedtest.Each(t, capacity{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, cluster(node("n1", "100"), elastic("ns1", 50, 100), elastic("ns2", 50, 100),
			pod("ns2", "own", 50, mid, "n1", ""), pod("ns2", "borrows", 50, low, "n1", "")))
		node, victims, status := p.Begin(t, pod("ns1", "back", 50, low, "", "")).Preempt(t)
		if node != "n1" || strings.Join(victims, " ") != "ns2/borrows" {
			t.Errorf("got node %q, victims %v, %s", node, victims, status)
		}
		if s := p.Begin(t, pod("ns1", "back", 50, low, "", "")).Status; !s.IsSuccess() {
			t.Errorf("PreFilter without the borrower: %s", s)
		}
		if node, victims, _ := p.Begin(t, pod("ns2", "again", 100, high, "", "")).Preempt(t); strings.Join(victims, " ") != "ns2/own" {
			t.Errorf("the borrower evicts %v on %q, want its own namespace's Pod", victims, node)
		}
	})
}
