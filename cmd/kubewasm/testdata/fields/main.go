// This guest names fields that there are not, in the way of a typing error.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:reads node.metadata.label
//kubewasm:reads pod.spec.containers.imgae node.spec
//kubewasm:decides cpu_shares
//kubewasm:matches CREATE pods

type zone struct{}

func (zone) Filter(_ sched.CycleState, _ core.Pod, _ sched.NodeInfo) *sched.Status { return nil }

func init() { sched.Register(zone{}) }

func main() {}
