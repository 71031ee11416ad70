package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/kubewasm/kubewasm/internal/nearest"
)

// target is a resource under audit.
type target struct {
	resource   schema.GroupVersionResource
	kind       string
	namespaced bool
	// dropStatus reports whether status is a subresource, and watch reports whether changes can be
	// watched.
	dropStatus, watch bool
	// policies are the policies to ask about the objects.
	policies []*asked
	// refused holds the policies that are for other versions of the resource, with the reason that
	// they fail on its objects.
	refused map[*asked]error
	// tries holds the tries of each policy.
	tries map[*asked]*tries
}

// add adds a policy to the target. refused is the reason that the policy fails on its objects, nil
// if it does not.
func (t *target) add(p *asked, refused error) {
	t.policies = append(t.policies, p)
	if t.tries == nil {
		t.tries = map[*asked]*tries{}
	}
	t.tries[p] = new(tries)
	if refused == nil {
		return
	}
	if t.refused == nil {
		t.refused = map[*asked]error{}
	}
	t.refused[p] = refused
}

func (t *target) gvk() schema.GroupVersionKind { return t.resource.GroupVersion().WithKind(t.kind) }

// name returns the resource with its name in kubectl.
func (t *target) name() string { return t.resource.GroupResource().String() }

// plan returns a digest of everything that decides the results of its objects, except the objects.
func (t *target) plan(namespaces []string) string {
	h := sha256.New()
	for _, p := range t.policies {
		fmt.Fprintf(h, "%q %q %v\n", p.Name, p.version, t.dropStatus)
	}
	fmt.Fprintf(h, "%q", namespaces)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// served is a resource of an API server.
type served struct {
	metav1.APIResource
	gvr schema.GroupVersionResource
}

// discover returns the resources that can be listed, group by group, with the preferred version of
// a group first, and the resources with a subresource status. A non-nil error beside resources
// names groups that do not answer.
func (c *client) discover() (resources []served, status map[schema.GroupVersionResource]bool, err error) {
	groups, lists, err := c.discovery.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, nil, fmt.Errorf("discover the resources of the cluster: %w", err)
	}
	if err != nil {
		err = fmt.Errorf("discover the resources of the cluster: %w", err)
	}
	status = map[schema.GroupVersionResource]bool{}
	byVersion := map[string]*metav1.APIResourceList{}
	for _, list := range lists {
		byVersion[list.GroupVersion] = list
	}
	for _, g := range groups {
		versions := []string{g.PreferredVersion.GroupVersion}
		for _, v := range g.Versions {
			if v.GroupVersion != versions[0] {
				versions = append(versions, v.GroupVersion)
			}
		}
		for _, version := range versions {
			gv, parseErr := schema.ParseGroupVersion(version)
			list := byVersion[version]
			if parseErr != nil || list == nil {
				continue
			}
			for _, r := range list.APIResources {
				name, sub, isSub := strings.Cut(r.Name, "/")
				gvr := gv.WithResource(name)
				if isSub {
					status[gvr] = status[gvr] || sub == "status"
					continue
				}
				// A resource that cannot be created is not stored, and never reviewed.
				if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create") {
					resources = append(resources, served{r, gvr})
				}
			}
		}
	}
	return resources, status, err
}

// twins maps resources to those of another group that have the same objects.
var twins = map[schema.GroupResource]schema.GroupResource{
	{Group: "events.k8s.io", Resource: "events"}: {Resource: "events"},
}

// stored returns the resource under which the state keeps the objects of a resource. It is equal
// for two resources that have the same objects.
func stored(gr schema.GroupResource) schema.GroupResource {
	if twin, ok := twins[gr]; ok {
		return twin
	}
	return gr
}

// targets returns the resources to audit, each with its policies. Each policy is asked about a
// resource once, in the first version that its rules name. If the cluster serves none of those, the
// policy fails on the objects. It sets skipped of a policy that is asked about nothing.
func targets(resources []served, status map[schema.GroupVersionResource]bool, policies []*asked) (all []*target) {
	byResource := map[schema.GroupVersionResource]*target{}
	for _, p := range policies {
		if p.skipped != nil || p.failure != nil {
			continue
		}
		seen := map[schema.GroupResource]bool{}
		choose := func(refused bool) {
			for i := range resources {
				r := &resources[i]
				gr := r.gvr.GroupResource()
				if seen[stored(gr)] || !p.names(gr) {
					continue
				}
				matches, err := p.Matches(admissionv1.Create, r.gvr, r.Namespaced)
				if !matches || refused != (err != nil) {
					continue
				}
				seen[stored(gr)] = true
				t := byResource[r.gvr]
				if t == nil {
					t = &target{resource: r.gvr, kind: r.Kind, namespaced: r.Namespaced, dropStatus: status[r.gvr], watch: slices.Contains(r.Verbs, "watch")}
					byResource[r.gvr] = t
					all = append(all, t)
				}
				t.add(p, err)
			}
		}
		choose(false)
		choose(true)
		if len(seen) == 0 {
			var names []string
			for _, r := range resources {
				names = append(names, r.gvr.Resource)
			}
			p.skipped = &unmatchedError{"the cluster has no resource named by its rules", p.mistaken(names)}
		}
	}
	slices.SortFunc(all, func(a, b *target) int { return strings.Compare(a.resource.String(), b.resource.String()) })
	return all
}

// reportGroup is the API group of reports.
const reportGroup = "openreports.io"

// names reports whether rules name a resource. A wildcard does not name the reports of audits,
// which change with each audit.
func (p *asked) names(gr schema.GroupResource) bool {
	return gr.Group != reportGroup || slices.ContainsFunc(p.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.APIGroups, gr.Group)
	})
}

// Reasons to ask policies about nothing.
var (
	errNoRules      = errors.New("neither its match nor its module names resources")
	errNoCreate     = errors.New("its rules name no CREATE: it decides about changes, not about the state of objects")
	errSubresources = errors.New("its rules name only subresources, which are not stored")
	errNoObject     = errors.New("its rules name the resource of no object")
	errDisabled     = errors.New("it is disabled")
	errNoVerdicts   = errors.New("it neither validates nor mutates")
)

// unmatchedError reports that a policy matches no existing resource.
type unmatchedError struct{ what, hint string }

func (e *unmatchedError) Error() string { return e.what + e.hint }

// versionName matches the name of a version, which no group has.
var versionName = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)

// mistaken returns the probable mistake in rules that match no resource of names, as the end of a
// message: resources: [pod], or apiGroups: [v1]. It returns an empty text if it finds none.
func (p *asked) mistaken(names []string) string {
	for _, r := range p.Rules {
		for _, group := range r.APIGroups {
			if versionName.MatchString(group) {
				return fmt.Sprintf(`: %q in apiGroups is a version; the core group is ""`, group)
			}
		}
		for _, resource := range r.Resources {
			if resource, _, _ = strings.Cut(resource, "/"); resource == "*" || slices.Contains(names, resource) {
				continue
			}
			if name := nearest.Name(resource, names); name != "" {
				return fmt.Sprintf(": %q in resources; did you mean %q?", resource, name)
			}
		}
	}
	return ""
}

// auditable returns the reason that a policy is never asked, nil if there is none.
func (p *asked) auditable(rulesRequired bool) error {
	switch {
	case p.Disabled:
		return errDisabled
	case !p.Validates && !p.Mutates:
		return errNoVerdicts
	case len(p.Rules) == 0 && rulesRequired:
		return errNoRules
	case len(p.Rules) == 0:
		return nil
	}
	creates, objects := false, false
	for _, r := range p.Rules {
		if !slices.Contains(r.Operations, admissionregistrationv1.OperationAll) && !slices.Contains(r.Operations, admissionregistrationv1.Create) {
			continue
		}
		creates = true
		for _, resource := range r.Resources {
			_, sub, isSub := strings.Cut(resource, "/")
			objects = objects || !isSub || sub == "*"
		}
	}
	switch {
	case !creates:
		return errNoCreate
	case !objects:
		return errSubresources
	}
	return nil
}
