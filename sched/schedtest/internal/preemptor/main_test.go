package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

const (
	red  = `metadata: {name: red, labels: {team: red}}`
	blue = `metadata: {name: blue, labels: {team: blue}}`
	none = `metadata: {name: none}`
)

func TestQueue(t *testing.T) {
	schedtest.Each(t, preemptor{}, func(t *testing.T, p *schedtest.Plugin) {
		const urgent = `{metadata: {name: urgent}, spec: {priority: 7}}`
		for _, test := range []struct {
			first, second string
			want          bool
		}{{red, blue, true}, {red, urgent, false}, {urgent, red, true}} {
			if got := p.Less(t, test.first, test.second); got != test.want {
				t.Errorf("%s before %s: %t", test.first, test.second, got)
			}
		}
		podGone := sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}
		nodeCame := sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd}
		if diff := cmp.Diff([]sched.ClusterEvent{podGone, nodeCame}, p.EventsToRegister(t)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		for name, test := range map[string]struct {
			event      sched.ClusterEvent
			pod        string
			before     string
			after      string
			want       sched.QueueingHint
			wantReason string
		}{
			"one of the team":      {podGone, red, red, "", sched.Queue, ""},
			"one of another":       {podGone, red, blue, "", sched.QueueSkip, ""},
			"no hint":              {nodeCame, red, "", `metadata: {name: n1}`, sched.Queue, ""},
			"not registered":       {sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionDelete}, red, `metadata: {name: n1}`, "", sched.QueueSkip, ""},
			"a hint with an error": {podGone, none, red, "", sched.Queue, "a Pod without a team is never refused"},
		} {
			got, err := p.QueueingHint(t, test.event, test.pod, test.before, test.after)
			if got != test.want || (err == nil) != (test.wantReason == "") || err != nil && err.Error() != test.wantReason {
				t.Errorf("%s: got %v, error %v", name, got, err)
			}
		}
	})
}

func TestPreQueueingHint(t *testing.T) {
	schedtest.Each(t, preemptor{}, func(t *testing.T, p *schedtest.Plugin) {
		podGone := sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}
		for name, test := range map[string]struct {
			event      sched.ClusterEvent
			before     string
			want       sched.PreQueueingHintResult
			wantReason string
		}{
			"one of a team":  {podGone, red, sched.PreQueueingHintResult{Pods: []sched.PodName{{Namespace: "red", Name: "leader"}}}, ""},
			"one of all":     {podGone, `metadata: {name: p, labels: {team: all}}`, sched.PreQueueingHintResult{AllPods: true}, ""},
			"an error":       {podGone, none, sched.PreQueueingHintResult{AllPods: true}, "a Pod without a team"},
			"no hint":        {sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd}, "", sched.PreQueueingHintResult{AllPods: true}, ""},
			"not registered": {sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionDelete}, "", sched.PreQueueingHintResult{}, ""},
		} {
			got, err := p.PreQueueingHint(t, test.event, test.before, "")
			if (err == nil) != (test.wantReason == "") || err != nil && err.Error() != test.wantReason {
				t.Errorf("%s: error %v", name, err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

func TestSignPod(t *testing.T) {
	schedtest.Each(t, preemptor{}, func(t *testing.T, p *schedtest.Plugin) {
		got, status := p.SignPod(t, red)
		if diff := cmp.Diff([]sched.SignFragment{{Key: "team", Value: `{"name":"red"}`}}, got); diff != "" || !status.IsSuccess() {
			t.Errorf("%s (-want +got):\n%s", status, diff)
		}
		if got, status := p.SignPod(t, none); got != nil || status.String() != "Unschedulable: no team" {
			t.Errorf("got %v, %s", got, status)
		}
	})
}

func TestPreemption(t *testing.T) {
	const nodes = `
apiVersion: v1
kind: Pod
metadata: {name: other, namespace: shop, labels: {team: red}}
spec: {nodeName: n1, containers: [{name: a}]}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
`
	schedtest.Each(t, preemptor{}, func(t *testing.T, p *schedtest.Plugin) {
		expect := func(what string, got *sched.Status, want string) {
			t.Helper()
			if got.String() != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		c := p.In(t, nodes).Begin(t, red)
		expect("Filter", c.Filter(t, "n1"), "Success")
		expect("AddPod", c.AddPod(t, `metadata: {name: other, labels: {team: red}}`, "n1"), "Success")
		expect("AddPod of another team", c.AddPod(t, blue, "n2"), "Success")
		expect("AddPod without a team", c.AddPod(t, none, "n2"), "Error: a Pod without a team")
		expect("Filter of a full node", c.Filter(t, "n1"), "Unschedulable: 1 of the team run there")
		expect("Filter of another node", c.Filter(t, "n2"), "Success")
		expect("RemovePod", c.RemovePod(t, `metadata: {name: other, labels: {team: red}}`, "n1"), "Success")
		expect("Filter after RemovePod", c.Filter(t, "n1"), "Success")
		expect("AddPod by its name", c.AddPod(t, "shop/other", "n1"), "Success")
		expect("Filter after it", c.Filter(t, "n1"), "Unschedulable: 1 of the team run there")
		expect("RemovePod by its name", c.RemovePod(t, "shop/other", "n1"), "Success")

		result, status := c.PostFilter(t,
			sched.NodeStatus{NodeName: "n2", Status: sched.Unschedulable("full")},
			sched.NodeStatus{NodeName: "n1", Status: sched.UnschedulableAndUnresolvable("wrong")})
		if expect("PostFilter", status, "Success"); result == nil || result.NominatedNodeName != "n2" {
			t.Errorf("PostFilter nominates %+v", result)
		}
		result, status = c.PostFilter(t, sched.NodeStatus{NodeName: "n1", Status: sched.UnschedulableAndUnresolvable("wrong")})
		if expect("PostFilter without a way", status, "Unschedulable: no node would do: 1"); result != nil {
			t.Errorf("PostFilter nominates %+v", result)
		}
	})
}
