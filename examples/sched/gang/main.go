// The gang guest binds the Pods of a gang together or not at all. A Pod belongs to
// a gang by two annotations:
//
//	kubewasm.dev/gang: training
//	kubewasm.dev/gang-size: "4"
//
// It needs the grants "waiting-pods" and "events".
package main

import (
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type gang struct {
	// Timeout is how long a Pod waits for the others, as in "60s". Default a
	// minute.
	Timeout meta.Duration `json:"timeout"`
}

const (
	nameKey = "kubewasm.dev/gang"
	sizeKey = "kubewasm.dev/gang-size"
)

// PreFilter refuses a Pod whose annotations are not valid.
func (g *gang) PreFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	annotations := pod.Metadata().Annotations()
	if annotations.Get(nameKey) == "" {
		return nil, nil
	}
	if n, err := strconv.Atoi(annotations.Get(sizeKey)); err != nil || n < 1 {
		return nil, sched.UnschedulableAndUnresolvable("annotation ", sizeKey, " is ", strconv.Quote(annotations.Get(sizeKey)), ", not a number above 0")
	}
	return nil, nil
}

// Permit lets the last Pod of a gang pass, and with it all others; those before
// it wait.
func (g *gang) Permit(_ sched.CycleState, pod core.Pod, _ string) (*sched.Status, meta.Duration) {
	annotations := pod.Metadata().Annotations()
	name := annotations.Get(nameKey)
	if name == "" {
		return nil, 0
	}
	size, err := strconv.Atoi(annotations.Get(sizeKey))
	if err != nil {
		return sched.AsStatus(err), 0
	}
	members := waiting(pod.Metadata().Namespace(), name)
	if len(members)+1 < size {
		sched.Eventf("Normal", "WaitingForGang", "Permit", strconv.Itoa(len(members)+1), " of ", strconv.Itoa(size), " Pods of gang ", name, " have a node")
		return sched.NewStatus(abi.Wait, "the gang is not complete"), g.timeout()
	}
	for _, w := range members {
		w.Allow()
	}
	return nil, 0
}

// Reserve has nothing to keep.
func (g *gang) Reserve(sched.CycleState, core.Pod, string) *sched.Status { return nil }

// Unreserve releases the nodes of a gang when one of its Pods has lost its own.
func (g *gang) Unreserve(_ sched.CycleState, pod core.Pod, _ string) {
	name := pod.Metadata().Annotations().Get(nameKey)
	if name == "" {
		return
	}
	for _, w := range waiting(pod.Metadata().Namespace(), name) {
		w.Reject("Pod ", pod.Metadata().Name(), " of the same gang cannot be bound")
	}
}

// waiting returns the Pods of a gang that wait.
func waiting(namespace, gang string) (members []sched.WaitingPod) {
	for _, w := range sched.WaitingPods() {
		if w.Namespace != namespace {
			continue
		}
		if p, ok := w.Pod(); ok && p.Metadata().Annotations().Get(nameKey) == gang {
			members = append(members, w)
		}
	}
	return members
}

func (g *gang) timeout() meta.Duration {
	if g.Timeout == 0 {
		return meta.Minute
	}
	return g.Timeout
}

func init() { sched.Register(&gang{}) }

func main() {}
