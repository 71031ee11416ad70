package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/sched/schedtest"
)

// class is the manifest of the PriorityClass "policy" with a policy, without the annotations that are
// empty.
func class(value int, minimum, seconds string) string {
	var annotations []string
	for _, a := range [][2]string{{minimumPriority, minimum}, {tolerationSeconds, seconds}} {
		if a[1] != "" {
			annotations = append(annotations, fmt.Sprintf("%s: %q", a[0], a[1]))
		}
	}
	return fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: policy, annotations: {%s}}, value: %d}", strings.Join(annotations, ", "), value)
}

// The times at which Pods were scheduled. A guest has a fake clock in tests, which begins in 2022.
var (
	longAgo = time.Unix(1_000_000_000, 0)
	now     = time.Now()
)

// victim is the manifest of a Pod that takes all of its node.
func victim(node, class string, priority int, scheduled time.Time) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: on-%[1]s, uid: on-%[1]s}, "+
		"spec: {priority: %[3]d, priorityClassName: %[2]q, nodeName: %[1]s, containers: [{name: c, resources: {requests: {cpu: 1}}}]}, "+
		"status: {conditions: [{type: PodScheduled, status: 'True', lastTransitionTime: %[4]q}]}}",
		node, class, priority, scheduled.UTC().Format(time.RFC3339))
}

func preemptor(priority int, policy string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: p, uid: p}, spec: {priority: %d, preemptionPolicy: %s, containers: [{name: c, resources: {requests: {cpu: 1}}}]}}", priority, policy)
}

func node(name string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {allocatable: {cpu: 1, pods: 10}}}", name)
}

// TestPotentialVictims has the cases of TestExemptedFromPreemption and TestParsePreemptionTolerationPolicy
// of scheduler-plugins (Apache 2.0, commit 903da7df), those of its integration test, and more: whether a
// Pod on a node is evicted for another one.
func TestPotentialVictims(t *testing.T) {
	const (
		lower, never = "PreemptLowerPriority", "Never"
		kept         = "No preemption victims"
		evicted      = "n1: shop/on-n1"
	)
	for name, test := range map[string]struct {
		class     string
		victim    string
		preemptor string
		want      string
	}{
		"a class that does not exist":                 {"", victim("n1", "policy", 1, longAgo), preemptor(2, lower), "there is no PriorityClass policy"},
		"no class":                                    {"", victim("n1", "", 1, longAgo), preemptor(2, lower), evicted},
		"a minimum that is no number":                 {class(1, "a", ""), victim("n1", "policy", 1, longAgo), preemptor(2, lower), evicted},
		"a minimum that does not fit":                 {class(1, "4294967296", "-1"), victim("n1", "policy", 1, longAgo), preemptor(2, lower), evicted},
		"a time that is no number":                    {class(1, "10", "a"), victim("n1", "policy", 1, longAgo), preemptor(2, lower), evicted},
		"an unreadable policy, PreemptNever":          {class(1, "a", ""), victim("n1", "policy", 1, longAgo), preemptor(2, never), "not eligible due to preemptionPolicy=Never"},
		"no policy, PreemptNever":                     {class(1, "", ""), victim("n1", "policy", 1, longAgo), preemptor(2, never), "not eligible due to preemptionPolicy=Never"},
		"no policy, PreemptLowerPriority":             {class(1, "", ""), victim("n1", "policy", 1, longAgo), preemptor(2, lower), evicted},
		"no policy, a time":                           {class(1, "", "-1"), victim("n1", "policy", 1, longAgo), preemptor(2, lower), evicted},
		"no policy, a higher priority":                {class(3, "", ""), victim("n1", "policy", 3, longAgo), preemptor(2, lower), kept},
		"no policy, the same priority":                {class(2, "", ""), victim("n1", "policy", 2, longAgo), preemptor(2, lower), kept},
		"above the minimum":                           {class(100, "200", ""), victim("n1", "policy", 100, longAgo), preemptor(201, lower), evicted},
		"at the minimum":                              {class(100, "200", ""), victim("n1", "policy", 100, longAgo), preemptor(200, lower), evicted},
		"at the minimum, for ever":                    {class(100, "200", "-1"), victim("n1", "policy", 100, longAgo), preemptor(200, lower), evicted},
		"below the minimum, without a time":           {class(100, "200", ""), victim("n1", "policy", 100, longAgo), preemptor(199, lower), evicted},
		"below the minimum, a time of 0":              {class(100, "200", "0"), victim("n1", "policy", 100, longAgo), preemptor(199, lower), evicted},
		"below the minimum, for ever":                 {class(100, "200", "-1"), victim("n1", "policy", 100, longAgo), preemptor(199, lower), kept},
		"below the minimum, the time is over":         {class(100, "200", "100"), victim("n1", "policy", 100, longAgo), preemptor(199, lower), evicted},
		"below the minimum, within the time":          {class(100, "200", "100"), victim("n1", "policy", 100, now), preemptor(199, lower), kept},
		"a minimum below the priority of the class":   {class(100, "50", "-1"), victim("n1", "policy", 100, longAgo), preemptor(101, lower), evicted},
		"within the time, but no condition says when": {class(100, "200", "100"), strings.Replace(victim("n1", "policy", 100, longAgo), "PodScheduled", "Ready", 1), preemptor(199, lower), kept},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, []string{test.class, test.victim, node("n1")}, test.preemptor, test.want)
		})
	}
}

// TestAnotherNode has one of two nodes whose Pod does not tolerate the preemption, though it is the more
// important one.
func TestAnotherNode(t *testing.T) {
	check(t, []string{class(100, "1000", "-1"), node("n1"), node("n2"), victim("n1", "policy", 100, longAgo), victim("n2", "", 200, longAgo)}, preemptor(300, "PreemptLowerPriority"), "n2: shop/on-n2")
}

// TestTime has the ends of the time for which a Pod tolerates others.
func TestTime(t *testing.T) {
	pod := schedtest.Pod(t, victim("n1", "policy", 100, longAgo))
	for after, want := range map[time.Duration]bool{0: true, 10 * time.Second: true, 99 * time.Second: true, 100 * time.Second: false, 101 * time.Second: false} {
		if got := (policy{minimum: 200, seconds: 100}).tolerates(pod, 199, longAgo.Add(after)); got != want {
			t.Errorf("after %v: got %v, want %v", after, got, want)
		}
	}
}

// check compares the node and the Pods that are evicted for a Pod, or the status.
func check(t *testing.T, cluster []string, pod, want string) {
	schedtest.Each(t, toleration{}, func(t *testing.T, p *schedtest.Plugin) {
		node, victims, status := p.In(t, strings.Join(cluster, "\n---\n")).Begin(t, pod).Preempt(t)
		got := node + ": " + strings.Join(victims, " ")
		if node == "" {
			got = status.String()
		}
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
