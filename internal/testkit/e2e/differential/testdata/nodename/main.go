// The nodename guest is the scheduler's plugin NodeName.
package main

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type nodeName struct{}

func (nodeName) PreFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	if name := pod.Spec().NodeName(); name != "" {
		return &sched.PreFilterResult{NodeNames: []string{name}}, nil
	}
	return nil, nil
}

func (nodeName) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if name := pod.Spec().NodeName(); name != "" && name != node.Node().Metadata().Name() {
		return sched.UnschedulableAndUnresolvable("node(s) didn't match the requested node name")
	}
	return nil
}

// EventsToRegister returns the events of the plugin.
func (nodeName) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd}},
	}, nil
}

func init() { sched.Register(nodeName{}) }

func main() {}
