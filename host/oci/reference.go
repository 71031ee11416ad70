package oci

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"oras.land/oras-go/v2/registry"

	"github.com/kubewasm/kubewasm/internal/registryname"
)

// Reference names an artifact in a registry or in an OCI image layout.
type Reference struct {
	// Layout is the path of an image layout: a directory, or a tar of one. It is empty for
	// an artifact in a registry.
	Layout string
	// Registry is the host of the registry, with its port if there is one. Repository is
	// the path in it. Both have one spelling, in which [ParseReference] returns them.
	Registry, Repository string
	// Tag is the tag. It may be empty if there is a Digest, and in a layout of one artifact.
	Tag string
	// Digest is the digest of the manifest, as in "sha256:0123…". If it is set, it decides,
	// and the tag is for people.
	Digest string
}

const layoutPrefix = "oci-layout:"

// maxReferenceBytes is the maximum length of a path, which is more than any registry accepts.
const maxReferenceBytes = 4 << 10

var digestRE = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ParseReference reads a reference in one of the forms
//
//	[oci://]HOST[:PORT]/REPOSITORY[:TAG][@sha256:DIGEST]
//	oci-layout:PATH[:TAG][@sha256:DIGEST]
//
// The scheme registry:// stands for oci://. A registry is always named, and so is a tag or
// a digest in it. The error has all mistakes, and no part of a text that may be a password.
//
// A registry has one spelling: in lower case, without a dot at its end and without port 443.
// docker.io stands for each of Docker's names, and docker.io/busybox for
// docker.io/library/busybox.
func ParseReference(text string) (Reference, error) {
	if len(text) > maxReferenceBytes {
		return Reference{}, fmt.Errorf("reference has %d bytes, more than %d", len(text), maxReferenceBytes)
	}
	if path, ok := strings.CutPrefix(text, layoutPrefix); ok {
		return parseLayout(path)
	}
	rest := text
	for _, scheme := range []string{"oci://", "registry://"} {
		rest = strings.TrimPrefix(rest, scheme)
	}
	host, path, _ := strings.Cut(rest, "/")
	if scheme, _, ok := strings.Cut(text, "://"); ok && rest == text {
		return Reference{}, fmt.Errorf("scheme of the reference is %q, want oci or none, as in %.200q", scheme, strings.TrimPrefix(text, scheme+"://"))
	}
	if strings.Contains(host, "@") {
		return Reference{}, errors.New("reference has a user before its registry: configure credentials instead")
	}
	var ref Reference
	var errs []error
	path, ref.Digest, errs = cutDigest(path)
	ref.Repository, ref.Tag, _ = strings.Cut(path, ":")
	if strings.HasSuffix(path, ":") {
		errs = append(errs, errors.New("tag is empty"))
	}
	var hostErr error
	switch ref.Registry, hostErr = registryname.Host(host); {
	case !registryname.Named(host):
		errs = append(errs, fmt.Errorf("registry is missing: %q is no host name", host))
	case hostErr != nil:
		errs = append(errs, fmt.Errorf("registry %q is no host name: %w", host, hostErr))
	}
	ref.Repository = registryname.Repository(ref.Registry, ref.Repository)
	if (registry.Reference{Repository: ref.Repository}).ValidateRepository() != nil {
		errs = append(errs, fmt.Errorf("repository is %q, want lower-case names with slashes between them", ref.Repository))
	}
	errs = append(errs, checkTag(ref.Tag)...)
	if ref.Tag == "" && ref.Digest == "" && len(errs) == 0 {
		errs = append(errs, errors.New("tag and digest are missing: a reference is like registry.example.com/zone:1.2"))
	}
	if len(errs) != 0 {
		return Reference{}, fmt.Errorf("reference %q: %w", text, errors.Join(errs...))
	}
	return ref, nil
}

// parseLayout reads PATH[:TAG][@sha256:DIGEST].
func parseLayout(text string) (Reference, error) {
	path, digest, errs := cutDigest(text)
	ref := Reference{Layout: path, Digest: digest}
	if colon := strings.LastIndexByte(path, ':'); colon > strings.LastIndexAny(path, `/\`) {
		ref.Layout, ref.Tag = path[:colon], path[colon+1:]
		errs = append(errs, checkTag(ref.Tag)...)
		if ref.Tag == "" {
			errs = append(errs, errors.New("tag is empty"))
		}
	}
	switch {
	case ref.Layout == "":
		errs = append(errs, errors.New("path of the layout is missing"))
	case ref.Tag == "" && strings.Contains(filepath.Base(ref.Layout), ":"):
		errs = append(errs, errors.New("path of the layout ends in a name with a colon, which needs a tag"))
	}
	if len(errs) != 0 {
		return Reference{}, fmt.Errorf("reference %q: %w", layoutPrefix+text, errors.Join(errs...))
	}
	ref.Layout = filepath.Clean(ref.Layout)
	return ref, nil
}

// cutDigest cuts the digest off a reference.
func cutDigest(text string) (rest, digest string, errs []error) {
	rest, digest, found := strings.Cut(text, "@")
	if found && !digestRE.MatchString(digest) {
		errs = append(errs, fmt.Errorf("digest is %.80q, want sha256: and 64 lower-case hexadecimal digits", digest))
	}
	return rest, digest, errs
}

func checkTag(tag string) []error {
	if tag != "" && (registry.Reference{Reference: tag}).ValidateReferenceAsTag() != nil {
		return []error{fmt.Errorf("tag is %.80q, want at most 128 letters, digits, '_', '.' and '-'", tag)}
	}
	return nil
}

// Name returns the reference without tag and digest: registry and repository, or the
// layout.
func (r Reference) Name() string {
	if r.Layout != "" {
		return layoutPrefix + r.Layout
	}
	return r.Registry + "/" + r.Repository
}

// String returns the reference as [ParseReference] reads it.
func (r Reference) String() string {
	s := r.Name()
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest
	}
	return s
}

// check returns an error unless the reference is spelt as ParseReference returns it: rules of
// trust, credentials and mirrors are found by that spelling.
func (r Reference) check() error {
	if parsed, err := ParseReference(r.String()); err != nil || parsed != r {
		return errors.Join(fmt.Errorf("reference %.200q is not in the form of ParseReference", r), err)
	}
	return nil
}

// wanted returns the name by which a store is asked: the digest, if there is one.
func (r Reference) wanted() string {
	if r.Digest != "" {
		return r.Digest
	}
	return r.Tag
}
