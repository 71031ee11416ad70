package sigstore

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"
	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/kubewasm/kubewasm/host/oci"
)

var update = flag.Bool("update", false, "write the fixture that cosign signs: make cosign")

// TestSignatureByCosign verifies what cosign 3 has signed with env=prod by an identity: the
// files of testdata, which "make cosign" rebuilds.
func TestSignatureByCosign(t *testing.T) {
	if *update {
		sign(t)
	}
	for _, tt := range []struct {
		name    string
		subject string
		root    string
		want    string
	}{
		{"the identity", subject, "testdata/trusted-root.json", ""},
		{"another identity", subject + "2", "testdata/trusted-root.json", "no matching CertificateIdentity"},
		{"the root of others", subject, otherRoot(t), "verify by identity"},
	} {
		keyless, err := New(tt.root)
		if err != nil {
			t.Fatal(err)
		}
		client, err := oci.New(oci.Config{Keyless: keyless, Trust: []oci.Trust{{
			Repositories: []string{"*"}, AllOf: []oci.Signer{{
				Identity: &oci.Identity{Issuer: issuer, Subject: tt.subject}, Annotations: map[string]string{"env": "prod"},
			}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Fetch(t.Context(), oci.Reference{Layout: "testdata/layout.tar", Tag: "1"})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// authority is a private Sigstore without logs: what cosign asks for a certificate and for
// the time of a signature.
type authority struct {
	t           *testing.T
	root, tsa   *x509.Certificate
	key, tsaKey *ecdsa.PrivateKey
}

// The roots and the authority of time are valid for as long as the fixture is used. The time
// of a signature is all that a certificate needs to be valid at.
var (
	validFrom  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	validUntil = validFrom.AddDate(100, 0, 0)
)

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, key: a256(t), tsaKey: a256(t)}
	a.root = a.certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: "root"}, NotBefore: validFrom, NotAfter: validUntil,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, &a.key.PublicKey)
	usage, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}}) // Timestamps.
	if err != nil {
		t.Fatal(err)
	}
	a.tsa = a.certify(&x509.Certificate{
		Subject: pkix.Name{CommonName: "tsa"}, NotBefore: validFrom, NotAfter: validUntil, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}, &a.tsaKey.PublicKey)
	return a
}

func a256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// certify returns a certificate by the root, or the root itself.
func (a *authority) certify(template *x509.Certificate, public crypto.PublicKey) *x509.Certificate {
	parent := a.root
	if parent == nil {
		parent = template
	}
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// trustedRoot is the file that verifiers have.
func (a *authority) trustedRoot() []byte {
	type object = map[string]any
	chain := func(certs ...*x509.Certificate) object {
		var list []object
		for _, c := range certs {
			list = append(list, object{"rawBytes": c.Raw})
		}
		return object{"certificates": list}
	}
	validFor := object{"start": validFrom}
	data, err := json.MarshalIndent(object{
		"mediaType":              "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		"certificateAuthorities": []object{{"uri": "https://fulcio.example.com", "certChain": chain(a.root), "validFor": validFor}},
		"timestampAuthorities":   []object{{"uri": "https://tsa.example.com", "certChain": chain(a.tsa, a.root), "validFor": validFor}},
	}, "", "  ")
	if err != nil {
		a.t.Fatal(err)
	}
	return append(data, '\n')
}

func otherRoot(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "root.json")
	if err := os.WriteFile(file, newAuthority(t).trustedRoot(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// ServeHTTP answers requests for certificates, as Fulcio does, and for timestamps, by RFC 3161.
// It believes whom it asks.
func (a *authority) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.URL.Path == "/api/v2/signingCert" {
		err = a.serveCertificate(w, body)
	} else if err == nil {
		err = a.serveTimestamp(w, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (a *authority) serveCertificate(w io.Writer, body []byte) error {
	var request struct {
		PublicKeyRequest struct {
			PublicKey struct{ Content string }
		}
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return err
	}
	block, _ := pem.Decode([]byte(request.PublicKeyRequest.PublicKey.Content))
	if block == nil {
		return fmt.Errorf("%s has no key", body)
	}
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return err
	}
	name, err := url.Parse(subject)
	if err != nil {
		return err
	}
	value, err := asn1.MarshalWithParams(issuer, "utf8")
	if err != nil {
		return err
	}
	now := time.Now()
	leaf := a.certify(&x509.Certificate{
		URIs: []*url.URL{name}, NotBefore: now.Add(-time.Minute), NotAfter: now.Add(10 * time.Minute),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
		// The issuer of the identity, see https://github.com/sigstore/fulcio/blob/main/docs/oid-info.md.
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}, Value: value}},
	}, public)
	var chain []string
	for _, c := range []*x509.Certificate{leaf, a.root} {
		chain = append(chain, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})))
	}
	return json.NewEncoder(w).Encode(map[string]any{"signedCertificateEmbeddedSct": map[string]any{"chain": map[string]any{"certificates": chain}}})
}

func (a *authority) serveTimestamp(w http.ResponseWriter, body []byte) error {
	request, err := timestamp.ParseRequest(body)
	if err != nil {
		return err
	}
	stamp := timestamp.Timestamp{
		HashAlgorithm: request.HashAlgorithm, HashedMessage: request.HashedMessage, Nonce: request.Nonce, Time: time.Now(),
		Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}, AddTSACertificate: request.Certificates,
	}
	answer, err := stamp.CreateResponseWithOpts(a.tsa, a.tsaKey, crypto.SHA256)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/timestamp-reply")
	w.WriteHeader(http.StatusCreated)
	_, err = w.Write(answer)
	return err
}

// sign has cosign sign an artifact by an identity, and writes testdata. It needs a cosign of
// version 3 in PATH, or its path in the variable COSIGN.
func sign(t *testing.T) {
	t.Helper()
	program := os.Getenv("COSIGN")
	if program == "" {
		program = "cosign"
	}
	a := newAuthority(t)
	services := httptest.NewServer(a)
	defer services.Close()
	repositories := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)))
	defer repositories.Close()

	host := strings.TrimPrefix(repositories.URL, "http://")
	client, err := oci.New(oci.Config{Registries: []oci.Registry{{Host: host, PlainHTTP: true}}})
	if err != nil {
		t.Fatal(err)
	}
	ref := oci.Reference{Registry: host, Repository: "zone", Tag: "1"}
	// A policy that admits everything, so that a policy server can load it.
	policy, err := os.ReadFile("../../../admission/kubewarden/internal/policies/testdata/verdict/wapc.wasm")
	if err != nil {
		t.Fatal(err)
	}
	const room, verdict = 600, `{"accepted":true}`
	policy = bytes.Replace(policy, bytes.Repeat([]byte("@"), room), []byte(verdict+strings.Repeat(" ", room-len(verdict))), 1)
	digest, err := client.Push(t.Context(), ref, policy, oci.PushOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	service := fmt.Sprintf(`[{"url": %q, "majorApiVersion": 1, "validFor": {"start": "2026-01-01T00:00:00Z"}, "operator": "test"}]`, services.URL)
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"iss": %q, "sub": %q, "aud": "sigstore", "exp": %d}`, issuer, subject, time.Now().Add(time.Hour).Unix()))
	for name, data := range map[string]string{
		"token": "e30." + claims + ".e30", "root.json": string(a.trustedRoot()),
		"signing.json": `{"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json", "caUrls": ` + service + `, "tsaUrls": ` + service + `, "tsaConfig": {"selector": "ANY"}, "rekorTlogConfig": {}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, "sign", "-y", "-a", "env=prod", "--allow-http-registry", "--identity-token", "token",
		"--signing-config", "signing.json", "--trusted-root", "root.json", ref.Name()+"@"+digest)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	layout := t.TempDir()
	if _, err := client.Copy(t.Context(), ref, oci.Reference{Layout: layout, Tag: "1"}); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.AddFS(os.DirFS(layout)), w.Close()); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"layout.tar": archive.Bytes(), "trusted-root.json": a.trustedRoot()} {
		if err := os.WriteFile(filepath.Join("testdata", name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
