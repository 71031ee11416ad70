package admission

import (
	"context"
	"fmt"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Unavailable returns a policy that fails with reason on every request that rules match. It
// represents a policy that could not be loaded, so that the requests guarded by that policy do not
// pass unnoticed, while others do. If mutates is set, it represents a mutator. It always represents
// a validator, since the plugin may be one as well.
func Unavailable(name string, rules PolicyRules, mutates bool, reason error) (Policy, error) {
	match, err := rules.compile()
	if err != nil {
		return nil, fmt.Errorf("policy %q: configuration: %w", name, err)
	}
	return &unavailable{name: name, policyRules: rules, match: match, mutator: mutates, reason: reason}, nil
}

// Uncovered returns the policy of Unavailable, restricted to requests that serving does not guard.
// It represents a newer version of serving that could not be loaded and whose rules match more. It
// returns nil if there are no such requests.
func Uncovered(serving Policy, rules PolicyRules, mutates bool, reason error) (Policy, error) {
	p, err := Unavailable(serving.Name(), rules, mutates, reason)
	if err != nil {
		return nil, err
	}
	old := serving.rules()
	if asConverter(serving) != nil {
		return p, nil // A converter guards no request.
	}
	if old.Mode == host.Monitor || old.FailurePolicy == host.Ignore && rules.FailurePolicy != host.Ignore || mutates && !serving.mutates() {
		return p, nil // A policy that only monitors, or may fail, guards nothing.
	}
	covered := serving.matcher()
	if covered == nil {
		return nil, nil
	}
	u := p.(*unavailable)
	if u.match == nil {
		u.match = new(matcher)
	}
	u.match.except = covered
	return u, nil
}

type unavailable struct {
	name        string
	policyRules PolicyRules
	match       *matcher
	mutator     bool
	reason      error
	monitors    serving.Monitor
}

func (u *unavailable) Name() string                { return u.name }
func (u *unavailable) Close(context.Context) error { return nil }
func (u *unavailable) rules() *PolicyRules         { return &u.policyRules }
func (u *unavailable) matcher() *matcher           { return u.match }
func (u *unavailable) monitor() *serving.Monitor   { return &u.monitors }
func (u *unavailable) validates() bool             { return true }
func (u *unavailable) mutates() bool               { return u.mutator }

func (u *unavailable) decide(context.Context, *policy.Request, bool) verdict {
	return failed(fmt.Errorf("policy %q is not available: %w", u.name, u.reason))
}

// Disabled returns a policy with the name of p that is never asked; the engine ignores it. For its
// name, the result of [Engine.ForPolicy] allows every request, while it denies the requests of a
// removed policy. Closing it does not close p.
func Disabled(p Policy) Policy { return &disabled{p} }

type disabled struct{ Policy }

func (d *disabled) Close(context.Context) error { return nil }
func (d *disabled) matcher() *matcher           { return nothing }

// nothing matches no request.
var nothing = &matcher{never: true}

// Monitored returns p with the mode Monitor: p is asked as before, and its verdicts do not count. A
// policy that converts objects or monitors already is returned as it is. Closing the result closes
// p.
func Monitored(p Policy) Policy {
	if _, ok := p.(*disabled); ok || asConverter(p) != nil || p.rules().Mode == host.Monitor {
		return p
	}
	m := &monitored{p, *p.rules()}
	m.policyRules.Mode = host.Monitor
	return m
}

type monitored struct {
	Policy
	policyRules PolicyRules
}

func (m *monitored) rules() *PolicyRules { return &m.policyRules }

// inner returns the policy behind a result of Monitored.
func inner(p Policy) Policy {
	if m, ok := p.(*monitored); ok {
		return m.Policy
	}
	return p
}
