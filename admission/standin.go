package admission

import (
	"context"
	"fmt"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/serving"
)

func init() {
	policy.Provide(policy.StandIns[Policy, PolicyRules]{
		Unavailable: newUnavailable, UnavailableConverter: newUnavailableConverter, Uncovered: newUncovered, Disabled: newDisabled, Monitored: newMonitored,
	})
}

// newUnavailable implements policy.StandIns.Unavailable.
func newUnavailable(name string, rules PolicyRules, mutates bool, reason error) (Policy, error) {
	match, err := rules.compile()
	if err != nil {
		return nil, fmt.Errorf("policy %q: configuration: %w", name, err)
	}
	return &unavailable{name: name, policyRules: rules, match: match, mutator: mutates, reason: reason}, nil
}

// newUncovered implements policy.StandIns.Uncovered.
func newUncovered(serving Policy, rules PolicyRules, mutates bool, reason error) (Policy, error) {
	p, err := newUnavailable(serving.Name(), rules, mutates, reason)
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

// newDisabled implements policy.StandIns.Disabled.
func newDisabled(p Policy) Policy { return &disabled{p} }

type disabled struct{ Policy }

func (d *disabled) Close(context.Context) error { return nil }
func (d *disabled) matcher() *matcher           { return nothing }

// nothing matches no request.
var nothing = &matcher{never: true}

// newMonitored implements policy.StandIns.Monitored.
func newMonitored(p Policy) Policy {
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

// inner returns the policy behind a result of newMonitored.
func inner(p Policy) Policy {
	if m, ok := p.(*monitored); ok {
		return m.Policy
	}
	return p
}
