// The freebytes guest is the plugin FreeBytes of the tests: its scores are bytes, and one of them
// the smallest number that there is.
package main

import (
	"math"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type freeBytes struct{}

func (freeBytes) Score(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	u := node.Usage()
	if u.Requested.Memory > u.Allocatable.Memory {
		return math.MinInt64, nil
	}
	return (u.Allocatable.Memory - u.Requested.Memory) << 24, nil
}

func (freeBytes) NormalizeScore(_ sched.CycleState, _ core.Pod, scores sched.NodeScoreList) *sched.Status {
	for i, s := range scores {
		switch s.Score {
		case math.MinInt64:
			scores[i].Score = 0
		default:
			scores[i].Score = 1 + s.Score>>24%100
		}
	}
	return nil
}

func init() { sched.Register(freeBytes{}) }

func main() {}
