package main

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

func manifest(name, tenant, more string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, uid: %s, labels: {kubewasm.dev/tenant: %s}}\n%s", name, name, tenant, more)
}

// TestQuota fills the quota of a tenant, beside Pods that had a node before.
func TestQuota(t *testing.T) {
	running := "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n---\n" + manifest("old", "a", "spec: {nodeName: n1}\nstatus: {phase: Running}\n") + "---\n" +
		manifest("done", "a", "spec: {nodeName: n1}\nstatus: {phase: Succeeded}\n") + "---\n" +
		manifest("one", "a", "") + "---\n" + manifest("two", "a", "") + "---\n" + manifest("other", "b", "")
	schedtest.Each(t, &quota{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, running)
		var got []string
		try := func(name, tenant string) *schedtest.Cycle {
			t.Helper()
			c := p.Begin(t, manifest(name, tenant, ""))
			s := c.Status
			if s.IsSuccess() {
				s = c.Reserve(t, "n1")
			}
			got = append(got, name+": "+text(s))
			return c
		}
		one := try("one", "a")
		try("two", "a")
		try("other", "b")
		one.Unreserve(t, "n1")
		one.Unreserve(t, "n1") // A scheduler may call it more than once.
		try("two", "a")
		try("one", "a")
		want := []string{
			"one: Success", "two: Unschedulable tenant a has 2 Pods", "other: Success",
			"two: Success", "one: Unschedulable tenant a has 2 Pods",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
	})
}

// TestPodsThatAreGone counts a Pod out that was deleted.
func TestPodsThatAreGone(t *testing.T) {
	schedtest.Each(t, &quota{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.In(t, manifest("one", "a", ""))
		p = p.Configure(t, "pods: 1")
		if s := p.Begin(t, manifest("gone", "a", "")).Reserve(t, "n1"); s != nil {
			t.Fatal(s.Reason())
		}
		// The scheduler does not know "gone", as if it had been deleted.
		c := p.Begin(t, manifest("one", "a", ""))
		if c.Status != nil {
			t.Fatal(text(c.Status))
		}
		if s := c.Reserve(t, "n1"); s != nil {
			t.Fatal(text(s))
		}
		if c := p.Begin(t, manifest("two", "a", "")); text(c.Status) != "Unschedulable tenant a has 1 Pods" {
			t.Error(text(c.Status))
		}
	})
}

func text(s *sched.Status) string {
	if s.IsSuccess() {
		return "Success"
	}
	return s.Code().String() + " " + s.Reason()
}
