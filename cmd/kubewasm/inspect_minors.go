package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/sched"
)

// onMinor says whether a guest runs on a minor of Kubernetes.
type onMinor struct {
	Minor string `json:"minor"`
	Runs  bool   `json:"runs"`
	// Why is the reason why it does not.
	Why string `json:"why,omitempty"`
	// NotCalled are the functions of the guest for which a scheduler of this minor has no
	// extension point.
	NotCalled []string `json:"notCalled,omitempty"`
}

// onMinors returns on which minors of Kubernetes a guest runs. Policies and hooks depend on
// none: the API server's reviews and the container runtime's requests are the same on all.
func onMinors(functions abi.Mask) (all []onMinor) {
	for _, m := range sched.Minors() {
		on := onMinor{Minor: m.Name, Runs: true}
		for _, f := range (functions.Of(abi.KindScheduler) &^ m.Functions).Functions() {
			on.NotCalled = append(on.NotCalled, f.String())
		}
		other := functions.Of(abi.KindAdmission) | functions.Of(abi.KindHook)
		if err := m.Check(functions); err != nil && other == 0 {
			on.Runs, on.Why, on.NotCalled = false, err.Error(), nil
		}
		all = append(all, on)
	}
	return all
}

// printMinors prints the minors on which a guest runs, and what is different on some.
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
		switch {
		case !on.Runs:
			line("not on "+on.Minor, on.Why)
		case len(on.NotCalled) != 0:
			line("on "+on.Minor, "not called: ", strings.Join(on.NotCalled, ", "))
		}
	}
}
