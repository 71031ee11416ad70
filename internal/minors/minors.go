// Package minors lists the minors of Kubernetes that have an adapter for their kube-scheduler.
package minors

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
	numbers       = []int{35, 36, 37, 38}
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

// All returns the supported minors, the oldest first.
func All() []Minor {
	var all []Minor
	for _, number := range numbers {
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

// Of returns the minor with a name. It panics if it is not supported.
func Of(name string) Minor {
	for _, m := range All() {
		if m.Name == name {
			return m
		}
	}
	panic("minors: no supported minor " + name)
}

// Check returns an error if the scheduler would never call a guest that implements these functions,
// as loading it in this minor does.
func (m Minor) Check(functions abi.Mask) error {
	return NeverAsked(m.Name, functions.Of(abi.KindScheduler), functions&^m.Functions)
}

// Helping are functions that the scheduler calls only for the sake of others.
var Helping = abi.MaskOf(abi.Configure, abi.EventsToRegister, abi.QueueingHint, abi.PreQueueingHint, abi.CloneCycle)

// NeverAsked returns an error if a guest has only functions that the scheduler of a minor does not
// call, and those that help others.
func NeverAsked(minor string, functions, lacks abi.Mask) error {
	missing := functions & lacks &^ Helping
	if missing == 0 || functions&^lacks&^Helping != 0 {
		return nil
	}
	return fmt.Errorf("the guest has %s, which the scheduler of Kubernetes %s does not call", missing, minor)
}

// Has reports whether the scheduler has an event with at least one of the actions.
func (m Minor) Has(resource abi.EventResource, actions abi.ActionType) bool {
	return slices.Contains(m.Resources, resource) && actions&m.Actions != 0
}
