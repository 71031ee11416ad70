// This guest panics about the nodes of zone b, and scores the others by how many there are. Some Pods
// have scores that the scheduler refuses.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type counter struct {
	zones  map[string]int
	passed int
}

func (c *counter) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	if zone := node.Node().Metadata().Labels().Get("topology.kubernetes.io/zone"); zone == "b" {
		c.count(zone)
	}
	return nil
}

func (c *counter) PreScore(_ sched.CycleState, pod core.Pod, nodes sched.NodeInfos) *sched.Status {
	c.passed = nodes.Len()
	return nil
}

func (c *counter) Score(_ sched.CycleState, pod core.Pod, _ sched.NodeInfo) (int64, *sched.Status) {
	if pod.Metadata().Name() == "odd" {
		return 0, sched.AsStatus(errors.New("no score for this one"))
	}
	if pod.Metadata().Name() == "high" {
		return 1 << 40, nil
	}
	if pod.Metadata().Name() == "low" {
		return -5, nil
	}
	return int64(c.passed), nil
}

//go:noinline
func (c *counter) count(zone string) { c.zones[zone]++ }

func init() { sched.Register(&counter{}) }

func main() {}
