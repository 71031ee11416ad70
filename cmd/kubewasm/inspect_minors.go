package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/minors"
	"github.com/kubewasm/kubewasm/sched"
)

// onMinor reports whether a guest runs on a minor of Kubernetes.
type onMinor struct {
	Minor string `json:"minor"`
	Runs  bool   `json:"runs"`
	// Why is the reason why the guest does not run.
	Why string `json:"why,omitempty"`
	// NotCalled are the functions of the guest that a scheduler of this minor does not call.
	NotCalled []string `json:"notCalled,omitempty"`
	// NoEvents are the cluster events that the guest registers and that never happen in this minor,
	// as the resource, or as the resource and its change.
	NoEvents []string `json:"noEvents,omitempty"`
}

// onMinors returns the minors of Kubernetes on which a guest runs. Policies, hooks and services
// depend on none: the API server's reviews and the container runtime's requests are the same on
// all.
func onMinors(functions abi.Mask, events []sched.Event) (all []onMinor) {
	for _, m := range minors.All() {
		on := onMinor{Minor: m.Name, Runs: true}
		for _, f := range (functions.Of(abi.KindScheduler) &^ m.Functions).Functions() {
			on.NotCalled = append(on.NotCalled, f.String())
		}
		for _, e := range events {
			if m.Has(e.Resource, e.Action) || e.Resource == abi.EventNamed {
				continue
			}
			event := e.Resource.String()
			if m.Has(e.Resource, abi.ActionAll) {
				event += " " + newerActions(e.Action)
			}
			on.NoEvents = append(on.NoEvents, event)
		}
		other := functions &^ functions.Of(abi.KindScheduler) &^ functions.Of(abi.KindCommon)
		if err := m.Check(functions); err != nil && other == 0 {
			on.Runs, on.Why, on.NotCalled, on.NoEvents = false, err.Error(), nil, nil
		}
		all = append(all, on)
	}
	return all
}

// newerActions returns the names of those actions that not every minor has.
func newerActions(actions abi.ActionType) string {
	var names []string
	if actions&abi.ActionUpdateNodePreemptionPolicy != 0 {
		names = append(names, "UpdateNodePreemptionPolicy")
	}
	if actions&abi.ActionUpdatePodScaleUp != 0 {
		names = append(names, "UpdatePodScaleUp")
	}
	return strings.Join(names, "|")
}

// printMinors prints the minors on which a guest runs, and the differences on some.
func printMinors(all []onMinor, line func(name string, values ...any)) {
	var runs []string
	for _, on := range all {
		if on.Runs {
			runs = append(runs, on.Minor)
		}
	}
	if len(all) == 0 {
		return
	}
	if len(runs) == 0 {
		runs = []string{"none"}
	}
	line("kubernetes", strings.Join(runs, ", "))
	for _, on := range all {
		if !on.Runs {
			line("not on "+on.Minor, on.Why)
		}
		if len(on.NotCalled) != 0 {
			line("on "+on.Minor, "not called: ", strings.Join(on.NotCalled, ", "))
		}
		if len(on.NoEvents) != 0 {
			line("on "+on.Minor, "never happens: ", strings.Join(on.NoEvents, ", "))
		}
	}
}
