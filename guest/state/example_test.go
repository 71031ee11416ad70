package state_test

import (
	"fmt"
	"math"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/guest/state"
)

// quota lets two Pods of a namespace have a node. Package schedtest tests it natively and as a guest;
// here there is no scheduler, and so no state.
type quota struct{}

func (quota) Reserve(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	m := pod.Metadata()
	state.Put("pod/"+m.UID(), nil)
	if !state.Add("count/"+m.Namespace(), 1, 2) {
		return sched.Unschedulable("the namespace has its Pods") // The Put does not count then.
	}
	return nil
}

func (quota) Unreserve(_ sched.CycleState, pod core.Pod, _ string) {
	m := pod.Metadata()
	if state.Delete("pod/" + m.UID()) { // Reserve has counted it.
		state.Add("count/"+m.Namespace(), -1, math.MinInt64)
	}
}

func Example() {
	status := quota{}.Reserve(sched.NewCycleState(), core.Pod{}, "n1")
	fmt.Println(status.IsSuccess())
	// Output: true
}
