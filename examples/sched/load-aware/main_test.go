package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/sched/schedtest"
)

const (
	node = `{apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {capacity: {cpu: 1000m, memory: 1Gi}, allocatable: {cpu: 1000m, memory: 1Gi}}}`
	at   = "2026-07-25T17:20:00Z"
)

// sample is the manifest of a value of a query.
func sample(query, node string, value float64) string {
	return fmt.Sprintf("{apiVersion: metrics.kubewasm.dev/v1, kind: %s, metadata: {name: %s}, timestamp: %q, value: %g}", query, node, at, value)
}

// onNode is the manifest of a Pod that requests so much CPU and was bound at a time.
func onNode(name, cpu, bound string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {nodeName: node-1, containers: [{name: c, resources: {limits: {cpu: %s}}}]}, "+
		"status: {conditions: [{type: PodScheduled, status: 'True', lastTransitionTime: %q}]}}", name, cpu, bound)
}

func cluster(manifests ...string) string { return strings.Join(manifests, "\n---\n") }

// TestTargetLoadPacking has the cases of TestTargetLoadPackingScoring of scheduler-plugins (Apache 2.0,
// commit 903da7df), and more.
func TestTargetLoadPacking(t *testing.T) {
	const empty, whole = "{metadata: {name: p}, spec: {containers: []}}", "{metadata: {name: p}, spec: {overhead: {cpu: 1000m}, containers: []}}"
	const half = "{metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: 100m}}}]}}"
	for name, test := range map[string]struct {
		cluster string
		pod     string
		queries bool
		want    int64
	}{
		"new node":                               {cluster(sample("CPU", "node-1", 0)), empty, true, 40},
		"hot node":                               {cluster(sample("CPU", "node-1", 50)), empty, true, 33},
		"excess utilization returns min score":   {cluster(sample("CPU", "node-1", 30)), whole, true, 0},
		"no value of the node":                   {cluster(sample("CPU", "node-2", 30)), empty, true, 0},
		"a request counts for more":              {cluster(sample("CPU", "node-1", 5)), half, true, 70},
		"a value of no sense":                    {cluster(sample("CPU", "node-1", -1e30)), empty, true, 0},
		"another one":                            {cluster(sample("CPU", "node-1", 1e30)), empty, true, 0},
		"a Pod that was bound long ago":          {cluster(sample("CPU", "node-1", 20), onNode("old", "200m", "2026-07-25T17:10:00Z")), empty, true, 70},
		"a Pod that is not measured yet":         {cluster(sample("CPU", "node-1", 20), onNode("new", "200m", "2026-07-25T17:19:30Z")), empty, true, 100},
		"the usage in metrics.k8s.io":            {fmt.Sprintf("{apiVersion: metrics.k8s.io/v1beta1, kind: NodeMetrics, metadata: {name: node-1}, timestamp: %q, window: 10s, usage: {cpu: 500m, memory: 1Mi}}", at), empty, false, 33},
		"no usage of the node in metrics.k8s.io": {"{apiVersion: metrics.k8s.io/v1beta1, kind: NodeMetrics, metadata: {name: node-2}}", empty, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
				got, status := p.In(t, cluster(node, test.cluster)).Configure(t, fmt.Sprintf("{policy: targetLoadPacking, queries: %t}", test.queries)).Begin(t, test.pod).Score(t, "node-1")
				if got != test.want || !status.IsSuccess() {
					t.Errorf("the score is %d, %s; want %d", got, status, test.want)
				}
			})
		})
	}
}

// TestLowRiskOvercommitment has the case of TestLowRiskOverCommitment_Score, and more.
func TestLowRiskOvercommitment(t *testing.T) {
	const empty = "{metadata: {name: p}, spec: {containers: []}}"
	pod := func(request, limit string) string {
		return fmt.Sprintf("{metadata: {name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: %s}, limits: {cpu: %s}}}]}}", request, limit)
	}
	measured := func(cpu, deviation float64) string {
		return cluster(sample("CPU", "node-1", cpu), sample("CPU-deviation", "node-1", deviation), sample("Memory", "node-1", 10), sample("Memory-deviation", "node-1", 0))
	}
	for name, test := range map[string]struct {
		cluster, pod string
		want         int64
	}{
		"best effort":                     {measured(20, 0), empty, 0},
		"no value of the node":            {cluster(sample("CPU", "node-2", 20), sample("Memory", "node-2", 20)), pod("100m", "200m"), 0},
		"a node without other Pods":       {measured(20, 0), pod("100m", "200m"), 100},
		"limits of twice the node":        {measured(20, 0), pod("1", "2"), 50},
		"limits that no request balances": {measured(20, 0), pod("500m", "1500m"), 75},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, newPlugin(), func(t *testing.T, p *schedtest.Plugin) {
				got, status := p.In(t, cluster(node, test.cluster)).Configure(t, "{policy: lowRiskOvercommitment, queries: true}").Begin(t, test.pod).Score(t, "node-1")
				if got != test.want || !status.IsSuccess() {
					t.Errorf("the score is %d, %s; want %d", got, status, test.want)
				}
			})
		})
	}
}

// TestRisk has the cases of TestLowRiskOverCommitment_computeRisk of scheduler-plugins.
func TestRisk(t *testing.T) {
	for name, test := range map[string]struct {
		own, others amounts
		average     float64
		has, want   float64
	}{
		"test-cpu-1": {amounts{1000, 1000}, amounts{1000, 2000}, 80, 4000, 0.5},
		"test-mem-1": {amounts{2048, 6144}, amounts{0, 0}, 25, 4096, 0.25},
		"test-cpu-2": {amounts{1000, 1000}, amounts{3000, 4000}, 80, 4000, 1},
		"test-mem-2": {amounts{512, 1024}, amounts{512, 6144}, 25, 4096, 0.75},
	} {
		if got := newPlugin().risk(test.own, test.others, load{average: test.average}, true, test.has); got != test.want {
			t.Errorf("%s: %g, want %g", name, got, test.want)
		}
	}
}

// TestBeta has values of the distribution function that are known in closed form.
func TestBeta(t *testing.T) {
	for _, test := range []struct{ a, b, x, want float64 }{
		{2, 2, 0.5, 0.5}, {2, 2, 0, 0}, {2, 2, 1, 1}, {1, 1, 0.3, 0.3}, {3, 1, 0.5, 0.125}, {1, 2, 0.5, 0.75}, {2, 2, 0.25, 0.15625}, {2, 2, 0.75, 0.84375},
		{0.5, 0.5, 0.25, 2 / math.Pi * math.Asin(0.5)}, {50, 1, 0.99, math.Pow(0.99, 50)},
	} {
		if got := (beta{test.a, test.b}).below(test.x); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("beta(%g, %g) below %g is %.12g, want %.12g", test.a, test.b, test.x, got, test.want)
		}
	}
	for _, test := range []struct{ mean, deviation, threshold, want float64 }{{0.5, math.Sqrt(0.05), 0.5, 0.5}, {0, 0.1, 0, 1}, {0.2, 0, 0.3, 1}, {0.4, 0, 0.3, 0}, {0.5, 0.6, 0.5, 0}} {
		if got, _, _ := probability(test.mean, test.deviation, test.threshold); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("a load of %g and %g is below %g with %g, want %g", test.mean, test.deviation, test.threshold, got, test.want)
		}
	}
}
