package main

import (
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

func TestBinder(t *testing.T) {
	schedtest.Each(t, binder{}, func(t *testing.T, p *schedtest.Plugin) {
		expect := func(what string, got *sched.Status, want string) {
			t.Helper()
			if got.String() != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		expect("PreEnqueue", p.PreEnqueue(t, `{}`), "Success")
		expect("PreEnqueue of a gated Pod", p.PreEnqueue(t, `metadata: {labels: {gated: ""}}`), "UnschedulableAndUnresolvable: gated")

		c := p.Begin(t, `metadata: {name: web}`)
		expect("PreScore", c.PreScore(t, `metadata: {name: n1}`, `metadata: {name: n2}`), "Success")
		expect("PreScore of an odd node", c.PreScore(t, `metadata: {name: n1}`, `metadata: {name: n2, labels: {odd: ""}}`), "Error: n2 is odd")
		expect("Reserve of a full node", c.Reserve(t, "full"), "Unschedulable: full is taken")
		expect("Reserve", c.Reserve(t, "n1"), "Success")
		expect("Reserve again", c.Reserve(t, "n2"), "Unschedulable: n2 is taken")
		c.Unreserve(t, "n1")
		expect("Reserve after Unreserve", c.Reserve(t, "n2"), "Success")

		status, wait := c.Permit(t, "n2")
		if expect("Permit", status, "Success"); wait != 0 {
			t.Errorf("Permit waits for %s", wait)
		}
		if status, wait = c.Permit(t, "slow"); wait != 1500*time.Millisecond {
			t.Errorf("Permit waits for %s", wait)
		}
		expect("Permit of a slow node", status, "Wait: later")
		expect("PreBind", c.PreBind(t, "n2"), "Success")
		expect("PreBind to a full node", c.PreBind(t, "full"), "Error: no disk")
		expect("Bind", c.Bind(t, "n2"), "Skip")
	})
}
