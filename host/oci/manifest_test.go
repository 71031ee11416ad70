package oci_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
)

// issue returns a certificate for signing code in PEM. parent is nil for a root.
func issue(t *testing.T, key crypto.Signer, parent *x509.Certificate, parentKey crypto.Signer, change func(*x509.Certificate)) (*x509.Certificate, string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	}
	if parent == nil {
		template.Subject.CommonName, template.IsCA, template.BasicConstraintsValid, template.KeyUsage = "root", true, true, x509.KeyUsageCertSign
	}
	if change != nil {
		change(template)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der := must(x509.CreateCertificate(rand.Reader, template, parent, key.Public(), parentKey))
	return must(x509.ParseCertificate(der)), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestVerifyByCertificates(t *testing.T) {
	key, rootKey, otherKey := newKey(), newKey(), newKey()
	root, rootPEM := issue(t, rootKey, nil, nil, nil)
	_, otherPEM := issue(t, otherKey, nil, nil, nil)
	_, leaf := issue(t, key, root, rootKey, nil)
	_, expired := issue(t, key, root, rootKey, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	_, early := issue(t, key, root, rootKey, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })
	_, server := issue(t, key, root, rootKey, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	_, another := issue(t, otherKey, root, rootKey, nil)
	small := must(rsa.GenerateKey(rand.Reader, 1024))
	_, weak := issue(t, small, root, rootKey, nil)

	client, ref := pushed(t, nil)
	digest, err := client.Sign(t.Context(), ref, key, oci.SignOptions{Annotations: map[string]string{"env": "prod"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		signer oci.Signer
		want   string
	}{
		{"a certificate that is trusted", oci.Signer{Certificate: &oci.Certificate{PEM: leaf}}, ""},
		{"with a chain", oci.Signer{Certificate: &oci.Certificate{PEM: leaf, Chain: []string{rootPEM}}}, ""},
		{"with an annotation", oci.Signer{Certificate: &oci.Certificate{PEM: leaf}, Annotations: map[string]string{"env": "prod"}}, ""},
		{"with another annotation", oci.Signer{Certificate: &oci.Certificate{PEM: leaf}, Annotations: map[string]string{"env": "test"}}, `annotation "env" was signed as "prod"`},
		{"a chain of others", oci.Signer{Certificate: &oci.Certificate{PEM: leaf, Chain: []string{otherPEM}}}, "unknown authority"},
		{"expired", oci.Signer{Certificate: &oci.Certificate{PEM: expired, Chain: []string{rootPEM}}}, "the certificate is not valid at "},
		{"not valid yet", oci.Signer{Certificate: &oci.Certificate{PEM: early}}, "the certificate is not valid at "},
		{"not for signing code", oci.Signer{Certificate: &oci.Certificate{PEM: server}}, "the certificate is not for signing code"},
		{"of another key", oci.Signer{Certificate: &oci.Certificate{PEM: another}}, "it is by another key"},
		{"of a weak key", oci.Signer{Certificate: &oci.Certificate{PEM: weak}}, "key has 1024 bits, want 2048 to 8192"},
		{"a log that is not known", oci.Signer{Certificate: &oci.Certificate{PEM: leaf, Log: true}}, "this program uses no transparency log"},
		{"no certificate", oci.Signer{Certificate: &oci.Certificate{PEM: publicPEM(t, key)}}, "it is no certificate in PEM"},
		{"two certificates", oci.Signer{Certificate: &oci.Certificate{PEM: leaf + rootPEM}}, "it contains several certificates, want one"},
		{"a very long one", oci.Signer{Certificate: &oci.Certificate{PEM: leaf + strings.Repeat("\n", 32<<10)}}, "more than 32768"},
		{"a very long chain", oci.Signer{Certificate: &oci.Certificate{PEM: leaf, Chain: make([]string, 17)}}, "its chain has 17 certificates, more than 16"},
		{"a chain that is none", oci.Signer{Certificate: &oci.Certificate{PEM: leaf, Chain: []string{"x"}}}, "chain[0]: it is no certificate in PEM"},
		{"a key as well", oci.Signer{Key: publicPEM(t, key), Certificate: &oci.Certificate{PEM: leaf}}, "it sets 2 of key, keyFile, identity and certificate, want one"},
		{"an identity without Sigstore", oci.Signer{Identity: &oci.Identity{Issuer: "i", SourceOwner: "https://github.com/acme"}}, "this program has no trusted root of Sigstore"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, names, err := client.Verify(t.Context(), ref, oci.Trust{AllOf: []oci.Signer{tt.signer}})
			if tt.want == "" {
				if err != nil || got != digest || len(names) != 1 {
					t.Errorf("got %s, %v, %v, want %s", got, names, err, digest)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != "" {
				t.Errorf("got %s, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// Verify wants the signatures that it is told, whatever the client trusts.
func TestVerifyByOtherRules(t *testing.T) {
	ours, theirs := newKey(), newKey()
	client, ref := pushed(t, nil)
	digest, err := client.Sign(t.Context(), ref, ours, oci.SignOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lenient := trusting(t, oci.Trust{Unsigned: true})
	got, _, err := lenient.Verify(t.Context(), ref, oci.Trust{AllOf: []oci.Signer{{Key: publicPEM(t, ours)}}})
	if err != nil || got != digest {
		t.Errorf("got %s, %v", got, err)
	}
	_, _, err = lenient.Verify(t.Context(), ref, oci.Trust{AllOf: []oci.Signer{{Key: publicPEM(t, ours)}, {Key: publicPEM(t, theirs)}}})
	if _, ok := errors.AsType[*oci.TrustError](err); !ok {
		t.Errorf("error is %v", err)
	}
	for _, rule := range []oci.Trust{{}, {Unsigned: true}} {
		if _, _, err := lenient.Verify(t.Context(), ref, rule); err == nil {
			t.Errorf("%+v verified something", rule)
		}
	}
	n := new(big.Int).Lsh(big.NewInt(1), 2_000_000)
	der := must(x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: n.Add(n, big.NewInt(1)), E: 65537}))
	huge := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	if _, _, err := lenient.Verify(t.Context(), ref, oci.Trust{AllOf: []oci.Signer{{Key: huge}}}); err == nil || !strings.Contains(err.Error(), "want 2048 to 8192") {
		t.Errorf("error is %v", err)
	}
}

func TestManifestsAndConfigurations(t *testing.T) {
	l := newLayout(t)
	image := func(arch string) object {
		config := l.json("application/vnd.oci.image.config.v1+json", object{"os": "linux", "architecture": arch})
		return l.json("application/vnd.oci.image.manifest.v1+json", object{
			"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
			"layers": []object{l.blob("application/vnd.oci.image.layer.v1.tar", tarOf(t, file("a", []byte("a"))))},
		})
	}
	mine, other := image(runtime.GOARCH), image("pdp11")
	indexOf := func(manifests ...object) object {
		return l.json("application/vnd.oci.image.index.v1+json", object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests})
	}
	on := func(o object, arch string) object {
		return with(o, object{"platform": object{"os": "linux", "architecture": arch}})
	}
	index := indexOf(on(other, "pdp11"), on(mine, runtime.GOARCH))
	client := newClient(t, oci.Config{})

	for _, tt := range []struct {
		name   string
		ref    oci.Reference
		root   object
		image  object
		config string
		want   string
	}{
		{"an image", l.tag(mine, "mine"), mine, mine, `"architecture":"` + runtime.GOARCH, ""},
		{"an index", l.tag(index, "index"), index, mine, `"architecture":"` + runtime.GOARCH, ""},
		{"an index of one image", l.tag(indexOf(other), "one"), indexOf(other), other, `"architecture":"pdp11"`, ""},
		{"an index of other processors", l.tag(indexOf(on(other, "pdp11"), on(other, "vax")), "others"), nil, nil, "", "it has 2 manifests, none for linux/" + runtime.GOARCH},
		{"a nested index", l.tag(indexOf(on(index, runtime.GOARCH)), "nested"), nil, nil, "", "it leads to another index"},
		{"a configuration that is no JSON", l.tag(l.json("application/vnd.oci.image.manifest.v1+json", object{
			"schemaVersion": 2, "config": l.blob("application/vnd.oci.image.config.v1+json", []byte("{")), "layers": []object{},
		}), "broken"), nil, nil, "", "are not JSON"},
		{"a configuration that is huge", l.tag(l.json("application/vnd.oci.image.manifest.v1+json", object{
			"schemaVersion": 2, "config": object{"mediaType": "x", "digest": "sha256:" + strings.Repeat("0", 64), "size": 1 << 40}, "layers": []object{},
		}), "huge"), nil, nil, "", "want at most 4194304"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := client.Image(t.Context(), tt.ref)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %+v, %v, want %q", got, err, tt.want)
				}
				return
			}
			if err != nil || got.Digest != tt.image["digest"] || digestOf(got.Manifest) != got.Digest || !strings.Contains(string(got.Config), tt.config) {
				t.Errorf("got %+v, %v", got, err)
			}
			digest, err := client.Resolve(t.Context(), tt.ref)
			if err != nil || digest != tt.root["digest"] {
				t.Errorf("digest is %s, %v, want %s", digest, err, tt.root["digest"])
			}
			manifest, again, err := client.Manifest(t.Context(), tt.ref)
			if err != nil || again != digest || digestOf(manifest) != digest {
				t.Errorf("manifest is %s, %s, %v", manifest, again, err)
			}
		})
	}
	if diff := cmp.Diff([]oci.SourceState{}, client.Sources()); diff != "" {
		t.Errorf("looks are no sources (-want +got)\n%s", diff)
	}
}
