// The picky guest reads of each Node what the Node tells it to, for the tests of what
// the host may answer in its place.
package main

import (
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type picky struct{}

// say reads what the label "read" names, and says it.
func say(pod core.Pod, n core.Node) string {
	words := []string{pod.Metadata().Name()}
	for what := range strings.SplitSeq(n.Metadata().Labels().Get("read"), ".") {
		switch what {
		case "label":
			words = append(words, n.Metadata().Labels().Get("label"))
		case "note":
			value, ok := n.Metadata().Annotations().Lookup("note")
			words = append(words, value, strconv.FormatBool(ok))
		case "labels":
			words = append(words, strconv.Itoa(n.Metadata().Labels().Len()))
		case "name":
			words = append(words, n.Metadata().Name())
		case "cordon":
			words = append(words, strconv.FormatBool(n.Spec().Unschedulable()))
		case "taints":
			for _, t := range n.Spec().Taints() {
				words = append(words, t.Key(), t.Value())
			}
		case "cidr":
			words = append(words, n.Spec().PodCIDR())
		case "images":
			for _, i := range n.Status().Images() {
				words = append(words, i.Names()...)
			}
		case "kernel":
			words = append(words, n.Status().NodeInfo().KernelVersion())
		case "log":
			log.Debug("read", "zone", "a")
		case "print":
			println("read")
		case "panic":
			panic("so be it")
		}
	}
	return strings.Join(words, " ")
}

func (picky) PreFilter(sched.CycleState, core.Pod, sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	return nil, nil
}

func (picky) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if said := say(pod, node.Node()); strings.HasSuffix(said, "no") || pod.Metadata().Labels().Has("loud") {
		return sched.Unschedulable(said)
	}
	return nil
}

func (picky) Score(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	score := int64(0)
	for _, b := range []byte(say(pod, node.Node())) {
		score = (score*31 + int64(b)) % 101
	}
	return score, nil
}

func init() { sched.Register(picky{}) }

func main() {}
