// Package entries writes the webhook configurations by which API servers ask the policies of a
// cluster: one of each kind, with an entry for each policy.
//
// An entry exists only while replicas serve its policy. Before an entry is written its policy gets a
// finalizer, which goes once the entry has gone: no entry outlives its policy, whenever the
// controller ends.
package entries

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/host"
)

// Finalizer keeps a policy until no webhook configuration has an entry for it.
const Finalizer = "kubewasm.dev/webhook"

// The reasons of the condition Sent.
const (
	reasonSent        = "Sent"
	reasonDisabled    = "Disabled"
	reasonConverts    = "Converts"
	reasonRules       = "RulesInvalid"
	reasonNoRules     = "NoRules"
	reasonExempt      = "NamespaceExempt"
	reasonNotServing  = "NotServing"
	reasonCertificate = "NoCertificate"
	reasonTooMany     = "TooMany"
	reasonFinalizer   = "FinalizerRefused"
)

// Config configures the entries.
type Config struct {
	// Name is the name of the webhook configurations.
	Name string
	// Namespace, Service and Port are those of the webhook's Service.
	Namespace, Service string
	Port               int32
	// CAFile is the file with the CAs of the webhook's certificate, in PEM. It is read again. If it is
	// empty, no policy gets an entry, and those that have one keep it until they are deleted.
	CAFile string
	// Replicas is the number of replicas that must serve a policy before it gets requests.
	Replicas int
	// Timeout is the timeout of a policy without limits.timeout.
	Timeout time.Duration
	// Exempt are the namespaces that policies of the cluster are not asked about, besides Namespace.
	Exempt []string
	// Conditions are the matchConditions of all entries.
	Conditions []admissionv1.MatchCondition
}

// caBundle returns the CAs in CAFile.
func (c *Config) caBundle() ([]byte, error) {
	if c.CAFile == "" {
		return nil, errNoCAFile
	}
	text, err := os.ReadFile(c.CAFile)
	if err == nil && !strings.Contains(string(text), "-----BEGIN CERTIFICATE-----") {
		err = fmt.Errorf("%s has no certificate in PEM", c.CAFile)
	}
	return text, err
}

var errNoCAFile = errors.New("the controller was started without -ca-file")

// refusal is the reason that a policy gets no requests.
type refusal struct{ reason, message string }

// nameOf returns the name of the entry of a policy.
func nameOf(k plugin.Key) string {
	if k.Kind == plugin.AdmissionPolicy {
		return k.Name + "." + k.Namespace + ".admissionpolicies.kubewasm.dev"
	}
	return k.Name + ".clusteradmissionpolicies.kubewasm.dev"
}

// entry returns the entry of a policy, without its path.
func (c *Config) entry(p plugin.Plugin, caBundle []byte) (*entry, *plugin.Spec, *refusal) {
	s, err := p.InForce()
	if err == nil {
		rules := s.PolicyRules
		selector := rules.Match.NamespaceSelector
		rules.Match.NamespaceSelector = nil // Check wants the labels of namespaces for it.
		err = rules.Check()
		if _, wrong := metav1.LabelSelectorAsSelector(selector); wrong != nil {
			err = errors.Join(err, fmt.Errorf("match.namespaceSelector: %w", wrong))
		}
	}
	switch {
	case errors.Is(err, plugin.ErrUndecided):
		return nil, nil, &refusal{reasonNotServing, err.Error()}
	case err != nil:
		return nil, nil, &refusal{reasonRules, err.Error()}
	case s.Enabled != nil && !*s.Enabled:
		return nil, nil, &refusal{reasonDisabled, "enabled is false"}
	case len(s.Converts) != 0:
		return nil, nil, &refusal{reasonConverts, "a conversion webhook is configured in the CustomResourceDefinition"}
	case len(s.Match.Rules) == 0:
		return nil, nil, &refusal{reasonNoRules, "match.rules is missing: without rules the policy would be asked about every request of the cluster"}
	}
	exempt := append(slices.Clone(c.Exempt), c.Namespace)
	names := metav1.LabelSelectorRequirement{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: exempt}
	var rules []admissionv1.RuleWithOperations
	for _, r := range s.Match.Rules {
		scope := ptr.Deref(r.Scope, admissionv1.AllScopes)
		if p.Key.Kind == plugin.AdmissionPolicy {
			if scope == admissionv1.ClusterScope {
				continue
			}
			scope = admissionv1.NamespacedScope
		}
		r.Scope = &scope
		rules = append(rules, r)
	}
	if p.Key.Kind == plugin.AdmissionPolicy {
		if slices.Contains(exempt, p.Key.Namespace) {
			return nil, nil, &refusal{reasonExempt, "policies are not asked about this namespace"}
		}
		if len(rules) == 0 {
			return nil, nil, &refusal{reasonNoRules, "match.rules has objects of the cluster alone, and the policy is asked about those of its namespace"}
		}
		names.Operator, names.Values = metav1.LabelSelectorOpIn, []string{p.Key.Namespace}
	}
	namespaces := s.Match.NamespaceSelector.DeepCopy()
	if namespaces == nil {
		namespaces = &metav1.LabelSelector{}
	}
	namespaces.MatchExpressions = append(namespaces.MatchExpressions, names)
	failure := admissionv1.Fail
	if s.Mode == host.Monitor || s.FailurePolicy == host.Ignore {
		failure = admissionv1.Ignore
	}
	timeout := cmp.Or(s.Timeout(), c.Timeout)
	conditions := c.Conditions
	if slices.ContainsFunc(rules, coversPolicies) {
		conditions = append(slices.Clone(conditions), admissionv1.MatchCondition{
			Name: "not-policies-of-the-cluster", Expression: `request.resource.group != "kubewasm.dev" || request.resource.resource != "clusteradmissionpolicies"`,
		})
	}
	return &entry{
		Name: nameOf(p.Key),
		ClientConfig: admissionv1.WebhookClientConfig{
			Service:  &admissionv1.ServiceReference{Namespace: c.Namespace, Name: c.Service, Port: &c.Port},
			CABundle: caBundle,
		},
		Rules:             rules,
		FailurePolicy:     &failure,
		MatchPolicy:       ptr.To(cmp.Or(s.Match.MatchPolicy, admissionv1.Equivalent)),
		NamespaceSelector: namespaces,
		ObjectSelector:    cmp.Or(s.Match.ObjectSelector.DeepCopy(), &metav1.LabelSelector{}),
		SideEffects:       ptr.To(admissionv1.SideEffectClassNone),
		// In whole seconds, of which there are 1 to 30.
		TimeoutSeconds:          ptr.To(int32(min(max((timeout+time.Second-1)/time.Second, 1), 30))),
		AdmissionReviewVersions: []string{"v1"},
		MatchConditions:         conditions,
		// It is asked again after others have changed the object.
		ReinvocationPolicy: ptr.To(admissionv1.IfNeededReinvocationPolicy),
	}, s, nil
}

// coversPolicies reports whether a rule may be about the policies of the cluster. No policy is asked
// about them: it would keep itself from being repaired and deleted.
func coversPolicies(r admissionv1.RuleWithOperations) bool {
	return slices.ContainsFunc(r.APIGroups, func(group string) bool { return group == "*" || group == v1alpha1.GroupVersion.Group }) &&
		slices.ContainsFunc(r.Resources, func(resource string) bool {
			name, _, _ := strings.Cut(resource, "/")
			return name == "*" || name == "clusteradmissionpolicies"
		})
}

// entry is an entry of either kind of configuration, in the form of a mutating one.
type entry = admissionv1.MutatingWebhook

// at returns an entry with the path of a policy. verb is validate or mutate.
func at(e *entry, verb string, k plugin.Key) *entry {
	e = e.DeepCopy()
	path := "/" + verb + "/" + k.Name
	if k.Kind == plugin.AdmissionPolicy {
		path = "/" + verb + "/" + k.Namespace + "/" + k.Name
	}
	e.ClientConfig.Service.Path = &path
	return e
}

// configuration is a webhook configuration.
type configuration struct {
	client.Object
	verb string
	// list returns the entries, and set replaces them.
	list func() []entry
	set  func([]entry)
	// present are the entries that the cluster has, by their names. absent is set if there is no
	// configuration, and none is created.
	present map[string]*entry
	absent  bool
}

// configurations returns empty ones of the two kinds.
func configurations() []*configuration {
	v, m := &admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}
	return []*configuration{{Object: v, verb: "validate", list: func() []entry {
		var all []entry
		for _, w := range v.Webhooks {
			all = append(all, entry{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
				AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
				ReinvocationPolicy: ptr.To(admissionv1.IfNeededReinvocationPolicy),
			})
		}
		return all
	}, set: func(all []entry) {
		v.Webhooks = nil
		for _, w := range all {
			v.Webhooks = append(v.Webhooks, admissionv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
				AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			})
		}
	}}, {Object: m, verb: "mutate", list: func() []entry { return m.Webhooks }, set: func(all []entry) { m.Webhooks = all }}}
}
