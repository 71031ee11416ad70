// The binder guest is run by the tests of the harness, both ways: it implements the extension
// points before and after filtering.
package main

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type binder struct{}

func (binder) PreEnqueue(pod core.Pod) *sched.Status {
	if pod.Metadata().Labels().Has("gated") {
		return sched.UnschedulableAndUnresolvable("gated")
	}
	return nil
}

func (binder) PreScore(_ sched.CycleState, _ core.Pod, nodes sched.NodeInfos) *sched.Status {
	for i := range nodes.Len() {
		if nodes.At(i).Node().Metadata().Labels().Has("odd") {
			return sched.NewStatus(abi.Error, nodes.Name(i), " is odd")
		}
	}
	return nil
}

func (binder) Score(sched.CycleState, core.Pod, sched.NodeInfo) (int64, *sched.Status) { return 1, nil }

func (binder) Reserve(state sched.CycleState, _ core.Pod, nodeName string) *sched.Status {
	if _, reserved := state.Read("node"); reserved || nodeName == "full" {
		return sched.Unschedulable(nodeName, " is taken")
	}
	state.Write("node", nodeName)
	return nil
}

func (binder) Unreserve(state sched.CycleState, _ core.Pod, _ string) { state.Delete("node") }

func (binder) Permit(_ sched.CycleState, _ core.Pod, nodeName string) (*sched.Status, meta.Duration) {
	if nodeName == "slow" {
		return sched.NewStatus(abi.Wait, "later"), 1500 * meta.Millisecond
	}
	return nil, 0
}

func (binder) PreBindPreFlight(sched.CycleState, core.Pod, string) (*sched.PreBindPreFlightResult, *sched.Status) {
	return nil, nil
}

func (binder) PreBind(_ sched.CycleState, _ core.Pod, nodeName string) *sched.Status {
	if nodeName == "full" {
		return sched.NewStatus(abi.Error, "no disk")
	}
	return nil
}

func (binder) Bind(sched.CycleState, core.Pod, string) *sched.Status { return sched.Skip() }

func init() { sched.Register(binder{}) }

func main() {}
