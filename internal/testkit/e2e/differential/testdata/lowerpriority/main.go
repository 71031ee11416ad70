// The lowerpriority guest lets Pods preempt those of a lower priority, as DefaultPreemption does.
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:reads pod.spec.priority

type lowerPriority struct{}

func (lowerPriority) PotentialVictims(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) (victims []core.Pod, _ *sched.Status) {
	for _, p := range node.Pods() {
		if p.Spec().Priority() < pod.Spec().Priority() {
			victims = append(victims, p)
		}
	}
	return victims, nil
}

func init() { sched.Register(lowerPriority{}) }

func main() {}
