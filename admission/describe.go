package admission

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
)

// Description describes a policy to a caller that asks it without a request of an API server.
type Description struct {
	// Name is the name of the policy, and Mode determines whether its verdicts count.
	Name string
	Mode host.Mode
	// Validates and Mutates report whether the policy is asked to validate and to mutate.
	Validates, Mutates bool
	// Rules are the operations and resources that the policy is asked about. They come from its
	// configuration or, if that has none, from the declarations of its modules. Without rules, the
	// policy is asked about everything.
	Rules []admissionregistrationv1.RuleWithOperations
	// MatchPolicy is Exact if the policy is not asked about a resource in a version that Rules do
	// not name, see [Match.MatchPolicy].
	MatchPolicy admissionregistrationv1.MatchPolicyType
	// SelectsNamespaces reports whether the labels of namespaces decide whether it is asked.
	SelectsNamespaces bool
	// Version is a digest of the modules and their configuration. Two policies with equal versions
	// decide in the same way. It does not cover Mode, the order and the failure policy.
	Version string
	// Disabled reports whether the policy is never asked, and Unavailable is the reason that it
	// fails on every request, if it could not be loaded.
	Disabled    bool
	Unavailable error
	// MatchWarnings describe mismatches between the rules of the policy and the declarations of its
	// modules: operations on resources that only one side names. A module declares its matches in
	// its metadata, see SPEC.md, section 7; a Kubewarden policy in Kubewarden's. Selectors and
	// scopes are ignored. For a policy that validates, subresources by which a request bypasses it
	// are included.
	//
	// A mismatch is not always wrong: the API server may send less than the rules match, and a
	// policy may be wanted for only a part of its objects.
	MatchWarnings []string
}

// Describe returns the current description of p. The module of a plugin may change later.
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
	switch p := inner(p).(type) {
	case *disabled:
		d.Disabled = true
	case *unavailable:
		d.Unavailable = p.reason
	case *Plugin:
		module := p.describe(rules.Match.Rules)
		d.Version = module.version
		if len(d.Rules) == 0 {
			d.Rules = module.rules
		}
	case *Group:
		d.Version = p.version()
		for _, member := range p.members {
			if len(rules.Match.Rules) == 0 {
				d.Rules = append(d.Rules, member.describe(rules.Match.Rules).rules...)
			}
		}
	}
	return d
}

// Matches reports whether one of the rules is about an operation on the objects of a resource.
// Without rules, it returns true. If the rules name the resource only in other versions, it returns
// true and an error, and the policy fails on the objects.
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

// described is the part of a description that depends on a plugin's module, computed once for each
// module.
type described struct {
	digest   string
	asked    []admissionregistrationv1.RuleWithOperations // The rules that warnings compare with.
	version  string
	rules    []admissionregistrationv1.RuleWithOperations
	warnings []string
}

// describe describes the current module. Rules are those of the plugin, or of its group.
func (p *Plugin) describe(rules []admissionregistrationv1.RuleWithOperations) *described {
	digest := p.Digest()
	if d := p.described.Load(); d != nil && d.digest == digest && len(d.asked) == len(rules) && (len(rules) == 0 || &d.asked[0] == &rules[0]) {
		return d
	}
	d := &described{digest: digest, asked: rules, version: p.version(digest)}
	declared, err := p.declared()
	if err != nil {
		d.warnings = []string{fmt.Sprintf("the module's declaration of its requests is invalid: %v", err)}
	} else {
		d.rules, d.warnings = rulesOf(declared), mismatches(declared, rules)
	}
	if p.Digest() == digest { // The module may have changed in between.
		p.described.Store(d)
	}
	return d
}

// rulesOf returns the rules that a module declares in the form of a configuration.
func rulesOf(declared []metadata.Rule) (rules []admissionregistrationv1.RuleWithOperations) {
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

// version returns a digest of everything that decides verdicts, for a module's digest.
func (p *Plugin) version(digest string) string {
	cfg := p.cfg
	cfg.Mode, cfg.Order, cfg.FailurePolicy, cfg.CircuitBreaker, cfg.Record = "", 0, "", host.CircuitBreaker{}, nil
	return digestOf(digest, cfg)
}

func (g *Group) version() string {
	of := []any{g.expression.Names(), g.cfg.Expression, g.cfg.Message, g.cfg.Match}
	for _, member := range g.members {
		of = append(of, member.describe(g.cfg.Match.Rules).version)
	}
	return digestOf(of...)
}

// digestOf returns the digest of values in JSON.
func digestOf(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // Configurations can always be encoded in JSON.
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
