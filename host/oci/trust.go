package oci

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/registryname"
)

// Trust configures the signatures required for artifacts of some repositories. Of several rules the
// one with the longest pattern decides.
type Trust struct {
	// Repositories are the names that the rule is for: "ghcr.io/acme/zone" for one
	// repository, "ghcr.io/acme/*" for all below, "*" for all. Registries are compared in
	// the one spelling of [ParseReference]. The name of a layout is "oci-layout:" and its
	// path. A mirror has no rules: those of the registry decide.
	Repositories []string `json:"repositories"`
	// AllOf are signers of which each must have signed.
	AllOf []Signer `json:"allOf,omitempty"`
	// AnyOf are signers of which Minimum must have signed, 1 by default. Each of them counts
	// with a key or an identity that no other one counts with: a key under two names is one
	// signer, and so is an identity that two expressions match.
	AnyOf   []Signer `json:"anyOf,omitempty"`
	Minimum int      `json:"minimum,omitempty"`
	// Unsigned accepts artifacts without any signature: the registry decides on the code that runs.
	// It excludes signers.
	Unsigned bool `json:"unsigned,omitempty"`
	// RefuseDowngrades refuses an artifact of a tag if its version is lower than one that was
	// accepted by the same reference before: an old artifact still has its valid signature. The
	// last one that was loaded is accepted even if a later one was accepted since: the tag goes
	// back to it if the later one does not load. The version is the annotation
	// org.opencontainers.image.version of the manifest, by semver.org, and required.
	// Config.CacheDir remembers it. A reference with a digest is not affected.
	RefuseDowngrades bool `json:"refuseDowngrades,omitempty"`
}

// Signer is a signer whose signature counts: the owner of a key, or an identity.
type Signer struct {
	// Name stands in messages. Default: the key's file, or the subject.
	Name string `json:"name,omitempty"`
	// Key is a public key in PEM, KeyFile a file that has it: ECDSA, Ed25519, or RSA of at
	// least 2048 bits.
	Key     string `json:"key,omitempty"`
	KeyFile string `json:"keyFile,omitempty"`
	// Identity is the one that a certificate names, for signatures without a key.
	Identity *Identity `json:"identity,omitempty"`
	// Certificate is that of a key.
	Certificate *Certificate `json:"certificate,omitempty"`
	// Annotations must be part of the signed text, beside the digest, see -a of cosign sign.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Identity describes a signer in a certificate of Sigstore's Fulcio. Each of the two is given
// exactly or as a regular expression, which must match the whole text.
type Identity struct {
	Issuer        string `json:"issuer,omitempty"`
	IssuerRegexp  string `json:"issuerRegexp,omitempty"`
	Subject       string `json:"subject,omitempty"`
	SubjectRegexp string `json:"subjectRegexp,omitempty"`
	// SourceRepository and SourceOwner are the repository for which a workflow ran and its owner,
	// such as "https://github.com/acme/zone" and "https://github.com/acme". The subject of a
	// workflow that several repositories use names only the workflow. One of them may stand instead
	// of a subject.
	SourceRepository string `json:"sourceRepository,omitempty"`
	SourceOwner      string `json:"sourceOwner,omitempty"`
}

// Certificate is a certificate whose key signs, and the means to verify it.
type Certificate struct {
	// PEM is the certificate. Chain are the certificates that it is verified by, the
	// intermediates first and the root last; without any it is trusted. All but the root are
	// for signing code.
	PEM   string   `json:"pem"`
	Chain []string `json:"chain,omitempty"`
	// Log requires each signature in a transparency log, whose time is that of the signature. The
	// certificate must have been valid then; without Log it must be valid now.
	Log bool `json:"log,omitempty"`
}

// Log is implemented by a [Keyless] with transparency logs.
type Log interface {
	// SignedAt returns the time at which a trusted log has taken a signature, as the entry
	// that lies beside it proves.
	SignedAt(ctx context.Context, s *Signature) (time.Time, error)
}

// Keyless verifies signatures by the identity in a certificate, as package oci/sigstore
// does. With a nil Keyless, a rule with an identity is a mistake.
type Keyless interface {
	// Verify returns the signer, or an error unless the signature is one of the artifact with
	// s.Digest by the identity.
	Verify(ctx context.Context, s *Signature, identity Identity) (Verified, error)
}

// Verified is the content of a verified signature by an identity.
type Verified struct {
	// Signer is the identity in the certificate: two signatures with one Signer are by one
	// signer.
	Signer string
	// Annotations are those that were signed with the digest. They count for a bundle.
	Annotations map[string]any
}

// TrustError is the error of an artifact whose signatures do not satisfy its rule, or whose version
// is too low.
type TrustError struct {
	Repository string
	Digest     string // Of the manifest, as in "sha256:0123…". Empty if the rule is a mistake and the reference a tag.
	Reason     error
}

func (e *TrustError) Error() string {
	if e.Digest == "" {
		return fmt.Sprintf("%s is not trusted: %v", e.Repository, e.Reason)
	}
	return fmt.Sprintf("%s@%s is not trusted: %v", e.Repository, e.Digest, e.Reason)
}

func (e *TrustError) Unwrap() error { return e.Reason }

// rule is a Trust that was checked, for one of its patterns.
type rule struct {
	*Trust
	pattern  string
	all, any []signer
	minimum  int
}

// rulesOf checks rules and returns them by their patterns, the longest first.
func rulesOf(trust []Trust, keyless bool) ([]rule, error) {
	var rules []rule
	var errs []error
	for i := range trust {
		t := &trust[i]
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("trust[%d]: "+format, append([]any{i}, args...)...))
		}
		r := rule{Trust: t, minimum: max(t.Minimum, 1)}
		signers := func(list []Signer, what string) (checked []signer) {
			for j := range list {
				s, err := list[j].check(keyless)
				if err != nil {
					fail("%s[%d]: %w", what, j, err)
				}
				checked = append(checked, s)
			}
			return checked
		}
		r.all, r.any = signers(t.AllOf, "allOf"), signers(t.AnyOf, "anyOf")
		signed := len(t.AllOf)+len(t.AnyOf) > 0
		switch {
		case t.Unsigned && signed:
			fail("unsigned excludes allOf and anyOf")
		case !t.Unsigned && !signed:
			fail("allOf and anyOf are empty; unsigned accepts artifacts without signatures")
		}
		if n := distinct(r.any); t.Minimum < 0 || t.Minimum > n {
			fail("minimum is %d, want at most the %d different signers of anyOf", t.Minimum, n)
		}
		if len(t.Repositories) == 0 {
			fail("repositories are missing")
		}
		for _, text := range t.Repositories {
			pattern, err := patternOf(text)
			if err != nil {
				fail("repository %q: %w", text, err)
			}
			if slices.ContainsFunc(rules, func(r rule) bool { return r.pattern == pattern }) {
				fail("repository %q has two rules", pattern)
			}
			r.pattern = pattern
			rules = append(rules, r)
		}
	}
	slices.SortStableFunc(rules, func(a, b rule) int { return len(b.pattern) - len(a.pattern) })
	return rules, errors.Join(errs...)
}

// patternOf returns the one spelling of a pattern of repositories: that of names of references.
func patternOf(text string) (string, error) {
	if star := strings.IndexByte(text, '*'); text == "" || star >= 0 && text != "*" && (star != len(text)-1 || !strings.HasSuffix(text, "/*")) {
		return "", errors.New("want a name, a name and /*, or *")
	}
	path, ok := strings.CutPrefix(text, layoutPrefix)
	if !ok {
		return registryname.Pattern(text)
	}
	all := strings.HasSuffix(path, "/*")
	path = absolute(strings.TrimSuffix(path, "*"))
	if all {
		path = strings.TrimSuffix(path, "/") + "/*"
	}
	return layoutPrefix + path, nil
}

// absolute returns the path of a layout from the root. Rules must not depend on the working
// directory.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return filepath.Clean(path)
}

// rule returns the rule for a reference, nil if there is none.
func (s *settings) rule(ref Reference) *rule {
	name := ref.Name()
	if ref.Layout != "" {
		name = layoutPrefix + absolute(ref.Layout)
	}
	for i := range s.trust {
		pattern := s.trust[i].pattern
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		if pattern == name || isPrefix && strings.HasPrefix(name, prefix) {
			return &s.trust[i]
		}
	}
	return nil
}

// vouch returns an error unless there is a rule for a reference that has no digest.
func (s *settings) vouch(ref Reference) error {
	if s.rule(ref) == nil {
		return fmt.Errorf("nothing vouches for what the tag leads to: want a digest as in NAME@sha256:…, sha256, or a rule for %s in trust", ref.Name())
	}
	return nil
}

// verify checks the signatures of an artifact by its rule, and returns the names of the signers.
// root is the manifest or the index that desc describes.
func (r *reader) verify(ctx context.Context, desc ocispec.Descriptor, root []byte) ([]string, error) {
	rule := r.settings.rule(r.ref)
	if rule == nil || rule.Unsigned {
		return nil, nil
	}
	if r.cache != nil && r.ref.Layout == "" && !r.remembered {
		// A verified signature is not requested again.
		kept := *r
		kept.remembered = true
		if names, err := kept.verifyBy(ctx, rule, desc, root); err == nil {
			return names, nil
		}
	}
	return r.verifyBy(ctx, rule, desc, root)
}

var errUnread = errors.New("no signature of it can be read")

func (r *reader) verifyBy(ctx context.Context, rule *rule, desc ocispec.Descriptor, root []byte) (names []string, err error) {
	t := newTally(rule, r.client.cfg.Keyless, root)
	var problems []error
	// The content of a signature is dropped before the next one is read.
	for _, look := range []func(context.Context, ocispec.Descriptor, func(*Signature)) []error{r.tagged, r.bundles} {
		problems = append(problems, look(ctx, desc, func(s *Signature) { t.add(ctx, s) })...)
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		if names, err = t.names(); err == nil {
			return names, nil
		}
	}
	problem := errors.Join(problems...)
	if away(problem) {
		// The signature may be there.
		return nil, fmt.Errorf("read signatures of %s: %w", desc.Digest, problem)
	}
	wants := t.wants()
	if t.n == 0 && problem != nil {
		err, wants = errUnread, errUnread // There may be some.
	}
	refusal := &TrustError{r.ref.Name(), desc.Digest.String(), errors.Join(append([]error{err}, problems...)...)}
	return nil, publicerr.Wrap((&TrustError{refusal.Repository, refusal.Digest, wants}).Error(), refusal)
}

// accepted is the highest version of a reference that was accepted.
type accepted struct {
	Version, Digest string
	// Loaded is the digest of the artifact that was loaded last.
	Loaded string
}

// accept refuses an artifact whose version is too low, and remembers the others.
func (c *Client) accept(rule *rule, ref Reference, a *Artifact) error {
	if rule == nil || !rule.RefuseDowngrades || ref.Digest != "" {
		return nil
	}
	refuse := func(err error) error { return &TrustError{ref.Name(), a.Digest, err} }
	text := a.Annotations[ocispec.AnnotationVersion]
	version, err := semver.ParseTolerant(text)
	if err != nil {
		return refuse(fmt.Errorf("annotation %s is %.80q, want a version to detect downgrades", ocispec.AnnotationVersion, text))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	last, err := c.last(ref)
	if err != nil {
		return err
	}
	if a.Digest == last.Loaded {
		return nil
	}
	if before, err := semver.ParseTolerant(last.Version); err == nil {
		switch {
		case version.LT(before):
			return refuse(fmt.Errorf("its version is %s, but %s was accepted before: a downgrade needs a reference with the digest", version, before))
		case version.EQ(before) && a.Digest != last.Digest:
			return refuse(fmt.Errorf("its version %s is that of %s, which was accepted before", version, last.Digest))
		}
	}
	last.Version, last.Digest = version.String(), a.Digest
	return c.remember(ref, last)
}

// loaded remembers which artifact of a reference was loaded last.
func (c *Client) loaded(ref Reference, digest string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, err := c.last(ref)
	if err == nil && last != (accepted{}) {
		last.Loaded = digest
		err = c.remember(ref, last)
	}
	c.stored(err)
}

func acceptedKey(ref Reference) string { return "accepted " + ref.String() }

// last returns the accepted version of a reference; the zero value if versions do not count. c.mu
// is held.
func (c *Client) last(ref Reference) (accepted, error) {
	last := c.newest[ref]
	// Another process may have accepted a newer one since then.
	stored, err := c.cache.accepted(acceptedKey(ref))
	if err == nil && stored != (accepted{}) && !newer(last, stored) {
		return stored, nil
	}
	return last, err
}

// remember records the accepted version of a reference. A version that cannot be recorded is not
// accepted: others must not be able to erase a record. c.mu is held.
func (c *Client) remember(ref Reference, last accepted) (err error) {
	if c.cache != nil {
		err = c.cache.accept(acceptedKey(ref), last, maxNewest)
	} else if _, known := c.newest[ref]; !known && len(c.newest) >= maxNewest {
		err = fmt.Errorf("there are %d references already", len(c.newest))
	}
	if err != nil {
		return fmt.Errorf("remember the version of %s: %w", ref, err)
	}
	if c.cache == nil {
		c.newest[ref] = last
	}
	return nil
}

// newer reports whether a has a higher version than b, or b has none.
func newer(a, b accepted) bool {
	before, err := semver.ParseTolerant(b.Version)
	if err != nil {
		return true
	}
	version, err := semver.ParseTolerant(a.Version)
	return err == nil && version.GT(before)
}
