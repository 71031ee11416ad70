package sched

import (
	"fmt"
	"slices"

	"github.com/kubewasm/kubewasm/abi"
)

// Minor is a minor of Kubernetes with an adapter for its kube-scheduler.
type Minor struct {
	// Name is the version, such as "1.37".
	Name string
	// Functions are those that its scheduler calls.
	Functions abi.Mask
	// Resources and Actions are those of the cluster events that its scheduler has. Other
	// events never happen there.
	Resources []abi.EventResource
	Actions   abi.ActionType
}

// The first minor of features that not all have, in k8s.io/kube-scheduler/framework. AssignedPod,
// UnscheduledPod and TargetPod are resources of events from 1.37 on, too. On older minors the same
// events have the resource Pod, and adapters pick them.
var (
	minors        = []int{35, 36, 37, 38}
	functionsFrom = map[abi.Function]int{
		abi.GeneratePlacements:      36,
		abi.ScorePlacement:          36,
		abi.NormalizePlacementScore: 36,
		abi.PodGroupPostFilter:      37,
		abi.PreQueueingHint:         37,
	}
	resourcesFrom = map[abi.EventResource]int{
		abi.EventPodGroup:          36,
		abi.EventCompositePodGroup: 37,
	}
	actionsFrom = map[abi.ActionType]int{
		abi.ActionUpdateNodePreemptionPolicy: 37,
		abi.ActionUpdatePodScaleUp:           37,
	}
)

// Minors returns the supported minors, the oldest first.
func Minors() []Minor {
	var all []Minor
	for _, number := range minors {
		m := Minor{Name: fmt.Sprint("1.", number), Actions: abi.ActionAll}
		for f := range abi.Function(64) {
			if f.Signature().Kind == abi.KindScheduler && functionsFrom[f] <= number {
				m.Functions |= abi.MaskOf(f)
			}
		}
		for r := abi.EventResource(0); r.Known(); r++ {
			if resourcesFrom[r] <= number {
				m.Resources = append(m.Resources, r)
			}
		}
		for action, from := range actionsFrom {
			if from > number {
				m.Actions &^= action
			}
		}
		all = append(all, m)
	}
	return all
}

// MinorOf returns the minor with a name. It panics if it is not supported.
func MinorOf(name string) Minor {
	for _, m := range Minors() {
		if m.Name == name {
			return m
		}
	}
	panic("sched: no supported minor " + name)
}

// Check returns an error if the scheduler would never call a guest that implements these functions,
// as loading it in this minor does.
func (m Minor) Check(functions abi.Mask) error {
	return neverAsked(m.Name, functions.Of(abi.KindScheduler), functions&^m.Functions)
}

// neverAsked returns an error if a guest has only functions that the scheduler of a minor does not
// call, and those that help others.
func neverAsked(minor string, functions, lacks abi.Mask) error {
	missing := functions & lacks &^ helping
	if missing == 0 || functions&^lacks&^helping != 0 {
		return nil
	}
	return fmt.Errorf("the guest has %s, which the scheduler of Kubernetes %s does not call", missing, minor)
}

// Has reports whether the scheduler has an event with at least one of the actions.
func (m Minor) Has(resource abi.EventResource, actions abi.ActionType) bool {
	return slices.Contains(m.Resources, resource) && actions&m.Actions != 0
}
