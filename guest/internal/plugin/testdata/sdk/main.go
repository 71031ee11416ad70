// The sdk guest does what the name of the Pod says, to test what every kind of
// plugin has of the SDK.
package main

import (
	"errors"
	"time"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type plugin struct {
	Zones []string `json:"zones"`
}

// garbage keeps the compiler from leaving the allocation out.
var garbage []byte

func (p *plugin) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	switch pod.Metadata().Name() {
	case "log":
		log.Warn("node is odd", "node", node.Node().Metadata().Name(), "zones", p.Zones, "tries", 3, "err", errors.New("no luck"))
	case "panic":
		decide(nil)
	case "sleep":
		start := time.Now()
		time.Sleep(time.Hour)
		if slept := time.Since(start); slept < time.Hour || slept > time.Hour+time.Second {
			return sched.Unschedulable("an hour took ", slept.String())
		}
	case "garbage":
		garbage = make([]byte, 32<<10)
	}
	return nil
}

//go:noinline
func decide(zones map[string]int) { zones["a"]++ }

func init() { sched.Register(&plugin{}) }

func main() {}
