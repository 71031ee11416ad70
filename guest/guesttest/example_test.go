package guesttest_test

import (
	"fmt"
	"testing"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/guesttest"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// ready is a plugin.
type ready struct{}

func (ready) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	if !node.Node().Metadata().Labels().Has("example.com/ready") {
		return sched.Unschedulable("node is not ready")
	}
	return nil
}

func Example() {
	t := &failing{TB: &testing.T{}} // In a test, its own *testing.T.
	node := guesttest.Node(t, `metadata: {name: n1, labels: {example.com/rack: "7"}}`)
	fmt.Println(ready{}.Filter(sched.NewCycleState(), core.Pod{}, sched.NewNodeInfo(node)))
	// Output: Unschedulable: node is not ready
}
