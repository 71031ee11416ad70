package main

import (
	"slices"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/guest/guesttest"
	"github.com/kubewasm/kubewasm/guest/guesttest/schedtest"
	"github.com/kubewasm/kubewasm/guest/sched"
)

func TestGang(t *testing.T) {
	schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.Configure(t, `timeout: 5s`)
		begin := func(name, gang string) *schedtest.Cycle {
			return p.Begin(t, `metadata: {name: `+name+`, annotations: {kubewasm.dev/gang: `+gang+`, kubewasm.dev/gang-size: "3"}}`)
		}
		permit := func(c *schedtest.Cycle, want string, wait time.Duration) {
			t.Helper()
			if status, timeout := c.Permit(t, "n1"); status.String() != want || timeout != wait {
				t.Errorf("got %s for %s, want %s for %s", status, timeout, want, wait)
			}
		}
		const incomplete = "Wait: the gang is not complete"

		permit(p.Begin(t, `metadata: {name: alone}`), "Success", 0)
		first, second, other := begin("a1", "a"), begin("a2", "a"), begin("b1", "b")
		permit(first, incomplete, 5*time.Second)
		permit(other, incomplete, 5*time.Second)
		permit(second, incomplete, 5*time.Second)
		events := p.Events()
		if want := (schedtest.Event{Type: "Normal", Reason: "WaitingForGang", Action: "Permit", Note: "2 of 3 Pods of gang a have a node"}); len(events) != 3 || events[2] != want {
			t.Errorf("got events %v, want the last to be %v", events, want)
		}
		permit(begin("a3", "a"), "Success", 0)
		if got := []string{first.Outcome(), second.Outcome(), other.Outcome()}; !slices.Equal(got, []string{"allowed", "allowed", ""}) {
			t.Errorf("the outcomes are %q", got)
		}
		begin("b2", "b").Unreserve(t, "n1")
		if got, want := other.Outcome(), "rejected: Pod b2 of the same gang cannot be bound"; got != want {
			t.Errorf("the outcome is %q, want %q", got, want)
		}
	})
}

func TestGangOfOne(t *testing.T) {
	schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
		c := p.Begin(t, `metadata: {name: p, annotations: {kubewasm.dev/gang: g, kubewasm.dev/gang-size: "1"}}`)
		if status, _ := c.Permit(t, "n1"); !status.IsSuccess() {
			t.Error(status)
		}
	})
}

func TestConfiguration(t *testing.T) {
	schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
		if _, err := p.TryConfigure(t, `timeout: soon`); err == nil || err.Error() != `timeout: want a duration such as 1m30s, got "soon"` {
			t.Errorf("got %v", err)
		}
	})
}

func TestPreFilter(t *testing.T) {
	pod := guesttest.Pod(t, `metadata: {name: p, annotations: {kubewasm.dev/gang: g, kubewasm.dev/gang-size: many}}`)
	_, status := (&gang{}).PreFilter(sched.NewCycleState(), pod, sched.NodeInfos{})
	if want := `UnschedulableAndUnresolvable: annotation kubewasm.dev/gang-size is "many", not a number above 0`; status.String() != want {
		t.Errorf("got %s, want %s", status, want)
	}
}
