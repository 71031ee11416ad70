package capabilities

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/internal/registryname"
)

// Scope lists the host capabilities of a policy. The zero value grants nothing.
type Scope struct {
	// HostCapabilities are the operations of Kubewarden that the policy may call, by their names,
	// such as "oci/v2/verify" and "kubernetes/get_resource"; "oci/v1/*" and "oci/*" match all
	// operations below them, and "*" matches all. Logging needs no grant. The three fields below
	// limit the subjects of the operations.
	HostCapabilities []string `json:"hostCapabilities,omitempty"`
	// ContextAwareResources are the kinds of objects that the policy may see. They must include the
	// kinds named by the metadata of its module. A policy in Rego finds their objects in data.
	ContextAwareResources []Kind `json:"contextAwareResources,omitempty"`
	// Repositories are the repositories that the policy may ask about: "ghcr.io/acme/zone" for one,
	// "ghcr.io/acme/*" for all below, and "*" for all repositories of all registries. The image
	// "busybox" is in docker.io/library/busybox. Registries have one spelling, as in references of
	// package oci.
	Repositories []string `json:"repositories,omitempty"`
	// HostNames are the host names whose addresses the policy may look up: "db.example.com" for
	// one, "*.example.com" for all below, "*" for all.
	HostNames []string `json:"hostNames,omitempty"`
}

// Kind is a kind of objects that a policy may see.
type Kind = dialect.Kind

// The operations of Kubewarden's host, as in crates/policy-evaluator of its controller's
// repository.
const (
	Verify               = "oci/v1/verify"
	VerifyV2             = "oci/v2/verify"
	ManifestDigest       = "oci/v1/manifest_digest"
	Manifest             = "oci/v1/oci_manifest"
	ManifestConfig       = "oci/v1/oci_manifest_config"
	LookupHost           = "net/v1/dns_lookup_host"
	IsCertificateTrusted = "crypto/v1/is_certificate_trusted"
	ListByNamespace      = "kubernetes/list_resources_by_namespace"
	ListAll              = "kubernetes/list_resources_all"
	GetResource          = "kubernetes/get_resource"
	CanI                 = "kubernetes/can_i"
)

// operations lists every operation that can be granted.
var operations = []string{
	Verify, VerifyV2, ManifestDigest, Manifest, ManifestConfig, LookupHost, IsCertificateTrusted,
	ListByNamespace, ListAll, GetResource, CanI,
}

// MayCall returns a *[GrantError] unless an operation may be called.
func (s *Scope) MayCall(operation string) error {
	if slices.ContainsFunc(s.HostCapabilities, func(pattern string) bool { return below(pattern, operation) }) {
		return nil
	}
	return refuse("the policy may not call %.200s: it is not in the hostCapabilities of its configuration", operation)
}

// below reports whether a name is the pattern, or lies below a pattern that ends in *.
func below(pattern, name string) bool {
	prefix, isPrefix := strings.CutSuffix(pattern, "*")
	return pattern == name || isPrefix && strings.HasPrefix(name, prefix)
}

var (
	pathRE     = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	hostNameRE = regexp.MustCompile(`^[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?(\.[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*$`)
)

// patternOf returns the canonical spelling of a pattern of repositories, see package registryname.
func patternOf(text string) (string, error) {
	pattern, err := registryname.Pattern(text)
	if err != nil || pattern == "*" {
		return pattern, err
	}
	_, path, _ := strings.Cut(pattern, "/")
	if path != "*" && !pathRE.MatchString(strings.TrimSuffix(path, "/*")) {
		return "", errors.New("want lower-case names with slashes between them")
	}
	return pattern, nil
}

// Check returns all mistakes in s, joined; nil if there are none.
func (s *Scope) Check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i, pattern := range s.HostCapabilities {
		switch {
		case slices.Contains(s.HostCapabilities[:i], pattern):
			fail("hostCapabilities: %.80q is there twice", pattern)
		case !slices.ContainsFunc(operations, func(o string) bool { return below(pattern, o) }) || strings.HasSuffix(pattern, "*") && pattern != "*" && !strings.HasSuffix(pattern, "/*"):
			fail("hostCapabilities: %.80q is none of %s, nor such a name up to a slash and *", pattern, strings.Join(operations, ", "))
		}
	}
	errs = append(errs, dialect.CheckKinds(s.ContextAwareResources)...)
	var known []string
	for _, text := range s.Repositories {
		pattern, err := patternOf(text)
		switch {
		case err != nil:
			fail("repositories: %.200q is no REGISTRY/REPOSITORY, no such name and /*, and not *: %w", text, err)
		case slices.Contains(known, pattern):
			fail("repositories: %.200q is there twice", text)
		}
		known = append(known, pattern)
	}
	for i, pattern := range s.HostNames {
		switch {
		case slices.Contains(s.HostNames[:i], pattern):
			fail("hostNames: %.100q is there twice", pattern)
		case pattern != "*" && !hostNameRE.MatchString(strings.TrimPrefix(pattern, "*.")):
			fail("hostNames: %.100q is no lower-case host name, no *. and such a name, and not *", pattern)
		}
	}
	// A grant in one place that is missing in the other would be refused call by call.
	fits := func(namespace, field string, about int) {
		any := slices.ContainsFunc(s.HostCapabilities, func(p string) bool { return p == "*" || strings.HasPrefix(p, namespace+"/") })
		alone := slices.ContainsFunc(s.HostCapabilities, func(p string) bool { return strings.HasPrefix(p, namespace+"/") })
		switch {
		case about != 0 && !any:
			fail("%s need operations of %s in hostCapabilities", field, namespace)
		case about == 0 && alone:
			fail("hostCapabilities of %s need %s that the policy may ask about", namespace, field)
		}
	}
	fits("oci", "repositories", len(s.Repositories))
	fits("net", "hostNames", len(s.HostNames))
	return errors.Join(errs...)
}

// MaySee returns a *[GrantError] unless the policy may see objects of a kind in a namespace. An
// empty namespace means all namespaces, or a kind without namespaces.
func (s *Scope) MaySee(kind schema.GroupVersionKind, namespace string) error {
	for i := range s.ContextAwareResources {
		k := &s.ContextAwareResources[i]
		if k.GroupVersionKind() != kind {
			continue
		}
		switch {
		case k.Namespaces == nil || namespace != "" && slices.Contains(k.Namespaces, namespace):
			return nil
		case namespace == "":
			return refuse("the policy may see %s %s of some namespaces, not of all: its contextAwareResources name them", k.APIVersion, k.Kind)
		}
		return refuse("the policy may not see %s %s of namespace %.80q: it is not in its contextAwareResources", k.APIVersion, k.Kind, namespace)
	}
	apiVersion, name := kind.ToAPIVersionAndKind()
	return refuse("the policy may not see %.100s %.100s: it is not in its contextAwareResources", apiVersion, name)
}

// Image is the name of an artifact in the form written by policies.
type Image struct {
	// Repository includes the registry.
	Repository string
	// Tag or Digest is set, or both.
	Tag, Digest string
}

// String returns the whole name.
func (i Image) String() string {
	s := i.Repository
	if i.Tag != "" {
		s += ":" + i.Tag
	}
	if i.Digest != "" {
		s += "@" + i.Digest
	}
	return s
}

var (
	tagRE    = regexp.MustCompile(`^[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}$`)
	digestRE = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// maxImageBytes is the maximum length of an image name.
const maxImageBytes = 1 << 10

// ParseImage reads the name of an image as container runtimes do: the default registry is
// docker.io, and the default tag, without a digest, is latest.
func ParseImage(text string) (Image, error) {
	if len(text) > maxImageBytes {
		return Image{}, fmt.Errorf("the image has %d bytes, more than %d", len(text), maxImageBytes)
	}
	name, digest, hasDigest := strings.Cut(text, "@")
	i := Image{Repository: name, Digest: digest}
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		i.Repository, i.Tag = name[:colon], name[colon+1:]
		if !tagRE.MatchString(i.Tag) {
			return Image{}, fmt.Errorf("image %.200q: tag is %.80q", text, i.Tag)
		}
	}
	if hasDigest && !digestRE.MatchString(digest) {
		return Image{}, fmt.Errorf("image %.200q: digest is %.80q, want sha256: and 64 lower-case hexadecimal digits", text, digest)
	}
	if i.Tag == "" && digest == "" {
		i.Tag = "latest"
	}
	registry, path, found := strings.Cut(i.Repository, "/")
	if !found || !registryname.Named(registry) {
		registry, path = registryname.Docker, i.Repository
	}
	registry, err := registryname.Host(registry)
	if err != nil {
		return Image{}, fmt.Errorf("image %.200q is no [REGISTRY/]REPOSITORY[:TAG][@DIGEST]: %w", text, err)
	}
	if !pathRE.MatchString(path) {
		return Image{}, fmt.Errorf("image %.200q is no [REGISTRY/]REPOSITORY[:TAG][@DIGEST]", text)
	}
	i.Repository = registry + "/" + registryname.Repository(registry, path)
	return i, nil
}

// MayAsk returns a *[GrantError] unless the policy may ask about an image.
func (s *Scope) MayAsk(i Image) error {
	for _, text := range s.Repositories {
		if pattern, err := patternOf(text); err == nil && below(pattern, i.Repository) {
			return nil
		}
	}
	return refuse("the policy may not ask about %s: it is not in the repositories of its configuration", i.Repository)
}

// HostName returns a host name in the form used for look-ups. The error is a *[GrantError] if the
// policy may not look it up.
func (s *Scope) HostName(name string) (string, error) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > 253 || !hostNameRE.MatchString(name) {
		return "", fmt.Errorf("%.100q is no host name", name)
	}
	for _, pattern := range s.HostNames {
		suffix, isSuffix := strings.CutPrefix(pattern, "*")
		if pattern == name || isSuffix && strings.HasSuffix(name, suffix) {
			return name, nil
		}
	}
	return "", refuse("the policy may not look up %s: it is not in the hostNames of its configuration", name)
}
