// The stamp guest lets Pods with the label "stamped" onto nodes whose label
// "stamp" is its own stamp. The test makes another version of it by changing the
// stamp in the module.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type stamp struct{}

var own = "kubewasm-e2e-stamp-1"

func (stamp) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if pod.Metadata().Labels().Has("stamped") && node.Node().Metadata().Labels().Get("stamp") != own {
		return sched.Unschedulable("node is not stamped ", own)
	}
	return nil
}

func init() { sched.Register(stamp{}) }

func main() {}
