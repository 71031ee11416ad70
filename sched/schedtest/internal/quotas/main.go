// The quotas guest keeps Pods away from nodes until the Quota of their namespace that their
// annotation names is open, and as long as there is the one that they must be without, whose deletion
// is no event for the guest. Those of other Quotas stay where they are when one changes. A Pod that
// has a node wakes its siblings.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/guest/sched"
)

const quotas = "quota.example.com/v1/quotas"

type plugin struct{}

// quota is the part of a Quota that is read.
type quota struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Open bool `json:"open"`
	} `json:"spec"`
}

// read returns a Quota from its JSON.
func read(b []byte) (q quota, err error) {
	err = json.Unmarshal(b, &q)
	return q, err
}

func (plugin) PreFilter(_ sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	annotations := pod.Metadata().Annotations()
	if annotations.Has("beside") {
		return nil, beside(pod)
	}
	if name := annotations.Get("without"); name != "" && sched.GetObject(quotas, pod.Metadata().Namespace(), name) != nil {
		return nil, sched.Unschedulable("there is the Quota ", name)
	}
	name := annotations.Get("quota")
	if name == "" {
		return nil, nil
	}
	b := sched.GetObject(quotas, pod.Metadata().Namespace(), name)
	if b == nil {
		return nil, sched.Unschedulable("there is no Quota ", name)
	}
	switch q, err := read(b); {
	case err != nil:
		return nil, sched.AsStatus(err)
	case !q.Spec.Open:
		return nil, sched.Unschedulable("the Quota ", name, " is closed")
	}
	return nil, nil
}

// beside reports what the Pods of the cluster have in an annotation, and then the Pod itself.
func beside(pod core.Pod) *sched.Status {
	all, err := meta.NewSelector()
	if err != nil {
		return sched.AsStatus(err)
	}
	var found []string
	for other := range sched.NewPodSelector("", all).List() {
		found = append(found, other.Metadata().Annotations().Get("beside"))
	}
	return sched.Unschedulable(strings.Join(append(found, pod.Metadata().Annotations().Get("beside")), ", "))
}

// activate wakes the Pods that an annotation names, with a comma between each two.
func activate(pod core.Pod, annotation string) {
	var siblings []sched.PodName
	for list := pod.Metadata().Annotations().Get(annotation); list != ""; {
		var name string
		name, list, _ = strings.Cut(list, ",")
		siblings = append(siblings, sched.PodName{Namespace: pod.Metadata().Namespace(), Name: name})
	}
	sched.Activate(siblings...)
}

func (plugin) Permit(_ sched.CycleState, pod core.Pod, _ string) (*sched.Status, meta.Duration) {
	activate(pod, "siblings")
	return nil, 0
}

func (plugin) Reserve(_ sched.CycleState, pod core.Pod, _ string) *sched.Status {
	activate(pod, "with")
	return nil
}

func (plugin) Unreserve(sched.CycleState, core.Pod, string) {}

func (plugin) EventsToRegister() ([]sched.ClusterEventWithHint, error) {
	return []sched.ClusterEventWithHint{{
		Event:          sched.ClusterEvent{Object: quotas, ActionType: abi.ActionAdd | abi.ActionUpdate},
		QueueingHintFn: isOpen,
	}, {
		Event:          sched.ClusterEvent{Resource: abi.EventPersistentVolumeClaim, ActionType: abi.ActionAdd},
		QueueingHintFn: isClaimed,
	}}, nil
}

// isClaimed queues the Pod that a new claim names in its label.
func isClaimed(pod core.Pod, _, claim sched.EventObject) (sched.QueueingHint, error) {
	if core.PersistentVolumeClaimFromProto(claim.Bytes()).Metadata().Labels().Get("for") == pod.Metadata().Name() {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func isOpen(pod core.Pod, _, changed sched.EventObject) (sched.QueueingHint, error) {
	q, err := read(changed.Bytes())
	if err != nil {
		return sched.Queue, err
	}
	of := pod.Metadata()
	if q.Spec.Open && q.Metadata.Name == of.Annotations().Get("quota") && q.Metadata.Namespace == of.Namespace() {
		return sched.Queue, nil
	}
	return sched.QueueSkip, nil
}

func init() { sched.Register(plugin{}) }

func main() {}
