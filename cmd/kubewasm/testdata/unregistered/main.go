// This guest forgets to register its plugin.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type zone struct{}

func (zone) Filter(_ sched.CycleState, _ core.Pod, _ sched.NodeInfo) *sched.Status { return nil }

func main() {}
