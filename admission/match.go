package admission

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/internal/json"
)

// Match says which of the requests that reach the engine a policy is asked about,
// with the fields and the meaning that they have in a webhook configuration. The
// zero value is all of them. A list within a rule is not empty, and holds nothing
// that no request can have: such a rule would match nothing, unseen.
//
// Where possible, leave the choice to the API server: a request that it does
// not send costs nothing.
type Match struct {
	// Rules are the operations and resources; one of them must fit, unless there
	// are none.
	Rules []admissionregistrationv1.RuleWithOperations `json:"rules,omitempty"`
	// NamespaceSelector chooses by the labels of the object's namespace, and for
	// a namespace by its own. It chooses all other objects without a namespace.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector chooses by the labels of the object or the old object.
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// NamespaceLabels returns the labels of a namespace: an informer's lister becomes
// one in a line. It is safe for use by several goroutines.
type NamespaceLabels func(ctx context.Context, namespace string) (map[string]string, error)

// matcher is a Match that was checked. A nil one takes everything.
type matcher struct {
	rules             []admissionregistrationv1.RuleWithOperations
	namespace, object labels.Selector // nil takes everything.
	namespaceLabels   NamespaceLabels
	// never is set if it takes nothing, whatever the other fields are.
	never bool
	// except is what it does not take although the others say so; nil is nothing.
	except *matcher
}

// compile returns the matcher of m, or everything that is wrong with m.
func (m *Match) compile(namespaces NamespaceLabels) (*matcher, error) {
	var errs []error
	for i, r := range m.Rules {
		errs = append(errs, checkRule(fmt.Sprintf("match.rules[%d]", i), &r)...)
	}
	selector := func(name string, s *metav1.LabelSelector) labels.Selector {
		if s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
			return nil
		}
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("match.%s: %w", name, err))
		}
		return selector
	}
	c := &matcher{
		rules:           m.Rules,
		namespace:       selector("namespaceSelector", m.NamespaceSelector),
		object:          selector("objectSelector", m.ObjectSelector),
		namespaceLabels: namespaces,
	}
	if c.namespace != nil && namespaces == nil {
		errs = append(errs, errors.New("match.namespaceSelector needs the labels of namespaces, which the server does not have"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(c.rules) == 0 && c.namespace == nil && c.object == nil {
		return nil, nil
	}
	return c, nil
}

// What no request has would match none, and the policy would be asked nothing: it
// is a mistake, such as Pods, or apps/v1 for a group.
var (
	groupRE    = regexp.MustCompile(`^(\*|([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?)$`)
	versionRE  = regexp.MustCompile(`^(\*|[a-z0-9]([-a-z0-9]*[a-z0-9])?)$`)
	resourceRE = regexp.MustCompile(`^(\*|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)(/(\*|[-a-zA-Z0-9./]+))?$`)
)

func checkRule(name string, r *admissionregistrationv1.RuleWithOperations) (errs []error) {
	lists := []struct {
		name  string
		items int
	}{{"operations", len(r.Operations)}, {"apiGroups", len(r.APIGroups)}, {"apiVersions", len(r.APIVersions)}, {"resources", len(r.Resources)}}
	for _, l := range lists {
		if l.items == 0 {
			errs = append(errs, fmt.Errorf("%s.%s is empty", name, l.name))
		}
	}
	for _, o := range r.Operations {
		switch o {
		case admissionregistrationv1.OperationAll, admissionregistrationv1.Create, admissionregistrationv1.Update, admissionregistrationv1.Delete, admissionregistrationv1.Connect:
		default:
			errs = append(errs, fmt.Errorf("%s.operations has %q, want CREATE, UPDATE, DELETE, CONNECT or *", name, o))
		}
	}
	for _, list := range []struct {
		name   string
		values []string
		format *regexp.Regexp
		want   string
	}{
		{"apiGroups", r.APIGroups, groupRE, `a group such as "" or apps, or *`},
		{"apiVersions", r.APIVersions, versionRE, "a version such as v1, or *"},
		{"resources", r.Resources, resourceRE, "a resource in lower case such as pods, pods/status, pods/* or *"},
	} {
		for _, value := range list.values {
			if !list.format.MatchString(value) {
				errs = append(errs, fmt.Errorf("%s.%s has %.80q, want %s", name, list.name, value, list.want))
			}
		}
	}
	if r.Scope != nil {
		switch *r.Scope {
		case admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope:
		default:
			errs = append(errs, fmt.Errorf("%s.scope is %q, want Cluster, Namespaced or *", name, *r.Scope))
		}
	}
	return errs
}

// matches reports whether a policy is to be asked about r.
func (m *matcher) matches(ctx context.Context, r *admissionv1.AdmissionRequest) (bool, error) {
	if m == nil {
		return true, nil
	}
	if m.never {
		return false, nil
	}
	if len(m.rules) != 0 && !slices.ContainsFunc(m.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return ruleMatches(&rule, r)
	}) {
		return false, nil
	}
	selects := func(raw []byte) bool { return raw != nil && m.object.Matches(labelsOf(raw)) }
	if m.object != nil && !selects(r.Object.Raw) && !selects(r.OldObject.Raw) {
		return false, nil
	}
	matches, err := m.matchesNamespace(ctx, r)
	if err == nil && matches && m.except != nil {
		matches, err = m.except.matches(ctx, r)
		matches = !matches
	}
	return matches, err
}

// ruleMatches follows k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules.
func ruleMatches(rule *admissionregistrationv1.RuleWithOperations, r *admissionv1.AdmissionRequest) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, "*") || slices.Contains(list, value)
	}
	if !slices.Contains(rule.Operations, admissionregistrationv1.OperationAll) &&
		!slices.Contains(rule.Operations, admissionregistrationv1.OperationType(r.Operation)) {
		return false
	}
	if !has(rule.APIGroups, r.Resource.Group) || !has(rule.APIVersions, r.Resource.Version) {
		return false
	}
	if !slices.ContainsFunc(rule.Resources, func(want string) bool {
		resource, sub, _ := strings.Cut(want, "/")
		return (resource == "*" || resource == r.Resource.Resource) && (sub == "*" || sub == r.SubResource)
	}) {
		return false
	}
	if rule.Scope == nil || *rule.Scope == admissionregistrationv1.AllScopes {
		return true
	}
	// A namespace has its own name for the namespace of its requests.
	namespaced := r.Namespace != "" && !isNamespace(r)
	return namespaced == (*rule.Scope == admissionregistrationv1.NamespacedScope)
}

func isNamespace(r *admissionv1.AdmissionRequest) bool {
	return r.Resource.Group == "" && r.Resource.Resource == "namespaces"
}

func (m *matcher) matchesNamespace(ctx context.Context, r *admissionv1.AdmissionRequest) (bool, error) {
	switch {
	case m.namespace == nil:
		return true, nil
	case isNamespace(r) && r.SubResource == "" && (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update):
		return m.namespace.Matches(labelsOf(r.Object.Raw)), nil
	case r.Namespace == "" && !isNamespace(r):
		return true, nil
	}
	name := r.Namespace
	if name == "" {
		name = r.Name
	}
	set, err := m.namespaceLabels(ctx, name)
	if err != nil {
		return false, fmt.Errorf("labels of namespace %q: %w", name, err)
	}
	return m.namespace.Matches(labels.Set(set)), nil
}

// labelsOf returns the labels of an object in JSON. What is no object has none.
func labelsOf(raw []byte) labels.Labels {
	set := labels.Set{}
	for m := json.Object(raw); m.Next(); {
		if m.Key() != "metadata" {
			continue
		}
		for m := json.Object(m.Value()); m.Next(); {
			if m.Key() != "labels" {
				continue
			}
			for l := json.Object(m.Value()); l.Next(); {
				if value, ok := l.Value().Text(); ok {
					set[l.Key()] = value
				}
			}
		}
	}
	return set
}
