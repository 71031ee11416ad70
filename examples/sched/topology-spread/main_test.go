package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/sched/schedtest"
)

// Two zones, and nodes that are in no zone or that the Pod may not run on. The first zone
// has two Pods of the app web, one of them terminating, the second none.
const cluster = `
apiVersion: v1
kind: Node
metadata: {name: a1, labels: {zone: a}}
---
apiVersion: v1
kind: Node
metadata: {name: b1, labels: {zone: b, disk: ssd}}
---
apiVersion: v1
kind: Node
metadata: {name: c1, labels: {zone: c}}
spec: {taints: [{key: gpu, effect: NoSchedule}]}
---
apiVersion: v1
kind: Node
metadata: {name: nowhere}
---
apiVersion: v1
kind: Pod
metadata: {name: w1, namespace: shop, uid: w1, labels: {app: web, version: "1"}}
spec: {nodeName: a1}
---
apiVersion: v1
kind: Pod
metadata: {name: w2, namespace: shop, uid: w2, labels: {app: web, version: "2"}}
spec: {nodeName: a1}
---
apiVersion: v1
kind: Pod
metadata: {name: going, namespace: shop, uid: going, deletionTimestamp: "2026-11-01T12:00:00Z", labels: {app: web, version: "1"}}
spec: {nodeName: b1}
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere, namespace: bank, uid: elsewhere, labels: {app: web, version: "1"}}
spec: {nodeName: b1}
`

const selector = `, labelSelector: {matchLabels: {app: web}}`

// pod returns a Pod with a constraint that also has these fields.
func pod(fields string) string {
	return `
metadata: {name: new, namespace: shop, labels: {app: web, version: "2"}}
spec: {topologySpreadConstraints: [{topologyKey: zone, whenUnsatisfiable: DoNotSchedule, ` + fields + `}]}
`
}

const tooMany = "Unschedulable: node(s) didn't match pod topology spread constraints"

func TestFilter(t *testing.T) {
	schedtest.Each(t, topologySpread{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, cluster)
		for name, test := range map[string]struct{ fields, a, b string }{
			"the emptiest zone":                     {`maxSkew: 1` + selector, tooMany, "Success"},
			"more skew":                             {`maxSkew: 3` + selector, "Success", "Success"},
			"more domains than there are":           {`maxSkew: 2, minDomains: 9` + selector, tooMany, "Success"},
			"Pods of the same version only":         {`maxSkew: 2, matchLabelKeys: [version]` + selector, "Success", "Success"},
			"taints are honoured":                   {`maxSkew: 1, nodeTaintsPolicy: Honor` + selector, tooMany, "Success"},
			"a Pod that is not among those counted": {`maxSkew: 1, labelSelector: {matchLabels: {app: web, version: "1"}}`, "Success", "Success"},
		} {
			t.Run(name, func(t *testing.T) {
				c := p.Begin(t, pod(test.fields))
				if got := c.Filter(t, "a1").String(); got != test.a {
					t.Errorf("zone a: got %s, want %s", got, test.a)
				}
				if got := c.Filter(t, "b1").String(); got != test.b {
					t.Errorf("zone b: got %s, want %s", got, test.b)
				}
			})
		}
		c := p.Begin(t, pod(`maxSkew: 1`+selector))
		if got, want := c.Filter(t, "nowhere").String(), "UnschedulableAndUnresolvable: node(s) didn't match pod topology spread constraints (missing required label)"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestPreFilter(t *testing.T) {
	schedtest.Each(t, topologySpread{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, cluster)
		for name, test := range map[string]struct{ pod, want string }{
			"without constraints":             {`{}`, "Skip"},
			"with one that need not be met":   {`spec: {topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]}`, "Skip"},
			"with a selector without a sense": {pod("maxSkew: 1, labelSelector: {matchExpressions: [{key: app, operator: In}]}"), `Error: selector: key "app", operator "In": want values`},
		} {
			t.Run(name, func(t *testing.T) {
				if got := p.Begin(t, test.pod).Status.String(); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		}
	})
}

// TestPodsComeAndGo holds that what was counted before is counted anew on nodes that have
// changed since, and only for the same question.
func TestPodsComeAndGo(t *testing.T) {
	const third = `
---
apiVersion: v1
kind: Pod
metadata: {name: w3, namespace: shop, uid: w3, labels: {app: web, version: "1"}}
spec: {nodeName: b1}
---
apiVersion: v1
kind: Pod
metadata: {name: w4, namespace: shop, uid: w4, labels: {app: web, version: "1"}}
spec: {nodeName: b1}
`
	schedtest.Each(t, topologySpread{}, func(t *testing.T, p *schedtest.Plugin) {
		for range 2 {
			for _, test := range []struct{ cluster, fields, a, b string }{
				{cluster, `maxSkew: 1` + selector, tooMany, "Success"},
				{cluster + third, `maxSkew: 1` + selector, tooMany, tooMany},
				{cluster + third, `maxSkew: 1, labelSelector: {matchLabels: {app: web, version: "2"}}`, tooMany, "Success"},
			} {
				c := p.In(t, test.cluster).Begin(t, pod(test.fields))
				if got := c.Filter(t, "a1").String(); got != test.a {
					t.Errorf("zone a: got %s, want %s", got, test.a)
				}
				if got := c.Filter(t, "b1").String(); got != test.b {
					t.Errorf("zone b: got %s, want %s", got, test.b)
				}
			}
		}
	})
}

// TestDryRuns removes the Pods of zone a on clones: a change of one clone does not affect
// the others.
func TestDryRuns(t *testing.T) {
	const web = `metadata: {name: w1, namespace: shop, uid: w1, labels: {app: web}}`
	schedtest.Each(t, topologySpread{}, func(t *testing.T, p *schedtest.Plugin) {
		c := p.In(t, cluster).Begin(t, pod(`maxSkew: 2`+selector))
		filter := func(c *schedtest.Cycle, want string) {
			t.Helper()
			if got := c.Filter(t, "a1").String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		filter(c, tooMany)
		for range 3 {
			clone := c.Clone(t)
			if status := clone.RemovePod(t, web, "a1"); !status.IsSuccess() {
				t.Fatal(status)
			}
			filter(clone, "Success")
			twin := clone.Clone(t)
			if status := twin.AddPod(t, web, "a1"); !status.IsSuccess() {
				t.Fatal(status)
			}
			filter(twin, tooMany)
			filter(clone, "Success")
		}
		filter(c, tooMany)
	})
}

// TestPodsOfANewDomain adds a Pod on a node that PreFilter has not seen, on a clone.
func TestPodsOfANewDomain(t *testing.T) {
	const web = `metadata: {name: w9, namespace: shop, uid: w9, labels: {app: web}}`
	const node = `metadata: {name: d1, labels: {zone: d}}`
	schedtest.Each(t, topologySpread{}, func(t *testing.T, p *schedtest.Plugin) {
		c := p.In(t, cluster).Begin(t, pod(`maxSkew: 1`+selector))
		clone := c.Clone(t)
		for range 2 {
			if status := clone.AddPod(t, web, node); !status.IsSuccess() {
				t.Fatal(status)
			}
		}
		if got := clone.Filter(t, node).String(); got != tooMany {
			t.Errorf("got %s, want %s", got, tooMany)
		}
		if got := c.Filter(t, node).String(); got != "Success" {
			t.Errorf("got %s, want Success", got)
		}
	})
}
