package sigstore

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"github.com/kubewasm/kubewasm/host/oci"
)

// The files of testdata/workflow, which the tests of programs use as well: a policy that denies
// everything, under the tag 1 with the signature of a workflow of GitHub and under the tag unsigned
// without, and the trusted roots of the signer and of others.
const (
	workflow        = "testdata/workflow/"
	workflowIssuer  = "https://token.actions.githubusercontent.com"
	workflowSource  = "https://github.com/acme/policies"
	workflowSubject = workflowSource + "/.github/workflows/release.yml@refs/tags/v1"
)

// denies is a policy that denies everything.
const denies = "\x00asm\x01\x00\x00\x00" +
	"\x01\x0a\x02\x60\x02\x7f\x7f\x00\x60\x00\x01\x7e" +
	"\x02\x1a\x01\x08kubewasm\x0dstatus_reason\x00\x00" +
	"\x03\x03\x02\x01\x01" +
	"\x05\x03\x01\x00\x01" +
	"\x07\x27\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x01\x08validate\x00\x02" +
	"\x0a\x15\x02\x08\x00\x42\x80\x80\x80\x80\x10\x0b\x0a\x00\x41\x00\x41\x04\x10\x00\x42\x02\x0b" +
	"\x0b\x0a\x01\x00\x41\x00\x0b\x04deny"

// TestFollow holds that identities are verified by the root that the file has now. With -update it
// writes testdata/workflow.
func TestFollow(t *testing.T) {
	if *update {
		writeWorkflow(t)
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(workflow + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	ours, theirs := read("trusted-root.json"), read("other-root.json")
	file := filepath.Join(t.TempDir(), "root.json")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(ours)
	source := oci.Signer{Name: "ci", Identity: &oci.Identity{Issuer: workflowIssuer, SourceRepository: workflowSource}}
	cfg := oci.Config{Trust: []oci.Trust{{Repositories: []string{"*"}, AnyOf: []oci.Signer{source}}}}
	if _, err := oci.New(cfg); err == nil || !strings.Contains(err.Error(), "set -sigstore-trust-config") {
		t.Errorf("an identity without a trusted root: %v", err)
	}
	if err := errors.Join(Follow(&cfg, ""), Follow(&cfg, file)); err != nil {
		t.Fatal(err)
	}
	client, err := oci.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	change := func(change func(id *oci.Identity)) oci.Signer {
		id := *source.Identity
		change(&id)
		return oci.Signer{Name: "ci", Identity: &id}
	}
	for _, tt := range []struct {
		name   string
		root   string
		tag    string
		signer oci.Signer
		want   string
		// fails is set if the error is not about the artifact.
		fails bool
	}{
		{name: "the identity", root: ours, tag: "1", signer: source},
		{name: "another issuer", root: ours, tag: "1", signer: change(func(id *oci.Identity) { id.Issuer += "/x" }), want: `is by "ci"`},
		{name: "another repository", root: ours, tag: "1", signer: change(func(id *oci.Identity) { id.SourceRepository += "x" }), want: `is by "ci"`},
		{name: "the owner", root: ours, tag: "1", signer: change(func(id *oci.Identity) { id.SourceRepository, id.SourceOwner = "", "https://github.com/acme" })},
		{name: "no signature", root: ours, tag: "unsigned", signer: source, want: "it has no signature"},
		{name: "the root of others", root: theirs, tag: "1", signer: source, want: `is by "ci"`},
		{name: "a ClientTrustConfig", root: `{"mediaType":"application/vnd.dev.sigstore.clienttrustconfig.v0.1+json","signingConfig":{},"trustedRoot":` + ours + `}`, tag: "1", signer: source},
		{name: "a root that cannot be read", root: `{"mediaType":`, tag: "1", signer: source, want: "root.json: unexpected end", fails: true},
		{name: "a ClientTrustConfig without a root", root: `{}`, tag: "1", signer: source, want: "trustedRoot is missing", fails: true},
		{name: "the root again", root: ours, tag: "1", signer: source},
	} {
		put(tt.root)
		ref := oci.Reference{Layout: workflow + "layout.tar", Tag: tt.tag}
		_, _, err := client.Verify(t.Context(), ref, oci.Trust{AnyOf: []oci.Signer{tt.signer}})
		errs := []error{err}
		if tt.signer.Identity == source.Identity {
			_, err := client.Fetch(t.Context(), ref) // By the rule of the configuration.
			errs = append(errs, err)
		}
		for i, err := range errs {
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, new(*oci.TrustError)) == tt.fails) {
				t.Errorf("%s, %d: %v, want %q", tt.name, i, err, tt.want)
			}
		}
	}
}

// writeWorkflow writes testdata/workflow.
func writeWorkflow(t *testing.T) {
	t.Helper()
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client, err := oci.New(oci.Config{})
	fail(err)
	layout := t.TempDir()
	push := func(tag, module string, attached ...oci.Attachment) (digest string) {
		t.Helper()
		digest, err := client.Push(t.Context(), oci.Reference{Layout: layout, Tag: tag}, []byte(module), oci.PushOptions{Attached: attached})
		fail(err)
		return digest
	}
	a := newAuthority(t)
	push("unsigned", denies+"\x00\x02\x01x")
	digest := push("1", denies)
	push("1", denies, oci.Attachment{Type: bundleType, Data: a.attest(statement(predicateSign, digest))})
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	fail(errors.Join(w.AddFS(os.DirFS(layout)), w.Close(), os.MkdirAll(workflow, 0o755)))
	for name, data := range map[string][]byte{"layout.tar": archive.Bytes(), "trusted-root.json": a.trustedRoot(), "other-root.json": newAuthority(t).trustedRoot()} {
		fail(os.WriteFile(workflow+name, data, 0o644))
	}
}

// attest returns a bundle with a statement that the workflow has signed, and the time of the
// authority.
func (a *authority) attest(statement []byte) []byte {
	fail := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Fatal(err)
		}
	}
	extension := func(n int, value string) pkix.Extension {
		text, err := asn1.MarshalWithParams(value, "utf8")
		fail(err)
		return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, n}, Value: text}
	}
	name, err := url.Parse(workflowSubject)
	fail(err)
	key, now := a256(a.t), time.Now()
	leaf := a.certify(&x509.Certificate{
		URIs: []*url.URL{name}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		// The issuer, the repository and its owner.
		ExtraExtensions: []pkix.Extension{extension(8, workflowIssuer), extension(12, workflowSource), extension(16, "https://github.com/acme")},
	}, &key.PublicKey)
	const payloadType = "application/vnd.in-toto+json"
	signed := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(statement), statement))
	signature, err := key.Sign(rand.Reader, signed[:], crypto.SHA256)
	fail(err)
	hash := sha256.Sum256(signature)
	stamp := timestamp.Timestamp{
		HashAlgorithm: crypto.SHA256, HashedMessage: hash[:], Time: now,
		Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, AddTSACertificate: true,
	}
	stamped, err := stamp.CreateResponseWithOpts(a.tsa, a.tsaKey, crypto.SHA256)
	fail(err)
	type object = map[string]any
	data, err := json.Marshal(object{
		"mediaType": bundleType,
		"verificationMaterial": object{
			"certificate":               object{"rawBytes": leaf.Raw},
			"timestampVerificationData": object{"rfc3161Timestamps": []object{{"signedTimestamp": stamped}}},
		},
		"dsseEnvelope": object{"payload": statement, "payloadType": payloadType, "signatures": []object{{"sig": signature}}},
	})
	fail(err)
	return data
}
