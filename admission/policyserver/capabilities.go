package policyserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
)

// Capabilities are patterns of what policies may ask the host for, in the form of
// hostCapabilities: a path such as kubernetes/can_i, all below a path as in oci/v2/*, or *
// for everything. None is nothing.
type Capabilities []string

// capabilities are the paths that there are.
var capabilities = []string{
	"oci/v1/verify", "oci/v2/verify", "oci/v1/manifest_digest", "oci/v1/oci_manifest", "oci/v1/oci_manifest_config",
	"net/v1/dns_lookup_host",
	"crypto/v1/is_certificate_trusted",
	"kubernetes/list_resources_by_namespace", "kubernetes/list_resources_all", "kubernetes/get_resource", "kubernetes/can_i",
}

// Check returns everything that is wrong with the patterns: one that allows nothing that
// there is would be a grant that is missing, unseen.
func (c Capabilities) Check() error {
	var errs []error
	for _, pattern := range c {
		if pattern != "*" && !slices.ContainsFunc(capabilities, func(path string) bool { return allows(pattern, path) }) {
			errs = append(errs, fmt.Errorf("hostCapabilities has %.80q, want *, one of %s, or one of them cut after a / and followed by *", pattern, strings.Join(capabilities, ", ")))
		}
	}
	return errors.Join(errs...)
}

func allows(pattern, path string) bool {
	prefix, wild := strings.CutSuffix(pattern, "*")
	if wild {
		return prefix == "" || strings.HasSuffix(prefix, "/") && strings.HasPrefix(path, prefix)
	}
	return pattern == path
}

// Allow reports whether a path is allowed.
func (c Capabilities) Allow(path string) bool {
	return slices.ContainsFunc(c, func(pattern string) bool { return allows(pattern, path) })
}

// And returns the capabilities that both allow, as paths.
func (c Capabilities) And(other Capabilities) Capabilities {
	both := Capabilities{}
	for _, path := range capabilities {
		if c.Allow(path) && other.Allow(path) {
			both = append(both, path)
		}
	}
	return both
}

// cover reports whether everything that other allows is allowed.
func (c Capabilities) cover(other Capabilities) bool {
	return len(c.And(other)) == len(other.And(Capabilities{"*"}))
}

// grantedCluster is a cluster as a policy may ask it.
type grantedCluster struct {
	admission.Cluster
	granted Capabilities
}

func (c *grantedCluster) check(operation string) error {
	if path := "kubernetes/" + operation; !c.granted.Allow(path) {
		return fmt.Errorf("the policy may not ask for %s: its hostCapabilities do not have it", path)
	}
	return nil
}

// Get implements [admission.Cluster].
func (c *grantedCluster) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) ([]byte, error) {
	if err := c.check("get_resource"); err != nil {
		return nil, err
	}
	return c.Cluster.Get(ctx, kind, namespace, name)
}

// List implements [admission.Cluster].
func (c *grantedCluster) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, labels labels.Selector, fields fields.Selector) ([][]byte, error) {
	operation := "list_resources_all"
	if namespace != "" {
		operation = "list_resources_by_namespace"
	}
	if err := c.check(operation); err != nil {
		return nil, err
	}
	return c.Cluster.List(ctx, kind, namespace, labels, fields)
}

// Review implements [admission.Cluster].
func (c *grantedCluster) Review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	if err := c.check("can_i"); err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return c.Cluster.Review(ctx, spec)
}

// resources are kinds as policies.yml has them.
func kindsOf(resources []Resource) []schema.GroupVersionKind {
	kinds := make([]schema.GroupVersionKind, len(resources))
	for i, r := range resources {
		kinds[i] = schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return cmp.Compare(a.String(), b.String()) })
	return slices.Compact(kinds)
}
