package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/tuf"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/sigstore"
)

// verification is a verification configuration of Kubewarden.
type verification struct {
	APIVersion string      `json:"apiVersion"`
	AllOf      []signature `json:"allOf"`
	AnyOf      *anyOf      `json:"anyOf"`
}

type anyOf struct {
	MinimumMatches *int        `json:"minimumMatches"`
	Signatures     []signature `json:"signatures"`
}

// signature is a signer: of the kind pubKey, genericIssuer or githubAction.
type signature struct {
	Kind        string            `json:"kind"`
	Owner       string            `json:"owner"`
	Key         string            `json:"key"`
	Issuer      string            `json:"issuer"`
	Subject     *subject          `json:"subject"`
	Repo        string            `json:"repo"`
	Annotations map[string]string `json:"annotations"`
}

type subject struct {
	Equal     string `json:"equal"`
	URLPrefix string `json:"urlPrefix"`
}

// githubIssuer is the issuer of the identities of GitHub's workflows.
const githubIssuer = "https://token.actions.githubusercontent.com"

// readVerification returns the rule of a verification configuration, for every repository. No
// file, an empty name, takes modules without signatures. Errors are all mistakes, joined.
func readVerification(file string) (oci.Trust, error) {
	everything := []string{"*"}
	if file == "" {
		return oci.Trust{Repositories: everything, Unsigned: true}, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return oci.Trust{}, fmt.Errorf("read verification configuration: %w", err)
	}
	var v verification
	if err := decode(text, &v); err != nil {
		return oci.Trust{}, fmt.Errorf("read verification configuration: %w", err)
	}
	var errs []error
	signers := func(name string, list []signature) (signers []oci.Signer) {
		for i := range list {
			s, err := list[i].signer()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w", name, i, err))
			}
			signers = append(signers, s)
		}
		return signers
	}
	if v.APIVersion != "v1" {
		errs = append(errs, fmt.Errorf("apiVersion is %q, want v1", v.APIVersion))
	}
	t := oci.Trust{Repositories: everything, AllOf: signers("allOf", v.AllOf)}
	if v.AnyOf != nil {
		t.AnyOf, t.Minimum = signers("anyOf.signatures", v.AnyOf.Signatures), 1
		if v.AnyOf.MinimumMatches != nil {
			t.Minimum = *v.AnyOf.MinimumMatches
		}
		if t.Minimum < 1 || t.Minimum > len(t.AnyOf) {
			// More than there are could never match, and none would make anyOf say nothing.
			errs = append(errs, fmt.Errorf("anyOf.minimumMatches is %d, want 1 to the %d signatures", t.Minimum, len(t.AnyOf)))
		}
	}
	if len(t.AllOf)+len(t.AnyOf) == 0 {
		errs = append(errs, errors.New("allOf and anyOf have no signatures"))
	}
	if err := errors.Join(errs...); err != nil {
		return oci.Trust{}, fmt.Errorf("read verification configuration: %w", err)
	}
	return t, nil
}

// signer returns what a signature asks for. The error has all mistakes.
func (s *signature) signer() (oci.Signer, error) {
	var errs []error
	required := func(name, value string) {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is missing", name))
		}
	}
	signer := oci.Signer{Annotations: s.Annotations}
	switch s.Kind {
	case "pubKey":
		required("key", s.Key)
		signer.Key, signer.Name = s.Key, s.Owner
	case "genericIssuer":
		required("issuer", s.Issuer)
		signer.Identity = &oci.Identity{Issuer: s.Issuer}
		switch {
		case s.Subject == nil || (s.Subject.Equal == "") == (s.Subject.URLPrefix == ""):
			errs = append(errs, errors.New("subject has one of equal and urlPrefix"))
		case s.Subject.Equal != "":
			signer.Identity.Subject = s.Subject.Equal
		default:
			prefix := s.Subject.URLPrefix
			if u, err := url.Parse(prefix); err != nil || u.Scheme == "" || u.Host == "" {
				errs = append(errs, fmt.Errorf("subject.urlPrefix is %q, want a URL", prefix))
			}
			// So that https://github.com/acme is not https://github.com/acme-evil.
			signer.Identity.SubjectRegexp = regexp.QuoteMeta(strings.TrimSuffix(prefix, "/")+"/") + ".*"
			signer.Name = prefix
		}
	case "githubAction":
		required("owner", s.Owner)
		signer.Name = "https://github.com/" + s.Owner
		signer.Identity = &oci.Identity{Issuer: githubIssuer, SourceOwner: signer.Name}
		if s.Repo != "" {
			signer.Name += "/" + s.Repo
			signer.Identity.SourceRepository, signer.Identity.SourceOwner = signer.Name, ""
		}
		if strings.ContainsAny(s.Owner+s.Repo, "/*") {
			errs = append(errs, fmt.Errorf("owner is %q and repo %q, want names without / and *", s.Owner, s.Repo))
		}
	default:
		errs = append(errs, fmt.Errorf("kind is %q, want pubKey, genericIssuer or githubAction", s.Kind))
	}
	return signer, errors.Join(errs...)
}

// keyless verifies identities by the trusted root of the public Sigstore, which it gets when it is
// first needed, and anew each day: with a network that is away, only modules without a key fail, and
// they are tried again.
type keyless struct {
	get func(ctx context.Context) (root.TrustedMaterial, error)
	now func() time.Time

	mu       sync.Mutex
	verifier *sigstore.Keyless
	// until is when the root is got anew.
	until time.Time
}

// How long a root of the public Sigstore is used, and after which time one that cannot be got
// is tried for again.
const (
	trustRootTime  = 24 * time.Hour
	trustRootRetry = 10 * time.Minute
)

// newKeyless returns what verifies identities by the public Sigstore, whose root is kept in a
// directory.
func newKeyless(cache string) *keyless {
	return &keyless{now: time.Now, get: func(ctx context.Context) (root.TrustedMaterial, error) {
		return root.FetchTrustedRootWithOptions(tuf.DefaultOptions().WithCachePath(cache).WithContext(ctx))
	}}
}

var (
	_ oci.Keyless = (*keyless)(nil)
	_ oci.Log     = (*keyless)(nil)
)

// Verify implements [oci.Keyless].
func (k *keyless) Verify(ctx context.Context, s *oci.Signature, id oci.Identity) (oci.Verified, error) {
	verifier, err := k.trusted(ctx)
	if err != nil {
		return oci.Verified{}, err
	}
	return verifier.Verify(ctx, s, id)
}

// SignedAt implements [oci.Log].
func (k *keyless) SignedAt(ctx context.Context, s *oci.Signature) (time.Time, error) {
	verifier, err := k.trusted(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return verifier.SignedAt(ctx, s)
}

// trusted returns what verifies by the trusted root. A public Sigstore that is away leaves the root
// from before.
func (k *keyless) trusted(ctx context.Context) (*sigstore.Keyless, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now := k.now(); k.verifier == nil || !now.Before(k.until) {
		trusted, err := k.get(ctx)
		var verifier *sigstore.Keyless
		if err == nil {
			verifier, err = sigstore.NewFromMaterial(trusted)
		}
		switch {
		case err == nil:
			k.verifier, k.until = verifier, now.Add(trustRootTime)
		case k.verifier == nil:
			return nil, fmt.Errorf("get the trusted root of the public Sigstore: %w", err)
		default:
			k.until = now.Add(trustRootRetry)
		}
	}
	return k.verifier, nil
}
