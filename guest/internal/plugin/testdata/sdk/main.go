// The sdk guest does what the name of the Pod selects. It tests the parts of
// the SDK that every kind of plugin has.
package main

import (
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type plugin struct {
	Zones  []string            `json:"zones"`
	Share  *percent            `json:"share"`
	Racks  map[string]*rack    `json:"racks"`
	Weight float32             `json:"weight"`
	Key    []byte              `json:"key"`
	More   any                 `json:"more"`
	Limits map[string][]uint16 `json:"limits"`
}

type rack struct {
	Nodes []string `json:"nodes"`
	Share percent  `json:"share"`
}

// percent decodes itself from "50%".
type percent int

func (p *percent) UnmarshalText(text []byte) error {
	digits, ok := strings.CutSuffix(string(text), "%")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil {
		return errors.New("want a percentage such as 50%")
	}
	*p = percent(n)
	return nil
}

// text returns the configuration as text.
func (p *plugin) text() string {
	var racks []string
	for name, r := range p.Racks {
		racks = append(racks, name+" has "+strings.Join(r.Nodes, " and ")+" at "+strconv.Itoa(int(r.Share)))
	}
	slices.Sort(racks)
	more := p.More.(map[string]any)["list"].([]any)
	return strings.Join(append(racks,
		"share "+strconv.Itoa(int(*p.Share)),
		"weight "+strconv.FormatFloat(float64(p.Weight), 'g', -1, 32),
		"key "+string(p.Key),
		"more "+more[0].(string)+" "+strconv.FormatBool(more[1].(bool)),
		"limit "+strconv.Itoa(int(p.Limits["x"][1])),
	), ", ")
}

// garbage keeps the compiler from leaving the allocation out.
var garbage []byte

func (p *plugin) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	switch pod.Metadata().Name() {
	case "log":
		log.Warn("node is odd", "node", node.Node().Metadata().Name(), "zones", p.Zones, "tries", 3, "err", errors.New("no luck"))
	case "configuration":
		runtime.GC() // The decoded configuration must stay.
		return sched.Unschedulable(p.text())
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
