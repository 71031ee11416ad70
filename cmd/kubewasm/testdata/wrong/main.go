// This guest registers what is no plugin: its Filter lacks the state.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type zone struct{}

func (zone) Filter(_ core.Pod, _ sched.NodeInfo) *sched.Status { return nil }

func init() { sched.Register(zone{}) }

func main() {}
