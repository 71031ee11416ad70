// The parrot does what the label "script" of the Pod says, and repeats what it has seen.
package main

import (
	"fmt"
	"os"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

type plugin struct{}

// environment appends the values of a Pod's environment, and its annotations.
func environment(list []string, pod core.Pod) []string {
	for c := range pod.Spec().AllContainers() {
		for _, e := range c.Env() {
			list = parrot.With(list, e.Value())
		}
	}
	return annotations(list, pod.Metadata())
}

func annotations(list []string, m meta.ObjectMeta) []string {
	m.Annotations().All(func(_, value string) bool {
		list = parrot.With(list, value)
		return true
	})
	return list
}

func secret(list []string, b []byte) []string {
	s := core.SecretFromProto(b)
	for _, value := range s.Data().All {
		list = parrot.With(list, string(value))
	}
	s.StringData().All(func(_, value string) bool {
		list = parrot.With(list, value)
		return true
	})
	return annotations(list, s.Metadata())
}

// do does what the script of a Pod says in a function.
func do(function string, pod core.Pod) (status *sched.Status, score int64) {
	pod.Metadata().Name() // The recording knows the Pod by it.
	s := parrot.Parse(pod.Metadata().Labels().Get("script"))
	change := parrot.Change(s.ID, parrot.OfScheduler(s, function))
	values := environment(nil, pod)
	last := -1
	for i, op := range s.Ops {
		if op.Do == "event" || op.Do == "allow" || op.Do == "reject" {
			last = i
		}
	}
	var deny string
	denied, code := false, abi.Unschedulable
	for i, op := range s.Ops {
		if i == last && change == "skip" {
			continue
		}
		text := op.Text(values)
		switch op.Do {
		case "get":
			if b := sched.GetObject("v1/secrets", "shop", fmt.Sprint("s", op.Value%5)); b != nil {
				values = secret(values, b)
			}
		case "list":
			for b := range sched.ListObjects("v1/secrets", "shop", "") {
				values = secret(values, b)
			}
		case "waiting":
			for _, w := range sched.WaitingPods() {
				if p, ok := w.Pod(); ok {
					values = environment(values, p)
				}
			}
		case "event":
			sched.Eventf("Normal", "Seen", function, "seen ", text)
		case "allow":
			sched.WaitingPod{UID: fmt.Sprint("w", op.Value%3)}.Allow()
		case "reject":
			sched.WaitingPod{UID: fmt.Sprint("w", op.Value%3)}.Reject("seen ", text)
		case "log":
			log.Info("seen", "value", text)
		case "print":
			fmt.Println("seen", text)
		case "deny":
			deny, denied = "no: "+text, true
		case "exit":
			fmt.Println("seen", text)
			os.Exit(1)
		case "trap":
			panic(text)
		}
	}
	switch change {
	case "reason":
		deny = "another reason, " + deny
	case "code":
		code = abi.UnschedulableAndUnresolvable
	case "event":
		sched.Eventf("Normal", "More", function, "another one")
	case "log":
		log.Info("another line")
	case "verdict":
		denied = !denied
	case "score":
		score = 1
	}
	if denied {
		return sched.NewStatus(code, deny), 0
	}
	return nil, score
}

func (plugin) Filter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfo) *sched.Status {
	status, _ := do("filter", pod)
	return status
}

func (plugin) Score(_ sched.CycleState, pod core.Pod, _ sched.NodeInfo) (int64, *sched.Status) {
	status, score := do("score", pod)
	return score, status
}

func (plugin) Permit(_ sched.CycleState, pod core.Pod, _ string) (*sched.Status, meta.Duration) {
	status, _ := do("permit", pod)
	return status, 0
}

func (plugin) PostBind(_ sched.CycleState, pod core.Pod, _ string) { do("postbind", pod) }

func init() { sched.Register(plugin{}) }

func main() {}
