// The inmain guest registers its plugin in main, as a command does that is built
// without -buildmode=c-shared.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// names grows with each call, so that the guest's garbage collector has work.
var names []string

type plugin struct{}

func (plugin) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if names = append(names, node.Node().Metadata().Name()+pod.Metadata().Name()); len(names) > 1000 {
		names = nil
	}
	return sched.Unschedulable("registered in main")
}

func main() { sched.Register(plugin{}) }
