package sigstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/kubewasm/kubewasm/host/oci"
)

// Keyless verifies signatures by identities. It is safe for use by several goroutines.
type Keyless struct{ now atomic.Pointer[material] }

// material is a trusted root.
type material struct {
	verifier *verify.Verifier
	trusted  root.TrustedMaterial
	text     []byte // Of the file.
}

var (
	_ oci.Keyless = (*Keyless)(nil)
	_ oci.Log     = (*Keyless)(nil)
)

// New returns a Keyless with the trusted root in a file, that of the public Sigstore or of a private
// one: as written by cosign trusted-root create, or in the field trustedRoot of a ClientTrustConfig.
func New(trustedRootFile string) (*Keyless, error) {
	k := new(Keyless)
	if err := k.read(trustedRootFile); err != nil {
		return nil, err
	}
	return k, nil
}

// Follow has cfg verify identities by the trusted root in a file of [New]. The file is read again
// before each fetch and verification. One that cannot be read is then an error of these, as with a
// file of keys: its former content may have been withdrawn. No file, an empty name, leaves cfg as it
// is. Follow wraps Reload of cfg, so that later changes of its settings do not count.
func Follow(cfg *oci.Config, trustedRootFile string) error {
	if trustedRootFile == "" {
		return nil
	}
	k, err := New(trustedRootFile)
	if err != nil {
		return err
	}
	cfg.Keyless = k
	settings := *cfg
	cfg.Reload = func() (oci.Config, error) {
		if err := k.read(trustedRootFile); err != nil {
			return oci.Config{}, err
		}
		if settings.Reload == nil {
			return settings, nil
		}
		return settings.Reload()
	}
	return nil
}

// read reads the trusted root in a file, unless it has not changed.
func (k *Keyless) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read trusted root: %w", err)
	}
	if now := k.now.Load(); now != nil && bytes.Equal(text, now.text) {
		return nil
	}
	trusted, err := parse(text)
	if err != nil {
		return fmt.Errorf("read trusted root: %s: %w", file, err)
	}
	return k.use(trusted, text)
}

// parse returns the trusted root in the text of a file.
func parse(text []byte) (root.TrustedMaterial, error) {
	var config struct {
		TrustedRoot json.RawMessage `json:"trustedRoot"`
		Snake       json.RawMessage `json:"trusted_root"` // A name of the same field in protobuf's JSON.
		MediaType   string          `json:"mediaType"`
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, err
	}
	switch {
	case config.TrustedRoot != nil:
		text = config.TrustedRoot
	case config.Snake != nil:
		text = config.Snake
	case config.MediaType != root.TrustedRootMediaType01:
		return nil, fmt.Errorf("trustedRoot is missing, and mediaType is %.80q, want %s", config.MediaType, root.TrustedRootMediaType01)
	}
	return root.NewTrustedRootFromJSON(text)
}

// NewFromMaterial returns a Keyless with trusted material. If that has logs of certificates, the
// certificate must be in one. If it has transparency logs, the signature must be in one. The time
// of the signature, at which the certificate must be valid, is that of such a log or of a timestamp
// authority.
func NewFromMaterial(trusted root.TrustedMaterial) (*Keyless, error) {
	k := new(Keyless)
	if err := k.use(trusted, nil); err != nil {
		return nil, err
	}
	return k, nil
}

// use has k verify by trusted material.
func (k *Keyless) use(trusted root.TrustedMaterial, text []byte) error {
	options := []verify.VerifierOption{verify.WithObserverTimestamps(1)}
	if len(trusted.CTLogs()) != 0 {
		options = append(options, verify.WithSignedCertificateTimestamps(1))
	}
	if len(trusted.RekorLogs()) != 0 {
		options = append(options, verify.WithTransparencyLog(1))
	} else if len(trusted.TimestampingAuthorities()) == 0 {
		return errors.New("trusted root has neither a transparency log nor a timestamp authority")
	}
	verifier, err := verify.NewVerifier(trusted, options...)
	if err != nil {
		return fmt.Errorf("use trusted root: %w", err)
	}
	k.now.Store(&material{verifier, trusted, text})
	return nil
}

// Verify implements [oci.Keyless].
func (k *Keyless) Verify(_ context.Context, s *oci.Signature, id oci.Identity) (oci.Verified, error) {
	fail := func(err error) (oci.Verified, error) { return oci.Verified{}, err }
	identity, err := identityOf(id)
	if err != nil {
		return fail(fmt.Errorf("identity: %w", err))
	}
	b, err := asBundle(s)
	if err != nil {
		return fail(err)
	}
	var artifact verify.ArtifactPolicyOption
	if s.Bundle != nil {
		digest, err := hex.DecodeString(strings.TrimPrefix(s.Digest, "sha256:"))
		if err != nil {
			return fail(fmt.Errorf("digest: %w", err))
		}
		artifact = verify.WithArtifactDigest("sha256", digest)
	} else {
		// The signed bytes are the text, whose digest the caller compares.
		artifact = verify.WithArtifact(bytes.NewReader(s.Payload))
	}
	result, err := k.now.Load().verifier.Verify(b, verify.NewPolicy(artifact, verify.WithCertificateIdentity(identity)))
	if err != nil {
		return fail(fmt.Errorf("verify by identity: %w", err))
	}
	if result.Signature == nil || result.Signature.Certificate == nil {
		return fail(errors.New("verify by identity: there is no certificate"))
	}
	// The workflow is the signer, whatever repository it ran for.
	verified := oci.Verified{Signer: result.Signature.Certificate.Issuer + " " + result.Signature.Certificate.SubjectAlternativeName}
	if result.Statement != nil {
		verified.Annotations, err = annotations(result.Statement, s.Digest)
	}
	return verified, err
}

const predicateSign = "https://sigstore.dev/cosign/sign/v1"

// annotations returns the annotations that were signed, if a statement is a signature of the
// artifact. Statements about an artifact are no signatures: one may say that it is broken.
func annotations(statement *intoto.Statement, digest string) (map[string]any, error) {
	if statement.PredicateType != predicateSign {
		return nil, fmt.Errorf("the signed content is a statement %.80q, want %s", statement.PredicateType, predicateSign)
	}
	for _, subject := range statement.Subject {
		if "sha256:"+subject.Digest["sha256"] == digest {
			return subject.Annotations.AsMap(), nil
		}
	}
	return nil, errors.New("the signed content is a different artifact")
}

// SignedAt implements [oci.Log].
func (k *Keyless) SignedAt(_ context.Context, s *oci.Signature) (time.Time, error) {
	b, err := asBundle(s)
	if err != nil {
		return time.Time{}, err
	}
	times, err := verify.VerifyTlogEntry(b, k.now.Load().trusted, 1, true)
	if err != nil {
		return time.Time{}, fmt.Errorf("verify the transparency log entry: %w", err)
	}
	if len(times) == 0 {
		return time.Time{}, errors.New("the entry of the transparency log has no time")
	}
	return times[0].Time, nil
}

// asBundle returns a signature as a bundle.
func asBundle(s *oci.Signature) (*bundle.Bundle, error) {
	if s.Bundle == nil {
		return tagged(s)
	}
	b := &bundle.Bundle{}
	if err := b.UnmarshalJSON(s.Bundle); err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	return b, nil
}

// identityOf returns the required content of a certificate.
func identityOf(id oci.Identity) (verify.CertificateIdentity, error) {
	subject := whole(id.SubjectRegexp)
	if id.Subject == "" && subject == "" && id.SourceRepository+id.SourceOwner != "" {
		subject = "^.+$"
	}
	names, err := verify.NewSANMatcher(id.Subject, subject)
	if err != nil {
		return verify.CertificateIdentity{}, err
	}
	issuer, err := verify.NewIssuerMatcher(id.Issuer, whole(id.IssuerRegexp))
	if err != nil {
		return verify.CertificateIdentity{}, err
	}
	return verify.NewCertificateIdentity(names, issuer, certificate.Extensions{SourceRepositoryURI: id.SourceRepository, SourceRepositoryOwnerURI: id.SourceOwner})
}

// whole returns an expression that matches the same texts as expression, but only as a whole: a
// part would let https://github.com/acme/zone match
// https://evil.example/?https://github.com/acme/zone.
func whole(expression string) string {
	if expression == "" {
		return ""
	}
	if _, err := regexp.Compile(expression); err != nil {
		return expression // The verifier reports it.
	}
	return "^(?:" + expression + ")$"
}

// logEntry is the entry of Rekor in the annotation of a signature under a tag.
type logEntry struct {
	SignedEntryTimestamp []byte
	Payload              struct {
		Body           string `json:"body"`
		IntegratedTime int64  `json:"integratedTime"`
		LogIndex       int64  `json:"logIndex"`
		LogID          string `json:"logID"`
	}
}

// tagged returns a signature under a tag as a bundle.
func tagged(s *oci.Signature) (*bundle.Bundle, error) {
	block, _ := pem.Decode(s.Certificate)
	if block == nil {
		return nil, errors.New("it has no certificate")
	}
	if _, err := x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	var entry logEntry
	if len(s.LogEntry) == 0 {
		return nil, errors.New("it has no entry of a transparency log")
	}
	if err := json.Unmarshal(s.LogEntry, &entry); err != nil {
		return nil, fmt.Errorf("read log entry: %w", err)
	}
	body, err := base64.StdEncoding.DecodeString(entry.Payload.Body)
	if err != nil {
		return nil, fmt.Errorf("read log entry: body: %w", err)
	}
	var kind struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(body, &kind); err != nil {
		return nil, fmt.Errorf("read log entry: body: %w", err)
	}
	log, err := hex.DecodeString(entry.Payload.LogID)
	if err != nil {
		return nil, fmt.Errorf("read log entry: logID: %w", err)
	}
	digest := sha256.Sum256(s.Payload)
	return bundle.NewBundle(&protobundle.Bundle{
		// The version with a promise of the log instead of a proof.
		MediaType: "application/vnd.dev.sigstore.bundle+json;version=0.1",
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
				Certificates: []*protocommon.X509Certificate{{RawBytes: block.Bytes}},
			}},
			TlogEntries: []*protorekor.TransparencyLogEntry{{
				LogIndex: entry.Payload.LogIndex, LogId: &protocommon.LogId{KeyId: log}, IntegratedTime: entry.Payload.IntegratedTime,
				KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion},
				InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: entry.SignedEntryTimestamp},
				CanonicalizedBody: body,
			}},
		},
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: digest[:]},
			Signature:     s.Signature,
		}},
	})
}
