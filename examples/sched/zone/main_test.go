package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/guesttest"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// cycle runs PreFilter for a Pod with the annotation zones.
func cycle(t *testing.T, z *zone, zones string) (sched.CycleState, core.Pod) {
	t.Helper()
	pod := guesttest.Pod(t, `
metadata: {name: web, annotations: {kubewasm.dev/zones: "`+zones+`"}}
spec: {containers: [{name: web, image: "web:1"}, {name: agent, image: "agent:2"}]}
`)
	state := sched.NewCycleState()
	if _, s := z.PreFilter(state, pod, sched.NodeInfos{}); !s.IsSuccess() {
		t.Fatal(s)
	}
	return state, pod
}

func TestFilter(t *testing.T) {
	state, pod := cycle(t, &zone{}, "a, b")
	tests := map[string]struct{ node, want string }{
		"in the zone":     {`metadata: {labels: {topology.kubernetes.io/zone: b}}`, "Success"},
		"in another zone": {`metadata: {labels: {topology.kubernetes.io/zone: c}}`, `Unschedulable: node is in zone "c", the Pod wants a or b`},
		"without a zone":  {`{}`, `Unschedulable: node is in zone "", the Pod wants a or b`},
		"cordoned": {`{metadata: {labels: {topology.kubernetes.io/zone: a}}, spec: {unschedulable: true}}`,
			"UnschedulableAndUnresolvable: node is cordoned"},
		"tainted": {`{metadata: {labels: {topology.kubernetes.io/zone: a}}, spec: {taints: [{key: gpu, effect: NoExecute}]}}`,
			"UnschedulableAndUnresolvable: node has the taint gpu:NoExecute, which the Pod does not tolerate"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			node := sched.NewNodeInfo(guesttest.Node(t, test.node))
			if got := (&zone{}).Filter(state, pod, node).String(); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestScoreAndNormalizeScore(t *testing.T) {
	z := &zone{}
	state, pod := cycle(t, z, "a")
	var scores sched.NodeScoreList
	for _, manifest := range []string{
		`{metadata: {name: n1}, status: {images: [{names: ["web:1"], sizeBytes: 157286400}]}}`,
		`{metadata: {name: n2}}`,
		`{metadata: {name: n3}, status: {images: [{names: ["web:1"], sizeBytes: 157286400}, {names: ["agent:2"], sizeBytes: 52428800}]}}`,
	} {
		node := guesttest.Node(t, manifest)
		score, s := z.Score(state, pod, sched.NewNodeInfo(node))
		if !s.IsSuccess() {
			t.Fatal(s)
		}
		scores = append(scores, sched.NewNodeScore(node.Metadata().Name(), score))
	}
	if s := z.NormalizeScore(state, pod, scores); !s.IsSuccess() {
		t.Fatal(s)
	}
	for i, want := range []int64{75, 0, 100} {
		if scores[i].Score != want {
			t.Errorf("%s has the score %d, want %d", scores[i].Name(), scores[i].Score, want)
		}
	}
}
