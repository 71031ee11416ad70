package schedtest_test

import (
	"fmt"
	"testing"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

// readyNodes is a plugin.
type readyNodes struct{}

func (readyNodes) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	if !node.Node().Metadata().Labels().Has("example.com/ready") {
		return sched.Unschedulable("node is not ready")
	}
	return nil
}

func ExampleNode() {
	t := &failing{TB: &testing.T{}} // In a test, its own *testing.T.
	node := schedtest.Node(t, `metadata: {name: n1, labels: {example.com/rack: "7"}}`)
	fmt.Println(readyNodes{}.Filter(sched.NewCycleState(), core.Pod{}, sched.NewNodeInfo(node)))
	// Output: Unschedulable: node is not ready
}
