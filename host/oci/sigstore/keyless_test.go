package sigstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/testkit/refusals"
)

var module = []byte("\x00asm\x01\x00\x00\x00")

const (
	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	issuer     = "https://issuer.example.com"
	subject    = "https://github.com/acme/zone/.github/workflows/release.yml@refs/tags/v1"
)

// private is a private Sigstore without logs of certificates.
type private struct{ *ca.VirtualSigstore }

func (private) CTLogs() map[string]*root.TransparencyLog { return nil }

func newSigstore(t *testing.T) *ca.VirtualSigstore {
	t.Helper()
	s, err := ca.NewVirtualSigstore()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// entryOf returns the entry of an entity in the log, with what the constructor of entries
// leaves out.
func entryOf(t *testing.T, s *ca.VirtualSigstore, e *ca.TestEntity) *protorekor.TransparencyLogEntry {
	t.Helper()
	entries, err := e.TlogEntries()
	if err != nil || len(entries) != 1 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	entry := entries[0].TransparencyLogEntry()
	var kind struct{ Kind, APIVersion string }
	if err := json.Unmarshal(entry.CanonicalizedBody, &kind); err != nil {
		t.Fatal(err)
	}
	entry.KindVersion = &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion}
	promise, err := s.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(entry.CanonicalizedBody), IntegratedTime: entry.IntegratedTime,
		LogIndex: entry.LogIndex, LogID: hex.EncodeToString(entry.LogId.KeyId),
	})
	if err != nil {
		t.Fatal(err)
	}
	entry.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	return entry
}

// bundleOf returns the bundle of an attested entity.
func bundleOf(t *testing.T, s *ca.VirtualSigstore, e *ca.TestEntity) []byte {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	content, err := e.SignatureContent()
	fail(err)
	verification, err := e.VerificationContent()
	fail(err)
	timestamps, err := e.Timestamps()
	fail(err)
	raw := content.EnvelopeContent().RawEnvelope()
	payload, err := base64.StdEncoding.DecodeString(raw.Payload)
	fail(err)
	material := &protobundle.VerificationMaterial{
		Content:                   &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: verification.Certificate().Raw}},
		TimestampVerificationData: &protobundle.TimestampVerificationData{},
	}
	material.TlogEntries = append(material.TlogEntries, entryOf(t, s, e))
	for _, timestamp := range timestamps {
		material.TimestampVerificationData.Rfc3161Timestamps = append(material.TimestampVerificationData.Rfc3161Timestamps, &protocommon.RFC3161SignedTimestamp{SignedTimestamp: timestamp})
	}
	data, err := protojson.Marshal(&protobundle.Bundle{
		MediaType: bundleType, VerificationMaterial: material,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: payload, PayloadType: raw.PayloadType, Signatures: []*protodsse.Signature{{Sig: content.Signature()}},
		}},
	})
	fail(err)
	return data
}

func statement(predicateType, digest string) []byte {
	return fmt.Appendf(nil, `{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":%q},"annotations":{"env":"prod"}}],"predicateType":%q,"predicate":{}}`,
		strings.TrimPrefix(digest, "sha256:"), predicateType)
}

// push writes an artifact with bundles to a layout, and returns its reference and digest.
func push(t *testing.T, bundles ...[]byte) (oci.Reference, string) {
	t.Helper()
	client, err := oci.New(oci.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ref := oci.Reference{Layout: filepath.Join(t.TempDir(), "plugins"), Tag: "1"}
	opts := oci.PushOptions{}
	for _, b := range bundles {
		opts.Attached = append(opts.Attached, oci.Attachment{Type: bundleType, Data: b})
	}
	digest, err := client.Push(t.Context(), ref, module, opts)
	if err != nil {
		t.Fatal(err)
	}
	return ref, digest
}

func fetch(t *testing.T, trusted root.TrustedMaterial, ref oci.Reference, id oci.Identity) error {
	t.Helper()
	keyless, err := NewFromMaterial(trusted)
	if err != nil {
		t.Fatal(err)
	}
	client, err := oci.New(oci.Config{Keyless: keyless, Trust: []oci.Trust{{
		Repositories: []string{"*"}, AllOf: []oci.Signer{{Identity: &id, Annotations: map[string]string{"env": "prod"}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Fetch(t.Context(), ref)
	return err
}

func TestBundles(t *testing.T) {
	table := refusals.New(t, "Identities")
	ours, others := newSigstore(t), newSigstore(t)
	_, digest := push(t)
	other := "sha256:" + strings.Repeat("0", 64)
	now := time.Now().Add(5 * time.Minute)
	attest := func(s *ca.VirtualSigstore, subject, issuer string, statement []byte, at time.Time) []byte {
		t.Helper()
		e, err := s.AttestAtTime(subject, issuer, statement, at, true)
		if err != nil {
			t.Fatal(err)
		}
		return bundleOf(t, s, e)
	}
	good := attest(ours, subject, issuer, statement(predicateSign, digest), now)
	exact := oci.Identity{Issuer: issuer, Subject: subject}
	for _, tt := range []struct {
		name   string
		bundle []byte
		id     oci.Identity
		want   string
	}{
		{"the identity", good, exact, ""},
		{"an expression that matches all of it", good, oci.Identity{IssuerRegexp: `https://issuer\..*`, SubjectRegexp: `https://github\.com/acme/.*`}, ""},
		{"an expression that matches a part of it", good, oci.Identity{Issuer: issuer, SubjectRegexp: `https://github\.com/acme/zone`}, "verify by identity"},
		{"another subject", good, oci.Identity{Issuer: issuer, Subject: subject + "2"}, "verify by identity"},
		{"a source that the certificate does not name", good, oci.Identity{Issuer: issuer, SourceOwner: "https://github.com/acme"}, "SourceRepositoryOwnerURI"},
		{"a source beside the subject", good, oci.Identity{Issuer: issuer, Subject: subject, SourceRepository: "https://github.com/acme/zone"}, "SourceRepositoryURI"},
		{"another issuer", good, oci.Identity{Issuer: issuer + "/x", Subject: subject}, "verify by identity"},
		{"another artifact", attest(ours, subject, issuer, statement(predicateSign, other), now), exact, "verify by identity"},
		{"a statement that is no signature", attest(ours, subject, issuer, statement("https://slsa.dev/provenance/v1", digest), now), exact, "the signed content is a statement"},
		{"a Sigstore of others", attest(others, subject, issuer, statement(predicateSign, digest), now), exact, "verify by identity"},
		{"a certificate that had expired", attest(ours, subject, issuer, statement(predicateSign, digest), now.Add(time.Hour)), exact, "verify by identity"},
		{"an entry of the log that was changed", []byte(strings.Replace(string(good), `"integratedTime":"1`, `"integratedTime":"2`, 1)), exact, "verify by identity"},
		{"no entry of the log", without(t, good, "tlogEntries"), exact, "verify by identity"},
		{"no JSON", []byte("{"), exact, "read bundle"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ref, pushed := push(t, tt.bundle)
			if pushed != digest {
				t.Fatalf("the digest is %s, want %s", pushed, digest)
			}
			err := fetch(t, private{ours}, ref, tt.id)
			var refused *oci.TrustError
			if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if tt.want != "" {
				table.Add(tt.name, err)
			}
		})
	}
	// A Sigstore that logs certificates wants them in its log.
	ref, _ := push(t, good)
	if err := fetch(t, ours, ref, exact); err == nil {
		t.Error("a certificate that is in no log was taken")
	}
}

// without removes a field of the material of a bundle.
func without(t *testing.T, data []byte, field string) []byte {
	t.Helper()
	var b map[string]any
	if err := json.Unmarshal(data, &b); err != nil {
		t.Fatal(err)
	}
	delete(b["verificationMaterial"].(map[string]any), field)
	data, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestSignaturesUnderATag verifies the form that cosign 2 writes.
func TestSignaturesUnderATag(t *testing.T) {
	ours := newSigstore(t)
	digest := "sha256:" + hex.EncodeToString(sha256.New().Sum(nil))
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":""},"image":{"docker-manifest-digest":%q},"type":"cosign container image signature"},"optional":null}`, digest)
	e, err := ours.Sign(subject, issuer, payload)
	if err != nil {
		t.Fatal(err)
	}
	content, _ := e.SignatureContent()
	verification, _ := e.VerificationContent()
	annotation := func(entry *protorekor.TransparencyLogEntry) []byte {
		data, err := json.Marshal(map[string]any{
			"SignedEntryTimestamp": entry.InclusionPromise.SignedEntryTimestamp,
			"Payload": map[string]any{
				"body": base64.StdEncoding.EncodeToString(entry.CanonicalizedBody), "integratedTime": entry.IntegratedTime,
				"logIndex": entry.LogIndex, "logID": hex.EncodeToString(entry.LogId.KeyId),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	good := oci.Signature{
		Digest: digest, Payload: payload, Signature: content.Signature(),
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: verification.Certificate().Raw}),
		LogEntry:    annotation(entryOf(t, ours, e)),
	}
	keyless, err := NewFromMaterial(private{ours})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(s *oci.Signature)
		ok     bool
	}{
		{"as it is", func(*oci.Signature) {}, true},
		{"another text", func(s *oci.Signature) { s.Payload = append([]byte(" "), s.Payload...) }, false},
		{"another signature", func(s *oci.Signature) { s.Signature = append([]byte{0}, s.Signature...) }, false},
		{"no certificate", func(s *oci.Signature) { s.Certificate = nil }, false},
		{"a broken certificate", func(s *oci.Signature) {
			s.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}})
		}, false},
		{"no entry", func(s *oci.Signature) { s.LogEntry = nil }, false},
		{"a broken entry", func(s *oci.Signature) { s.LogEntry = []byte("{") }, false},
		{"an entry of another time", func(s *oci.Signature) {
			s.LogEntry = []byte(strings.Replace(string(s.LogEntry), `"integratedTime":1`, `"integratedTime":2`, 1))
		}, false},
		{"an entry of another signature", func(s *oci.Signature) {
			other, err := ours.Sign(subject, issuer, []byte("other"))
			if err != nil {
				t.Fatal(err)
			}
			s.LogEntry = annotation(entryOf(t, ours, other))
		}, false},
	} {
		s := good
		tt.change(&s)
		if _, err := keyless.Verify(t.Context(), &s, oci.Identity{Issuer: issuer, Subject: subject}); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
		// The log has taken the signature, whatever was signed.
		at, err := keyless.SignedAt(t.Context(), &s)
		if wanted := tt.ok; (err == nil) != wanted || wanted && time.Since(at).Abs() > time.Hour {
			t.Errorf("%s: signed at %s, %v", tt.name, at, err)
		}
	}
	others, err := NewFromMaterial(private{newSigstore(t)})
	if err != nil {
		t.Fatal(err)
	}
	if at, err := others.SignedAt(t.Context(), &good); err == nil {
		t.Errorf("a log of others has taken it at %s", at)
	}
}

func TestNewReportsABrokenRoot(t *testing.T) {
	if _, err := New(filepath.Join(t.TempDir(), "absent.json")); err == nil || !strings.HasPrefix(err.Error(), "read trusted root: ") {
		t.Errorf("got %v", err)
	}
}

// A workflow that many repositories use has its own subject, and the source of each.
func TestIdentitiesBySource(t *testing.T) {
	signed := certificate.Summary{
		SubjectAlternativeName: "https://github.com/tools/release/.github/workflows/release.yml@refs/tags/v1",
		Extensions: certificate.Extensions{
			Issuer: issuer, SourceRepositoryURI: "https://github.com/acme/zone", SourceRepositoryOwnerURI: "https://github.com/acme",
		},
	}
	for _, tt := range []struct {
		name string
		id   oci.Identity
		ok   bool
	}{
		{"the owner", oci.Identity{Issuer: issuer, SourceOwner: "https://github.com/acme"}, true},
		{"the repository", oci.Identity{Issuer: issuer, SourceRepository: "https://github.com/acme/zone"}, true},
		{"the owner of the workflow", oci.Identity{Issuer: issuer, SourceOwner: "https://github.com/tools"}, false},
		{"another repository", oci.Identity{Issuer: issuer, SourceRepository: "https://github.com/acme/zone2"}, false},
		{"an owner whose name goes on", oci.Identity{Issuer: issuer, SourceOwner: "https://github.com/acm"}, false},
		{"the repository and another subject", oci.Identity{Issuer: issuer, Subject: "x", SourceRepository: "https://github.com/acme/zone"}, false},
		{"another issuer", oci.Identity{Issuer: "https://example.com", SourceOwner: "https://github.com/acme"}, false},
	} {
		identity, err := identityOf(tt.id)
		if err != nil {
			t.Fatal(err)
		}
		if err := identity.Verify(signed); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
