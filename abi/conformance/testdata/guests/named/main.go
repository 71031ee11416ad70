// The named guest, which doc.go two directories above describes.
package main

import (
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/api/metrics"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type plugin struct{}

func (plugin) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{
		{Event: sched.ClusterEvent{Resource: abi.EventNode, ActionType: abi.ActionAdd}},
		{Event: sched.ClusterEvent{Object: "example.com/v1/things", ActionType: abi.ActionAdd | abi.ActionUpdate}, QueueingHintFn: changed},
	}, nil
}

func changed(pod core.Pod, _, thing sched.EventObject) (sched.QueueingHint, error) {
	if strings.Contains(string(thing.Bytes()), `"for":"`+pod.Metadata().Name()+`"`) {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func (plugin) Permit(sched.CycleState, core.Pod, string) (*sched.Status, meta.Duration) {
	sched.Activate(sched.PodName{Namespace: "shop", Name: "a"}, sched.PodName{Namespace: "bank", Name: "b"})
	return nil, 0
}

// Filter refuses each node with the QoS class of the Pod and its requests.
func (plugin) Filter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfo) *sched.Status {
	reason := pod.QOSClass()
	for _, name := range []string{"cpu", "memory", "hugepages-2Mi", "example.com/gpu"} {
		q := pod.Requests()[name]
		reason += " " + strconv.FormatInt(q.MilliValue(), 10)
	}
	return sched.Unschedulable(reason)
}

// Score returns the load of the node in hundredths, by a look-up of the value of a query.
func (plugin) Score(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	b := sched.GetObject("metrics.kubewasm.dev/v1/load", "", node.Node().Metadata().Name())
	if b == nil {
		return 50, nil
	}
	return int64(100 * metrics.SampleFromJSON(b).Value()), nil
}

func (plugin) PreBindPreFlight(sched.CycleState, core.Pod, string) (*sched.PreBindPreFlightResult, *sched.Status) {
	return nil, nil
}

// PreBind waits for the thing of the Pod's name, and then writes to it.
func (plugin) PreBind(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	const things = "example.com/v1/things"
	name := pod.Metadata().Name()
	if sched.GetObject(things, "shop", name) == nil {
		sched.AwaitObject(things, "shop", name, 600_000_000_000)
		return sched.NewStatus(abi.Wait, "no thing "+name)
	}
	sched.ApplyAnnotations(things, "shop", name, map[string]string{"example.com/by": name, "example.com/a": "\"ä"})
	sched.ApplyStatus(things, "shop", name, []byte(`{"phase":"Bound"}`))
	return nil
}

func init() { sched.Register(plugin{}) }

func main() {}
