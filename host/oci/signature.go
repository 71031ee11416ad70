package oci

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
)

// Signature is a signature that was found beside an artifact. Nothing in it is trusted
// before it was verified.
type Signature struct {
	// Digest is the digest of the manifest that the signature is to be of, as in
	// "sha256:0123…".
	Digest string
	// Bundle is a bundle of Sigstore in JSON, of version 0.3. It is nil for a signature
	// under a tag, which has the fields below.
	Bundle []byte
	// Payload is the signed text, a "simple signing" text in JSON, Signature its signature.
	Payload, Signature []byte
	// Certificate and Chain are PEM, LogEntry is the entry of Rekor in JSON; each may be
	// empty.
	Certificate, Chain, LogEntry []byte
}

// The formats of cosign: its specs/SIGNATURE_SPEC.md and specs/BUNDLE_SPEC.md.
const (
	mediaTypeSimpleSigning = "application/vnd.dev.cosign.simplesigning.v1+json"
	mediaTypeBundle        = "application/vnd.dev.sigstore.bundle.v0.3+json"
	annotationSignature    = "dev.cosignproject.cosign/signature"
	annotationCertificate  = "dev.sigstore.cosign/certificate"
	annotationChain        = "dev.sigstore.cosign/chain"
	annotationLogEntry     = "dev.sigstore.cosign/bundle"
	payloadTypeInToto      = "application/vnd.in-toto+json"
	predicateSign          = "https://sigstore.dev/cosign/sign/v1"
	simpleSigningType      = "cosign container image signature"
)

// The limits for reading signatures, which anyone with write access to the repository can make. A
// signed text under a tag has some 300 bytes and the annotations, a bundle some 10 KB. For 64
// signatures under a tag with certificates, the manifest has half a megabyte.
const (
	maxSignatures             = 64
	maxPayloadBytes           = 64 << 10
	maxBundleBytes            = 128 << 10
	maxBundleManifestBytes    = 64 << 10
	maxSignatureManifestBytes = 1 << 20
)

var signatureTagRE = regexp.MustCompile(`^sha256-[0-9a-f]{64}(\.(sig|att|sbom))?$`)

// signatureTag returns the tag of the signatures of a manifest.
func signatureTag(digest string) string { return strings.Replace(digest, ":", "-", 1) + ".sig" }

// tagged calls f with the signatures under the tag of a manifest, one after the other, and returns
// the errors of the others.
func (r *reader) tagged(ctx context.Context, subject ocispec.Descriptor, f func(*Signature)) (problems []error) {
	fail := func(err error) []error {
		if errors.Is(err, errdef.ErrNotFound) {
			return nil
		}
		return []error{fmt.Errorf("signatures under a tag: %w", err)}
	}
	tag := signatureTag(subject.Digest.String())
	desc, err := r.resolve(ctx, tag)
	if err != nil {
		return fail(err)
	}
	data, err := r.readResolved(ctx, tag, &desc, maxSignatureManifestBytes)
	if err != nil {
		return fail(err)
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return fail(err)
	}
	for i, layer := range manifest.Layers {
		if layer.MediaType != mediaTypeSimpleSigning {
			continue
		}
		if i == maxSignatures {
			return append(problems, fmt.Errorf("signatures under a tag: there are more than %d", maxSignatures))
		}
		s := Signature{
			Digest:      subject.Digest.String(),
			Certificate: []byte(layer.Annotations[annotationCertificate]),
			Chain:       []byte(layer.Annotations[annotationChain]),
			LogEntry:    []byte(layer.Annotations[annotationLogEntry]),
		}
		if s.Signature, err = base64.StdEncoding.DecodeString(layer.Annotations[annotationSignature]); err != nil {
			problems = append(problems, fmt.Errorf("signature %s: it is not base64", layer.Digest))
			continue
		}
		if s.Payload, err = r.read(ctx, layer, maxPayloadBytes); err != nil {
			problems = append(problems, fmt.Errorf("signature %s: %w", layer.Digest, err))
			continue
		}
		f(&s)
	}
	return problems
}

// bundles calls f with the bundles that refer to a manifest, one after the other, and returns the
// errors of the others.
func (r *reader) bundles(ctx context.Context, subject ocispec.Descriptor, f func(*Signature)) (problems []error) {
	referrers, err := r.referrers(ctx, subject)
	if err != nil {
		return []error{fmt.Errorf("referring signatures: %w", err)}
	}
	for _, desc := range referrers {
		// Some registries send the type of the configuration, and the manifest decides.
		if !slices.Contains([]string{"", mediaTypeBundle, ocispec.MediaTypeEmptyJSON}, desc.ArtifactType) {
			continue
		}
		bundle, err := r.bundle(ctx, desc, subject)
		switch {
		case err != nil:
			problems = append(problems, fmt.Errorf("signature %.80s: %w", desc.Digest, err))
		case bundle != nil:
			f(&Signature{Digest: subject.Digest.String(), Bundle: bundle})
		}
	}
	return problems
}

// bundle returns the bundle of a referrer, nil if it is something else.
func (r *reader) bundle(ctx context.Context, desc, subject ocispec.Descriptor) ([]byte, error) {
	data, err := r.read(ctx, desc, maxBundleManifestBytes)
	if err != nil {
		return nil, err
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return nil, err
	}
	if manifest.ArtifactType != mediaTypeBundle {
		return nil, nil
	}
	if manifest.Subject == nil || manifest.Subject.Digest != subject.Digest {
		return nil, errors.New("its subject is a different artifact")
	}
	if len(manifest.Layers) != 1 {
		return nil, fmt.Errorf("it has %d layers, want one bundle", len(manifest.Layers))
	}
	return r.read(ctx, manifest.Layers[0], maxBundleBytes)
}

// simpleSigning is the signed text of the signature under a tag.
type simpleSigning struct {
	Critical struct {
		Identity struct {
			DockerReference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]any `json:"optional"`
}

// bundle is the part of a bundle that is read, see
// https://github.com/sigstore/protobuf-specs/blob/main/protos/sigstore_bundle.proto.
type bundle struct {
	MediaType            string               `json:"mediaType"`
	VerificationMaterial verificationMaterial `json:"verificationMaterial"`
	Envelope             *envelope            `json:"dsseEnvelope,omitempty"`
	Message              *messageSignature    `json:"messageSignature,omitempty"`
}

type verificationMaterial struct {
	PublicKey *publicKeyHint `json:"publicKey,omitempty"`
}

type publicKeyHint struct {
	Hint string `json:"hint,omitempty"`
}

// envelope is a DSSE envelope.
type envelope struct {
	Payload     []byte              `json:"payload"`
	PayloadType string              `json:"payloadType"`
	Signatures  []envelopeSignature `json:"signatures"`
}

type envelopeSignature struct {
	Signature []byte `json:"sig"`
	KeyID     string `json:"keyid,omitempty"`
}

type messageSignature struct {
	Signature []byte `json:"signature"`
}

// pae returns the signed bytes of an envelope, see
// https://github.com/secure-systems-lab/dsse/blob/master/protocol.md.
func (e *envelope) pae() []byte {
	var b bytes.Buffer
	b.WriteString("DSSEv1 ")
	for i, part := range []string{e.PayloadType, string(e.Payload)} {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(len(part)) + " " + part)
	}
	return b.Bytes()
}

// statement is an in-toto statement.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     struct{}  `json:"predicate"`
}

type subject struct {
	Digest      map[string]string `json:"digest"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

// verify returns the annotations of a signature by a key, or the reason why it is no signature of
// the artifact. root is the manifest.
func (s *Signature) verify(k *publicKey, root []byte) (map[string]any, error) {
	if s.Bundle == nil {
		if err := k.verify(s.Payload, s.Signature); err != nil {
			return nil, err
		}
		return s.claims()
	}
	var b bundle
	if err := json.Unmarshal(s.Bundle, &b); err != nil {
		return nil, fmt.Errorf("read bundle: %w", err)
	}
	switch {
	case b.Envelope != nil && b.Message == nil:
		if len(b.Envelope.Signatures) != 1 {
			return nil, fmt.Errorf("bundle has %d signatures, want one", len(b.Envelope.Signatures))
		}
		if err := k.verify(b.Envelope.pae(), b.Envelope.Signatures[0].Signature); err != nil {
			return nil, err
		}
		return b.Envelope.claims(s.Digest)
	case b.Message != nil && b.Envelope == nil:
		// The message is the manifest itself.
		return nil, k.verify(root, b.Message.Signature)
	}
	return nil, errors.New("bundle has neither an envelope nor a message, or both")
}

// claims returns the annotations that were signed, if the text is about the artifact.
func (s *Signature) claims() (map[string]any, error) {
	var text simpleSigning
	if err := json.Unmarshal(s.Payload, &text); err != nil {
		return nil, fmt.Errorf("read the signed content: %w", err)
	}
	if t := text.Critical.Type; t != simpleSigningType && t != predicateSign {
		return nil, fmt.Errorf("the signed content is a %.80q, want %q", t, simpleSigningType)
	}
	if got := text.Critical.Image.Digest; got != s.Digest {
		return nil, fmt.Errorf("the signed content is %.80s", got)
	}
	return text.Optional, nil
}

// claims returns the annotations that were signed, if the statement is a signature of the
// artifact. Statements about an artifact are no signatures: one may say that it is broken.
func (e *envelope) claims(digest string) (map[string]any, error) {
	if e.PayloadType != payloadTypeInToto {
		return nil, fmt.Errorf("the signed content is a %.80q, want %s", e.PayloadType, payloadTypeInToto)
	}
	var st statement
	if err := json.Unmarshal(e.Payload, &st); err != nil {
		return nil, fmt.Errorf("read the signed content: %w", err)
	}
	if st.PredicateType != predicateSign {
		return nil, fmt.Errorf("the signed content is a statement %.80q, want %s", st.PredicateType, predicateSign)
	}
	for _, s := range st.Subject {
		if "sha256:"+s.Digest["sha256"] == digest {
			return s.Annotations, nil
		}
	}
	return nil, errors.New("the signed content is a different artifact")
}
