// A plugin whose functions a scheduler of Kubernetes 1.35 does not call.
package main

import "github.com/kubewasm/kubewasm/guest/sched"

type groups struct{}

func (groups) PodGroupPostFilter(sched.CycleState, sched.PodGroupInfo) ([]sched.Nomination, *sched.Status) {
	return nil, nil
}

func (groups) GeneratePlacements(sched.CycleState, sched.PodGroupInfo, []string) ([]sched.Placement, *sched.Status) {
	return nil, nil
}

func init() { sched.Register(groups{}) }

func main() {}
