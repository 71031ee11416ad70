package policy

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// StandIns makes the policies that represent others. P is admission.Policy, and R is
// admission.PolicyRules, which this package cannot name.
type StandIns[P, R any] struct {
	// Unavailable returns a policy that fails with reason on every request that rules match. It
	// represents a policy that could not be loaded, so that the requests guarded by that policy do
	// not pass unnoticed, while others do. If mutates is set, it represents a mutator. It always
	// represents a validator, since the plugin may be one as well.
	Unavailable func(name string, rules R, mutates bool, reason error) (P, error)
	// UnavailableConverter returns a policy that fails on every object of kinds with reason. It
	// represents a converting plugin that could not be loaded.
	UnavailableConverter func(name string, kinds []metav1.GroupKind, rules R, reason error) P
	// Uncovered returns the policy of Unavailable, restricted to requests that serving does not
	// guard. It represents a newer version of serving that could not be loaded and whose rules match
	// more. It returns nil if there are no such requests.
	Uncovered func(serving P, rules R, mutates bool, reason error) (P, error)
	// Disabled returns a policy with the name of p that is never asked; the engine ignores it. For
	// its name, the result of Engine.ForPolicy allows every request, while it denies the requests of
	// a removed policy. Closing it does not close p.
	Disabled func(p P) P
	// Monitored returns p with the mode Monitor: p is asked as before, and its verdicts do not count.
	// A policy that converts objects or monitors already is returned as it is. Closing the result
	// closes p.
	Monitored func(p P) P
}

var standIns any

// Provide sets the result of [StandInsOf]. Package admission calls it when it is initialized.
func Provide[P, R any](s StandIns[P, R]) { standIns = s }

// StandInsOf returns the functions of package admission.
func StandInsOf[P, R any]() StandIns[P, R] { return standIns.(StandIns[P, R]) }
