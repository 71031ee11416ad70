package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/sched/schedtest"
)

const cluster = `
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110, example.com/gpu: 8}, images: [{names: [web], sizeBytes: 7}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2}, status: {images: [{names: [web, db], sizeBytes: 7}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  nodeName: n1
  containers:
  - {name: a, image: web, ports: [{containerPort: 80, hostPort: 8080}], resources: {requests: {cpu: 500m, memory: 1Gi, example.com/gpu: 2}}}
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {nodeName: n1, containers: [{name: b, image: web}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: pending}, spec: {containers: [{name: b, image: web}]}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {volumeName: pv-1}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: ledger, namespace: bank}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: x}
`

func TestTheScheduler(t *testing.T) {
	schedtest.Each(t, &neighbour{}, func(t *testing.T, p *schedtest.Plugin) {
		c := p.In(t, cluster).Begin(t, `metadata: {name: web, namespace: shop}`)
		for _, test := range []struct{ what, got, want string }{
			{"Filter of a node with Pods", c.Filter(t, "n1").String(),
				"Unschedulable: n1 cpu 500/600/4000 memory 1073741824/8589934592 gpu 2/8 room 108 port TCP8080 claim default/data image web*2 Pod a Pod b"},
			{"Filter of a node without", c.Filter(t, "n2").String(), "Unschedulable: n2 cpu 0/0/0 memory 0/0 gpu 0/0 room 0 image db*1 image web*2"},
			{"Filter of a manifest", c.Filter(t, `metadata: {name: n3}`).String(), "Unschedulable: n3 cpu 0/0/0 memory 0/0 gpu 0/0 room 0"},
			{"PreScore", c.PreScore(t, "n2").String(), "Error: n2 n2"},
			{"PreBind", c.PreBind(t, "n1").String(), "Unschedulable: pv-1 of ledger data fast"},
			{"PreBind without the claim", p.Begin(t, `{}`).PreBind(t, "n1").String(), "Unschedulable: no claim"},
		} {
			if test.got != test.want {
				t.Errorf("%s:\ngot  %s\nwant %s", test.what, test.got, test.want)
			}
		}
	})
}

// TestChangesOfObjects holds that a test sees what is applied, and that PreBind waits.
func TestChangesOfObjects(t *testing.T) {
	schedtest.Each(t, &neighbour{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, cluster)
		for name, want := range map[string]string{"data": "Success", "more": "Wait: no more"} {
			if got := p.Begin(t, `metadata: {name: web, labels: {awaits: `+name+`}}`).PreBind(t, "n1").String(); got != want {
				t.Errorf("PreBind that awaits %s: %s, want %s", name, got, want)
			}
		}
		want := []string{`v1/persistentvolumeclaims shop/data annotations {"a":"1","b":"2"}`, `v1/persistentvolumeclaims shop/data status {"phase":"Bound"}`}
		if diff := cmp.Diff(want, p.Applied()); diff != "" {
			t.Errorf("applied (-want +got):\n%s", diff)
		}
	})
}

func TestPodsThatWait(t *testing.T) {
	schedtest.Each(t, &neighbour{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.Configure(t, `size: 3`)
		begin := func(name string) *schedtest.Cycle { return p.Begin(t, `metadata: {namespace: shop, name: `+name+`}`) }
		permit := func(c *schedtest.Cycle, want string) {
			t.Helper()
			if got, _ := c.Permit(t, "n1"); got.String() != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		outcome := func(c *schedtest.Cycle, want string) {
			t.Helper()
			if got := c.Outcome(); got != want {
				t.Errorf("the outcome is %q, want %q", got, want)
			}
		}
		a, b := begin("a"), begin("b")
		permit(a, "Wait: 2 more")
		permit(b, "Wait: 1 more")
		outcome(a, "")
		permit(begin("c"), "Success")
		outcome(a, "allowed")
		outcome(b, "allowed")
		if diff := cmp.Diff([]schedtest.Event{{Type: "Normal", Reason: "Allowed", Action: "Permit", Note: "a"}, {Type: "Normal", Reason: "Allowed", Action: "Permit", Note: "b"}}, p.Events()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}

		d := begin("d")
		permit(d, "Wait: 2 more")
		begin("e").Unreserve(t, "n1")
		outcome(d, "rejected: e is lost")
		permit(begin("f"), "Wait: 2 more")
		if diff := cmp.Diff([]schedtest.Event{{Type: "Warning", Reason: "Lost", Action: "Binding", Note: "e has lost n1"}}, p.Events()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if list := p.Events(); len(list) != 0 {
			t.Errorf("got events %v twice", list)
		}
	})
}
