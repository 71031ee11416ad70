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

// Match selects the requests that a policy is asked about. Its fields have the names and meanings
// of those in a webhook configuration. The zero value selects all requests. A list in a rule must
// not be empty or hold an impossible value, since such a rule would silently match nothing.
//
// Where possible, let the API server select: a request that is not sent costs nothing.
type Match struct {
	// Rules are the operations and resources; one of them must match, unless there are none.
	Rules []admissionregistrationv1.RuleWithOperations `json:"rules,omitempty"`
	// MatchPolicy decides about a request for a resource that Rules name only in other versions, or
	// in another group that serves the same objects. With Equivalent, the default, the policy fails
	// on it. Its guest is for objects of other versions, and only the API server can convert them.
	// The API server does so if the rules of its webhook configuration name the versions of these
	// rules. With Exact the policy is not asked, and the request passes.
	//
	// With Equivalent, a rule for all groups must have all versions.
	MatchPolicy admissionregistrationv1.MatchPolicyType `json:"matchPolicy,omitempty"`
	// NamespaceSelector selects by the labels of the object's namespace, and for a namespace by its
	// labels. It selects all other objects without a namespace.
	//
	// Users who may change the labels of a namespace decide whether the policy sees its objects.
	// They cannot change kubernetes.io/metadata.name, the name of the namespace.
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// ObjectSelector selects by the labels of the object or the old object. The users who write the
	// object decide, so it suits only optional policies. As in an API server, it never selects an
	// object without metadata, such as the options of kubectl exec.
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`
}

// NamespaceLabels returns the labels of a namespace: an informer's lister can be adapted in one
// line. It is safe for use by several goroutines.
type NamespaceLabels func(ctx context.Context, namespace string) (map[string]string, error)

// matcher is a validated Match. A nil matcher matches everything.
type matcher struct {
	rules             []admissionregistrationv1.RuleWithOperations
	policy            admissionregistrationv1.MatchPolicyType
	namespace, object labels.Selector // nil matches everything.
	namespaceLabels   NamespaceLabels
	// never is set if it matches nothing, regardless of the other fields.
	never bool
	// except excludes requests that the other fields match; nil excludes nothing.
	except *matcher
}

// compile returns the matcher of m, or all mistakes in m.
func (m *Match) compile(namespaces NamespaceLabels) (*matcher, error) {
	var errs []error
	switch m.MatchPolicy {
	case "", admissionregistrationv1.Equivalent, admissionregistrationv1.Exact:
	default:
		errs = append(errs, fmt.Errorf("match.matchPolicy is %.80q, want Equivalent or Exact", m.MatchPolicy))
	}
	for i, r := range m.Rules {
		name := fmt.Sprintf("match.rules[%d]", i)
		errs = append(errs, checkRule(name, &r)...)
		if m.MatchPolicy != admissionregistrationv1.Exact && slices.Contains(r.APIGroups, "*") && len(r.APIVersions) != 0 && !slices.Contains(r.APIVersions, "*") {
			// Groups have different versions: a group without one of these would pass.
			errs = append(errs, fmt.Errorf("%s has some versions of all groups: name the groups, or all versions, or set matchPolicy: Exact", name))
		}
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
		policy:          m.MatchPolicy,
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

// Formats of groups, versions and resources. A value that no request can have, such as Pods, or
// apps/v1 as a group, is a mistake: the policy would be asked about nothing.
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

// matches reports whether to ask a policy about r. The error is non-nil if that is unknown, or if
// the rules name r only in other versions, see [Match.MatchPolicy].
func (m *matcher) matches(ctx context.Context, r *admissionv1.AdmissionRequest) (bool, error) {
	f, err := m.fits(ctx, r)
	if err == nil && f == equivalent {
		err = otherVersion(m.rules, r)
	}
	return err == nil && f != unrelated, err
}

// fits returns the fit of the rules and the selectors for a request.
func (m *matcher) fits(ctx context.Context, r *admissionv1.AdmissionRequest) (fit, error) {
	if m == nil {
		return exact, nil
	}
	if m.never {
		return unrelated, nil
	}
	f := rulesFit(m.rules, m.policy, r)
	if f == unrelated {
		return unrelated, nil
	}
	selects := func(raw []byte) bool {
		set, has := labelsOf(raw)
		return has && m.object.Matches(set)
	}
	if m.object != nil && !selects(r.Object.Raw) && !selects(r.OldObject.Raw) {
		return unrelated, nil
	}
	if matches, err := m.matchesNamespace(ctx, r); !matches || err != nil {
		return unrelated, err
	}
	if m.except != nil {
		if covered, err := m.except.fits(ctx, r); covered != unrelated || err != nil {
			return unrelated, err
		}
	}
	return f, nil
}

// fit is the degree to which rules match a request.
type fit uint8

const (
	unrelated fit = iota
	// equivalent is the fit of rules that name the objects only in other versions, or in another
	// group.
	equivalent
	exact
)

// rulesFit returns the best fit of the rules; without rules, everything fits.
func rulesFit(rules []admissionregistrationv1.RuleWithOperations, policy admissionregistrationv1.MatchPolicyType, r *admissionv1.AdmissionRequest) fit {
	if len(rules) == 0 {
		return exact
	}
	best := unrelated
	for i := range rules {
		best = max(best, ruleFit(&rules[i], r))
	}
	if best == equivalent && policy == admissionregistrationv1.Exact {
		return unrelated
	}
	return best
}

// ruleFit follows k8s.io/apiserver/pkg/admission/plugin/webhook: predicates/rules for an exact fit,
// and ShouldCallHook in generic for an equivalent one. The API server considers the versions that
// it serves of a resource. Here all versions of a group count.
func ruleFit(rule *admissionregistrationv1.RuleWithOperations, r *admissionv1.AdmissionRequest) fit {
	if !slices.Contains(rule.Operations, admissionregistrationv1.OperationAll) &&
		!slices.Contains(rule.Operations, admissionregistrationv1.OperationType(r.Operation)) {
		return unrelated
	}
	if !slices.ContainsFunc(rule.Resources, func(want string) bool {
		resource, sub, _ := strings.Cut(want, "/")
		return (resource == "*" || resource == r.Resource.Resource) && (sub == "*" || sub == r.SubResource)
	}) {
		return unrelated
	}
	if rule.Scope != nil && *rule.Scope != admissionregistrationv1.AllScopes {
		// A request for a namespace has its name as the namespace.
		namespaced := r.Namespace != "" && !isNamespace(r)
		if namespaced != (*rule.Scope == admissionregistrationv1.NamespacedScope) {
			return unrelated
		}
	}
	named := slices.Contains(rule.APIGroups, r.Resource.Group)
	switch {
	case (named || slices.Contains(rule.APIGroups, "*")) && (slices.Contains(rule.APIVersions, "*") || slices.Contains(rule.APIVersions, r.Resource.Version)):
		return exact
	case named || slices.ContainsFunc(rule.APIGroups, func(group string) bool { return cohabit(group, r.Resource.Group, r.Resource.Resource) }):
		return equivalent
	}
	return unrelated
}

// cohabit reports whether two groups serve the same objects under the same resource name. See
// AddCohabitatingResources in k8s.io/kubernetes/pkg/kubeapiserver, and, for extensions, the
// function of that name in the minor versions that served it.
func cohabit(a, b, resource string) bool {
	var groups []string
	switch resource {
	case "events":
		groups = []string{"", "events.k8s.io"}
	case "daemonsets", "deployments", "replicasets":
		groups = []string{"apps", "extensions"}
	case "replicationcontrollers":
		groups = []string{"", "extensions"}
	case "ingresses", "networkpolicies":
		groups = []string{"extensions", "networking.k8s.io"}
	}
	return a != b && slices.Contains(groups, a) && slices.Contains(groups, b)
}

// otherVersion returns the error of a request that rules match only in other versions.
func otherVersion(rules []admissionregistrationv1.RuleWithOperations, r *admissionv1.AdmissionRequest) error {
	var named []string
	for i := range rules {
		if ruleFit(&rules[i], r) != equivalent {
			continue
		}
		for _, group := range rules[i].APIGroups {
			if group != r.Resource.Group && !cohabit(group, r.Resource.Group, r.Resource.Resource) {
				continue
			}
			for _, version := range rules[i].APIVersions {
				if name := strings.TrimPrefix(group+"/"+version, "/"); !slices.Contains(named, name) && len(named) < shownAskings {
					named = append(named, name)
				}
			}
		}
	}
	resource, name := r.Resource, r.Resource.Resource
	if r.SubResource != "" {
		name += "/" + r.SubResource
	}
	return fmt.Errorf("the request is for %s of %s, and the rules name %s: name the same versions in the webhook configuration, and the API server converts",
		name, strings.TrimPrefix(resource.Group+"/"+resource.Version, "/"), strings.Join(named, ", "))
}

func isNamespace(r *admissionv1.AdmissionRequest) bool {
	return r.Resource.Group == "" && r.Resource.Resource == "namespaces"
}

func (m *matcher) matchesNamespace(ctx context.Context, r *admissionv1.AdmissionRequest) (bool, error) {
	switch {
	case m.namespace == nil:
		return true, nil
	case isNamespace(r) && r.SubResource == "" && (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update):
		set, _ := labelsOf(r.Object.Raw)
		return m.namespace.Matches(set), nil
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

// labelsOf returns the labels of an object in JSON, and reports whether it has metadata. JSON that
// is not an object has none.
func labelsOf(raw []byte) (set labels.Set, has bool) {
	set = labels.Set{}
	for m := json.Object(raw); m.Next(); {
		if m.Key() != "metadata" {
			continue
		}
		has = true
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
	return set, has
}
