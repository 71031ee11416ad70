// This guest wants to see the Pods that wait, which needs a grant.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type quiet struct{}

func (quiet) Filter(_ sched.CycleState, _ core.Pod, _ sched.NodeInfo) *sched.Status {
	if len(sched.WaitingPods()) != 0 {
		return sched.Unschedulable("others wait")
	}
	return nil
}

func init() { sched.Register(quiet{}) }

func main() {}
