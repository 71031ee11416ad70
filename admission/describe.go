package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/host"
)

// Description is what a policy is, for a caller that asks it without a request of an API
// server.
type Description struct {
	// Name is that of the policy, and Mode says whether its verdicts count.
	Name string
	Mode host.Mode
	// Validates and Mutates report what the policy is asked for.
	Validates, Mutates bool
	// Rules are the operations and resources that the policy is asked about: those of its
	// configuration or, if that has none, those that its modules declare; none are all.
	Rules []admissionregistrationv1.RuleWithOperations
	// MatchPolicy is Exact if a resource in a version that Rules do not name passes the policy,
	// see [Match.MatchPolicy].
	MatchPolicy admissionregistrationv1.MatchPolicyType
	// SelectsNamespaces reports whether the labels of namespaces decide what it is asked about.
	SelectsNamespaces bool
	// Version is equal for two policies that decide in the same way: a digest of the modules
	// and of what they are configured with. It does not cover Mode, the order and the failure
	// policy.
	Version string
	// Disabled reports whether the policy is never asked, and Unavailable is why it fails on
	// every request, see [Unavailable].
	Disabled    bool
	Unavailable error
	// MatchWarnings are what is odd about the rules of the policy: operations on resources
	// that it is asked about and its modules are not for, and such that they are for and
	// it is not asked about. A module says what it is for in its metadata, see SPEC.md,
	// section 7; a Kubewarden policy in its own. Selectors and scopes are left aside. Of a
	// policy that validates, they are also subresources by which a request gets past it.
	//
	// What is odd need not be wrong: the API server may send less than the rules match, and
	// a policy may be wanted for a part of what it is for.
	MatchWarnings []string
}

// Describe returns what p is now. The module of a plugin may be another one later.
func Describe(p Policy) Description {
	rules := p.rules()
	d := Description{
		Name: p.Name(), Mode: rules.Mode, Validates: p.validates(), Mutates: p.mutates(), Rules: rules.Match.Rules, MatchPolicy: rules.Match.MatchPolicy,
	}
	if d.Mode == "" {
		d.Mode = host.Enforce
	}
	if m := p.matcher(); m != nil {
		d.SelectsNamespaces = m.namespace != nil
	}
	d.MatchWarnings = matchWarnings(p)
	switch p := p.(type) {
	case *disabled:
		d.Disabled = true
	case *unavailable:
		d.Unavailable = p.reason
	case *Plugin:
		d.Version = p.version()
		if len(d.Rules) == 0 {
			d.Rules = p.declaredRules()
		}
	case *Group:
		d.Version = p.version()
		for _, member := range p.members {
			if len(rules.Match.Rules) == 0 {
				d.Rules = append(d.Rules, member.declaredRules()...)
			}
		}
	}
	return d
}

// Matches reports whether one of the rules is about an operation on the objects of a
// resource. Without rules everything is. An error beside true says that the rules name the
// resource in other versions only, so that the policy fails on its objects.
func (d *Description) Matches(operation admissionv1.Operation, resource schema.GroupVersionResource, namespaced bool) (bool, error) {
	r := &admissionv1.AdmissionRequest{
		Operation: operation, Resource: metav1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
	}
	if namespaced {
		r.Namespace = metav1.NamespaceDefault
	}
	switch rulesFit(d.Rules, d.MatchPolicy, r) {
	case exact:
		return true, nil
	case equivalent:
		return true, otherVersion(d.Rules, r)
	}
	return false, nil
}

// declaredRules returns what the module says that it is for, nothing if that is wrong.
func (p *Plugin) declaredRules() (rules []admissionregistrationv1.RuleWithOperations) {
	declared, err := p.declared()
	if err != nil {
		return nil
	}
	for _, d := range declared {
		rule := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{
			APIGroups: d.APIGroups, APIVersions: d.APIVersions, Resources: d.Resources,
		}}
		for _, operation := range d.Operations {
			rule.Operations = append(rule.Operations, admissionregistrationv1.OperationType(operation))
		}
		rules = append(rules, rule)
	}
	return rules
}

// version returns a digest of what decides.
func (p *Plugin) version() string {
	cfg := p.cfg
	cfg.Mode, cfg.Order, cfg.FailurePolicy, cfg.CircuitBreaker, cfg.Record = "", 0, "", host.CircuitBreaker{}, nil
	return digestOf(p.Digest(), cfg)
}

func (g *Group) version() string {
	of := []any{g.expression.Names(), g.cfg.Expression, g.cfg.Message, g.cfg.Match}
	for _, member := range g.members {
		of = append(of, member.version())
	}
	return digestOf(of...)
}

// digestOf returns the digest of values in JSON.
func digestOf(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // Configurations came from JSON, or could have.
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
