// The nodeports guest is the scheduler's plugin NodePorts.
package main

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type nodePorts struct{}

type port struct {
	ip, protocol string
	number       int32
}

func (nodePorts) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	var ports []port
	for _, p := range pod.HostPorts() {
		w := port{p.HostIP(), p.Protocol(), p.HostPort()}
		if w.ip == "" {
			w.ip = all
		}
		if w.protocol == "" {
			w.protocol = "TCP"
		}
		ports = append(ports, w)
	}
	if len(ports) == 0 {
		return nil, sched.Skip()
	}
	state.Write("ports", ports)
	return nil, nil
}

// all is every address of a node.
const all = "0.0.0.0"

func (nodePorts) Filter(state sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	v, _ := state.Read("ports")
	for _, want := range v.([]port) {
		for _, used := range node.Usage().UsedPorts {
			if want.number == used.Port && want.protocol == used.Protocol && (want.ip == used.IP || want.ip == all || used.IP == all) {
				return sched.Unschedulable("node(s) didn't have free ports for the requested pod ports")
			}
		}
	}
	return nil
}

// EventsToRegister returns the events of the plugin.
func (nodePorts) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventAssignedPod, ActionType: abi.ActionDelete}},
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd}},
	}, nil
}

func init() { sched.Register(nodePorts{}) }

func main() {}
