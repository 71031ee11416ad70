// The zone guest of the tests has metadata.
//
//kubewasm:name zone
//kubewasm:version 1.2.0
//kubewasm:source https://example.com/zone
//kubewasm:licenses Apache-2.0 OR MIT
//kubewasm:reads node.metadata.labels
package main

import (
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:reads pod.spec.priority node.metadata.labels

type zone struct {
	Zone string `json:"zone"`
}

func (z *zone) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	log.Debug("filter", "zone", z.Zone)
	if got := node.Node().Metadata().Labels().Get("topology.kubernetes.io/zone"); got != z.Zone {
		return sched.Unschedulable("node is in zone ", got, ", not in ", z.Zone)
	}
	return nil
}

func init() { sched.Register(&zone{}) }

func main() {}
