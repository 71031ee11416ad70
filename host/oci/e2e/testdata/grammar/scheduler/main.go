// Command scheduler is the scheduler plugin of TestOnePluginForAllComponents.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type filter struct {
	Label string `json:"label"`
}

// Filter rejects nodes without the label.
func (f *filter) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	if _, ok := node.Node().Metadata().Labels().Lookup(f.Label); !ok {
		return sched.Unschedulable("no ", f.Label)
	}
	return nil
}

func init() { sched.Register(&filter{}) }

func main() {}
