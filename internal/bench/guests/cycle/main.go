// The cycle guest of the benchmark reads the zones that a Pod wants once for each
// cycle, and checks the zone and the taints of each Node.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type cycle struct{}

func (cycle) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	zones := strings.Split(pod.Metadata().Annotations().Get("kubewasm.dev/zones"), ", ")
	state.Write("zones", &zones)
	return nil, nil
}

func (cycle) Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	v, _ := state.Read("zones")
	n := node.Node()
	zone := n.Metadata().Labels().Get("topology.kubernetes.io/zone")
	for _, z := range *v.(*[]string) {
		if z != zone {
			continue
		}
		if taint, found := core.FindUntolerated(n.Spec().Taints(), pod.Spec().Tolerations()); found {
			return sched.Unschedulable("node has the taint ", taint.String())
		}
		return nil
	}
	return sched.Unschedulable("node is in zone ", zone)
}

func init() { sched.Register(cycle{}) }

func main() {}
