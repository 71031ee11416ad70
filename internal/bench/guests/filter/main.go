// The filter guest of the benchmark checks one label and the taints of a Node:
// the least that a scheduler plugin does.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type filter struct{}

func (filter) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	n := node.Node()
	if n.Metadata().Labels().Get("topology.kubernetes.io/zone") == "" {
		return sched.Unschedulable("node has no zone")
	}
	if taint, found := core.FindUntolerated(n.Spec().Taints(), pod.Spec().Tolerations()); found {
		return sched.Unschedulable("node has the taint ", taint.String())
	}
	return nil
}

func init() { sched.Register(filter{}) }

func main() {}
