package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

// member is the manifest of a Pod of a gang of 3.
func member(name, gang, more string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, labels: {kubewasm.dev/gang: %s}, annotations: {kubewasm.dev/gang-size: "3"}}%s}`, name, gang, more)
}

const incomplete = "Wait: the gang is not complete"

func permit(t *testing.T, c *schedtest.Cycle, want string, wait time.Duration) {
	t.Helper()
	if status, timeout := c.Permit(t, "n1"); status.String() != want || timeout != wait {
		t.Errorf("got %s for %s, want %s for %s", status, timeout, want, wait)
	}
}

func TestGang(t *testing.T) {
	schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
		p = p.Configure(t, `timeout: 5s`)
		begin := func(name, gang string) *schedtest.Cycle { return p.Begin(t, member(name, gang, "")) }

		permit(t, p.Begin(t, `metadata: {name: alone}`), "Success", 0)
		first, second, other := begin("a1", "a"), begin("a2", "a"), begin("b1", "b")
		permit(t, first, incomplete, 5*time.Second)
		permit(t, other, incomplete, 5*time.Second)
		permit(t, second, incomplete, 5*time.Second)
		events := p.Events()
		if want := (schedtest.Event{Type: "Normal", Reason: "WaitingForGang", Action: "Permit", Note: "2 of 3 Pods of gang a have a node"}); len(events) != 3 || events[2] != want {
			t.Errorf("got events %v, want the last to be %v", events, want)
		}
		permit(t, begin("a3", "a"), "Success", 0)
		if got := []string{first.Outcome(), second.Outcome(), other.Outcome()}; !slices.Equal(got, []string{"allowed", "allowed", ""}) {
			t.Errorf("the outcomes are %q", got)
		}
		begin("b2", "b").Unreserve(t, "n1")
		if got, want := other.Outcome(), "rejected: Pod b2 of the same gang cannot be bound"; got != want {
			t.Errorf("the outcome is %q, want %q", got, want)
		}
	})
}

// TestGangThatDoesNotFit holds that the nodes of a gang are given back when one of its Pods fits on none.
func TestGangThatDoesNotFit(t *testing.T) {
	schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
		waits, other := p.Begin(t, member("a1", "a", "")), p.Begin(t, member("b1", "b", ""))
		permit(t, waits, incomplete, time.Minute)
		permit(t, other, incomplete, time.Minute)
		if result, status := p.Begin(t, member("a2", "a", "")).PostFilter(t); result != nil || status.Code() != abi.Unschedulable {
			t.Errorf("got %v, %s, want Unschedulable", result, status)
		}
		if got, want := waits.Outcome(), "rejected: Pod a2 of the same gang fits on no node"; got != want {
			t.Errorf("the outcome is %q, want %q", got, want)
		}
		if got := other.Outcome(); got != "" {
			t.Errorf("a Pod of another gang is %s", got)
		}
		permit(t, p.Begin(t, member("a2", "a", "")), incomplete, 10*time.Second)
		// Whatever it was that kept it from its node the first time.
		tried := `, status: {conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}`
		permit(t, p.Begin(t, member("a1", "a", tried)), incomplete, 10*time.Second)
		permit(t, p.Configure(t, `{timeout: 3s, retryTimeout: 5s}`).Begin(t, member("a1", "a", tried)), incomplete, 3*time.Second)
	})
}

// TestGangThatHasBegun holds that a Pod is bound at once that takes the place of another.
func TestGangThatHasBegun(t *testing.T) {
	const node = "{apiVersion: v1, kind: Node, metadata: {name: n1}}"
	on := func(phase string) string { return ", spec: {nodeName: n1}, status: {phase: " + phase + "}" }
	gone := `{apiVersion: v1, kind: Pod, metadata: {name: gone, labels: {kubewasm.dev/gang: a}, deletionTimestamp: "2026-11-01T00:00:00Z"}, spec: {nodeName: n1}, status: {phase: Running}}`
	for name, test := range map[string]struct {
		pods []string
		want string
	}{
		"all others run":                         {[]string{member("a1", "a", on("Running")), member("a2", "a", on("Running"))}, "Success"},
		"all others are about to run":            {[]string{member("a1", "a", on("Pending")), member("a2", "a", on("Pending"))}, "Success"},
		"one other runs, and the rest have gone": {[]string{member("a1", "a", on("Running"))}, "Success"},
		"one other is about to run":              {[]string{member("a1", "a", on("Pending"))}, incomplete},
		"the others are on their way out":        {[]string{gone}, incomplete},
		"another gang runs":                      {[]string{member("b1", "b", on("Running")), member("b2", "b", on("Running"))}, incomplete},
	} {
		t.Run(name, func(t *testing.T) {
			schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
				manifests := node
				for _, pod := range test.pods {
					manifests += "\n---\n" + pod
				}
				c := p.In(t, manifests).Begin(t, member("a3", "a", ""))
				if status, _ := c.Permit(t, "n1"); status.String() != test.want {
					t.Errorf("got %s, want %s", status, test.want)
				}
			})
		})
	}
}

func TestHints(t *testing.T) {
	schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
		came := sched.ClusterEvent{Resource: abi.EventUnscheduledPod, ActionType: abi.ActionAdd | abi.ActionUpdatePodLabel | abi.ActionUpdatePodSchedulingGatesEliminated}
		left := sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}
		started := `, status: {startTime: "2026-11-01T00:00:00Z"}`
		for name, test := range map[string]struct {
			event         sched.ClusterEvent
			before, after string
			want          sched.QueueingHint
		}{
			"a Pod of the gang comes":               {came, "", member("a2", "a", ""), sched.Queue},
			"a Pod of another gang comes":           {came, "", member("b1", "b", ""), sched.QueueSkip},
			"a Pod without a gang comes":            {came, "", `metadata: {name: p}`, sched.QueueSkip},
			"a Pod without a gang leaves":           {left, `metadata: {name: p}`, "", sched.Queue},
			"a Pod of another gang is released":     {left, member("b1", "b", ""), "", sched.Queue},
			"a Pod of the gang is released":         {left, member("a2", "a", ""), "", sched.QueueSkip},
			"a Pod of the gang that has run leaves": {left, member("a2", "a", started), "", sched.Queue},
		} {
			if got, err := p.QueueingHint(t, test.event, member("a1", "a", ""), test.before, test.after); got != test.want || err != nil {
				t.Errorf("%s: got %v, error %v, want %v", name, got, err, test.want)
			}
		}
	})
}

func TestGangOfOne(t *testing.T) {
	schedtest.Each(t, &gang{}, func(t *testing.T, p *schedtest.Plugin) {
		c := p.Begin(t, `metadata: {name: p, labels: {kubewasm.dev/gang: g}, annotations: {kubewasm.dev/gang-size: "1"}}`)
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
	pod := schedtest.Pod(t, `metadata: {name: p, labels: {kubewasm.dev/gang: g}, annotations: {kubewasm.dev/gang-size: many}}`)
	_, status := (&gang{}).PreFilter(sched.NewCycleState(), pod, sched.NodeInfos{})
	if want := `UnschedulableAndUnresolvable: annotation kubewasm.dev/gang-size is "many", not a number above 0`; status.String() != want {
		t.Errorf("got %s, want %s", status, want)
	}
}
