package sched_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type zone struct {
	Zone string `json:"zone"`
}

func (z *zone) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	if got := node.Node().Metadata().Labels().Get("topology.kubernetes.io/zone"); got != z.Zone {
		return sched.Unschedulable("node is in zone ", got, ", not in ", z.Zone)
	}
	return nil
}

// A test calls a plugin's methods as any others. In a guest, init registers the
// plugin: sched.Register(&zone{}).
func Example() {
	plugin := &zone{Zone: "a"}
	state := sched.NewCycleState()
	for _, manifest := range []string{
		`{"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}}`,
		`{"metadata": {"labels": {"topology.kubernetes.io/zone": "b"}}}`,
	} {
		node := sched.NewNodeInfo(core.NodeFromJSON([]byte(manifest)))
		fmt.Println(plugin.Filter(state, core.Pod{}, node))
	}
	// Output:
	// Success
	// Unschedulable: node is in zone b, not in a
}

// PreFilter asks about all nodes at once, and the host counts.
func ExamplePodSelector() {
	web, err := meta.NewSelector(meta.Requirement{Key: "app", Operator: meta.LabelSelectorOpIn, Values: []string{"web"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pods := []core.Pod{
		core.PodFromJSON([]byte(`{"metadata": {"namespace": "shop", "labels": {"app": "web"}}}`)),
		core.PodFromJSON([]byte(`{"metadata": {"namespace": "shop", "labels": {"app": "db"}}}`)),
		core.PodFromJSON([]byte(`{"metadata": {"namespace": "bank", "labels": {"app": "web"}}}`)),
	}
	full := sched.NewNodeInfo(core.Node{}).With(sched.NodeUsage{}, nil, pods)
	empty := sched.NewNodeInfo(core.Node{})
	fmt.Println(sched.NewPodSelector("shop", web).Count(full, empty))
	fmt.Println(sched.NewPodSelector("", web).Count(full, empty))
	// Output:
	// [1 0]
	// [2 0]
}
