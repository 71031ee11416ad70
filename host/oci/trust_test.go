package oci_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/testkit/refusals"
)

// publicPEM returns the public key of a private one.
func publicPEM(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newKey() crypto.Signer { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

// pushed returns a client without rules and the reference of an artifact that it pushed to a
// new layout.
func pushed(t *testing.T, annotations map[string]string) (*oci.Client, oci.Reference) {
	t.Helper()
	client, ref := newClient(t, oci.Config{}), oci.Reference{Layout: filepath.Join(t.TempDir(), "plugins"), Tag: "1"}
	if _, err := client.Push(t.Context(), ref, module, oci.PushOptions{Annotations: annotations}); err != nil {
		t.Fatal(err)
	}
	return client, ref
}

// trusting returns a client with one rule for all repositories.
func trusting(t *testing.T, rule oci.Trust) *oci.Client {
	t.Helper()
	rule.Repositories = []string{"*"}
	return newClient(t, oci.Config{Trust: []oci.Trust{rule}})
}

func TestSignaturesByEveryKindOfKey(t *testing.T) {
	for name, key := range map[string]crypto.Signer{
		"ECDSA P-256": newKey(),
		"ECDSA P-384": must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)),
		"ECDSA P-521": must(ecdsa.GenerateKey(elliptic.P521(), rand.Reader)),
		"Ed25519":     must(func() (crypto.Signer, error) { _, key, err := ed25519.GenerateKey(rand.Reader); return key, err }()),
		"RSA":         must(rsa.GenerateKey(rand.Reader, 2048)),
	} {
		for way, opts := range map[string]oci.SignOptions{
			"under the tag": {NoBundle: true}, "as a bundle": {NoTag: true}, "both ways": {},
		} {
			t.Run(name+" "+way, func(t *testing.T) {
				client, ref := pushed(t, nil)
				digest, err := client.Sign(t.Context(), ref, key, opts)
				if err != nil {
					t.Fatal(err)
				}
				a, err := trusting(t, oci.Trust{AnyOf: []oci.Signer{{Name: "us", Key: publicPEM(t, key)}}}).Fetch(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(&oci.Artifact{Module: module, Digest: digest, SignedBy: []string{"us"}}, a); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			})
		}
	}
}

func TestRulesWantTheirSigners(t *testing.T) {
	table := refusals.New(t, "Signers")
	a, b, c := newKey(), newKey(), newKey()
	signers := func(keys ...crypto.Signer) (list []oci.Signer) {
		for _, key := range keys {
			name := map[crypto.Signer]string{a: "a", b: "b", c: "c"}[key]
			list = append(list, oci.Signer{Name: name, Key: publicPEM(t, key)})
		}
		return list
	}
	for _, tt := range []struct {
		name   string
		signed []crypto.Signer
		rule   oci.Trust
		want   []string
		err    string
	}{
		{"one of two", []crypto.Signer{b}, oci.Trust{AnyOf: signers(a, b)}, []string{"b"}, ""},
		{"two of three", []crypto.Signer{c, a}, oci.Trust{AnyOf: signers(a, b, c), Minimum: 2}, []string{"a", "c"}, ""},
		{"all", []crypto.Signer{a, b}, oci.Trust{AllOf: signers(a, b)}, []string{"a", "b"}, ""},
		{"all and one of two", []crypto.Signer{a, c}, oci.Trust{AllOf: signers(a), AnyOf: signers(b, c)}, []string{"a", "c"}, ""},
		{"no signature", nil, oci.Trust{AnyOf: signers(a)}, nil, "it has no signature"},
		{"the signature of another", []crypto.Signer{b}, oci.Trust{AnyOf: signers(a)}, nil, `none of 2 signatures is by "a": it is by another key`},
		{"one of two that are wanted", []crypto.Signer{a}, oci.Trust{AnyOf: signers(a, b), Minimum: 2}, nil, "1 of 2 signers have signed, want 2"},
		{"not all", []crypto.Signer{a}, oci.Trust{AllOf: signers(a, b)}, nil, `is by "b"`},
		{"all and none of two", []crypto.Signer{a}, oci.Trust{AllOf: signers(a), AnyOf: signers(b, c)}, nil, "0 of 2 signers have signed, want 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, ref := pushed(t, nil)
			for _, key := range tt.signed {
				if _, err := client.Sign(t.Context(), ref, key, oci.SignOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.err != "" {
				err := refused(t, trusting(t, tt.rule), ref)
				var refusal *oci.TrustError
				if !errors.As(err, &refusal) || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
				table.Add(tt.name, err)
				return
			}
			got, err := trusting(t, tt.rule).Fetch(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.SignedBy); diff != "" {
				t.Errorf("signers (-want +got)\n%s", diff)
			}
		})
	}
}

// TestSignaturesOfSomethingElse puts signatures by the right key beside an artifact that are
// none of it.
func TestSignaturesOfSomethingElse(t *testing.T) {
	table := refusals.New(t, "Signatures")
	key := newKey().(*ecdsa.PrivateKey)
	sign := func(message []byte) []byte {
		digest := must(hashed(message))
		return must(ecdsa.SignASN1(rand.Reader, key, digest))
	}
	other := digestOf([]byte("other"))
	simple := func(digest, kind string) []byte {
		return must(json.Marshal(object{"critical": object{"identity": object{"docker-reference": ""}, "image": object{"docker-manifest-digest": digest}, "type": kind}}))
	}
	tagged := func(l *layout, digest string, payload, signature []byte) {
		layer := with(l.blob("application/vnd.dev.cosign.simplesigning.v1+json", payload), object{"annotations": object{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)}})
		l.tag(l.manifest("application/vnd.oci.image.config.v1+json", layer), strings.Replace(digest, ":", "-", 1)+".sig")
	}
	const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	bundle := func(l *layout, subject, content object) {
		m := l.manifestOf("application/vnd.oci.empty.v1+json", l.json(bundleType, with(object{"mediaType": bundleType, "verificationMaterial": object{"publicKey": object{"hint": ""}}}, content)))
		m["artifactType"], m["subject"] = bundleType, subject
		l.tag(l.json(manifestType, m), fmt.Sprint("bundle", len(l.manifests)))
	}
	statement := func(predicateType, digest string) []byte {
		return must(json.Marshal(object{"_type": "https://in-toto.io/Statement/v1", "predicateType": predicateType, "predicate": object{}, "subject": []object{{"digest": object{"sha256": digest[len("sha256:"):]}}}}))
	}
	envelope := func(payloadType string, payload []byte) object {
		pae := fmt.Sprintf("DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
		return object{"dsseEnvelope": object{"payload": payload, "payloadType": payloadType, "signatures": []object{{"sig": sign([]byte(pae))}}}}
	}
	const (
		inToto   = "application/vnd.in-toto+json"
		isSigned = "https://sigstore.dev/cosign/sign/v1"
		simpleV  = "cosign container image signature"
	)
	for _, tt := range []struct {
		name string
		make func(l *layout, m object)
		want string // Empty: it is a signature.
	}{
		{"a signature under the tag", func(l *layout, m object) {
			text := simple(m["digest"].(string), simpleV)
			tagged(l, m["digest"].(string), text, sign(text))
		}, ""},
		{"a bundle", func(l *layout, m object) { bundle(l, m, envelope(inToto, statement(isSigned, m["digest"].(string)))) }, ""},
		{"a bundle with the manifest as its message", func(l *layout, m object) {
			data := must(os.ReadFile(filepath.Join(l.dir, "blobs/sha256", m["digest"].(string)[7:])))
			bundle(l, m, object{"messageSignature": object{"messageDigest": object{"algorithm": "SHA2_256"}, "signature": sign(data)}})
		}, ""},
		{"a signature of another artifact under the tag", func(l *layout, m object) {
			text := simple(other, simpleV)
			tagged(l, m["digest"].(string), text, sign(text))
		}, "the signed content is " + other},
		{"a text that is no signature", func(l *layout, m object) {
			text := simple(m["digest"].(string), "atomic container signature")
			tagged(l, m["digest"].(string), text, sign(text))
		}, `the signed content is a "atomic container signature"`},
		{"a text that was changed", func(l *layout, m object) {
			tagged(l, m["digest"].(string), simple(m["digest"].(string), simpleV), sign(simple(other, simpleV)))
		}, "it is by another key, or of something else"},
		{"a signature that is no base64", func(l *layout, m object) {
			layer := with(l.blob("application/vnd.dev.cosign.simplesigning.v1+json", []byte("{}")), object{"annotations": object{"dev.cosignproject.cosign/signature": "%"}})
			l.tag(l.manifest("application/vnd.oci.image.config.v1+json", layer), strings.Replace(m["digest"].(string), ":", "-", 1)+".sig")
		}, "it is not base64"},
		{"a bundle of another artifact", func(l *layout, m object) { bundle(l, m, envelope(inToto, statement(isSigned, other))) }, "the signed content is a different artifact"},
		{"a statement that is no signature", func(l *layout, m object) {
			bundle(l, m, envelope(inToto, statement("https://slsa.dev/provenance/v1", m["digest"].(string))))
		}, `the signed content is a statement "https://slsa.dev/provenance/v1"`},
		{"an envelope of something else", func(l *layout, m object) {
			bundle(l, m, envelope("text/plain", statement(isSigned, m["digest"].(string))))
		}, `the signed content is a "text/plain"`},
		{"a message that is another manifest", func(l *layout, m object) {
			bundle(l, m, object{"messageSignature": object{"signature": sign([]byte("other"))}})
		}, "it is by another key, or of something else"},
		{"a bundle with both", func(l *layout, m object) {
			bundle(l, m, with(envelope(inToto, statement(isSigned, m["digest"].(string))), object{"messageSignature": object{"signature": []byte{1}}}))
		}, "bundle has neither an envelope nor a message, or both"},
		{"a bundle without a signature", func(l *layout, m object) {
			bundle(l, m, object{"dsseEnvelope": object{"payloadType": inToto, "payload": statement(isSigned, m["digest"].(string)), "signatures": []object{}}})
		}, "bundle has 0 signatures"},
		{"a bundle that is no JSON object", func(l *layout, m object) {
			man := l.manifestOf("application/vnd.oci.empty.v1+json", l.blob(bundleType, []byte("[]")))
			man["artifactType"], man["subject"] = bundleType, m
			l.tag(l.json(manifestType, man), "bundle")
		}, "read bundle"},
		{"a bundle whose digest is wrong", func(l *layout, m object) {
			bundle(l, m, envelope(inToto, statement(isSigned, m["digest"].(string))))
			for _, entry := range must(os.ReadDir(filepath.Join(l.dir, "blobs/sha256"))) {
				name := filepath.Join("blobs/sha256", entry.Name())
				if data := must(os.ReadFile(filepath.Join(l.dir, name))); strings.Contains(string(data), "dsseEnvelope") {
					l.write(name, append(data[:len(data)-1], ' '))
				}
			}
		}, "content has the digest"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLayout(t)
			m := l.manifest("application/vnd.wasm.config.v0+json", l.blob(wasmType, module))
			ref := l.tag(m, "1")
			tt.make(l, m)
			client := trusting(t, oci.Trust{AnyOf: []oci.Signer{{Name: "us", Key: publicPEM(t, key)}}})
			if tt.want == "" {
				if a, err := client.Fetch(t.Context(), ref); err != nil || string(a.Module) != string(module) {
					t.Errorf("got %v, %v, want the module", a, err)
				}
				return
			}
			err := refused(t, client, ref)
			var refusal *oci.TrustError
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			table.Add(tt.name, err)
		})
	}
}

func hashed(message []byte) ([]byte, error) {
	h := crypto.SHA256.New()
	_, err := h.Write(message)
	return h.Sum(nil), err
}

// TestSignersAreCountedOnce has rules that want two of several names for fewer keys.
func TestSignersAreCountedOnce(t *testing.T) {
	a, b := newKey(), newKey()
	one, two := publicPEM(t, a), publicPEM(t, b)
	file := filepath.Join(t.TempDir(), "a.pub")
	if err := os.WriteFile(file, []byte("the same\n"+one), 0o600); err != nil {
		t.Fatal(err)
	}
	prod := map[string]string{"env": "prod"}
	for _, tt := range []struct {
		name string
		any  []oci.Signer
		want string
	}{
		{"one key under two names", []oci.Signer{{Name: "us", Key: one}, {Name: "them", KeyFile: file}}, "want at most the 1 different signers of anyOf"},
		{"one key with annotations and without", []oci.Signer{{Name: "us", Key: one}, {Name: "prod", Key: one, Annotations: prod}}, "want at most the 1 different signers"},
		{"one key under two names, and another key that has not signed", []oci.Signer{{Name: "us", Key: one}, {Name: "them", KeyFile: file}, {Name: "b", Key: publicPEM(t, newKey())}}, "1 of 3 signers have signed, want 2"},
		{"one key under two names, and another key", []oci.Signer{{Name: "us", Key: one}, {Name: "them", KeyFile: file}, {Name: "b", Key: two}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, ref := pushed(t, nil)
			for _, key := range []crypto.Signer{a, b} {
				if _, err := client.Sign(t.Context(), ref, key, oci.SignOptions{Annotations: prod}); err != nil {
					t.Fatal(err)
				}
			}
			verifier, err := oci.New(oci.Config{Trust: []oci.Trust{{Repositories: []string{"*"}, AnyOf: tt.any, Minimum: 2}}})
			if err == nil {
				_, err = verifier.Fetch(t.Context(), ref)
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestAnnotationsMustHaveBeenSigned(t *testing.T) {
	key := newKey()
	client, ref := pushed(t, nil)
	if _, err := client.Sign(t.Context(), ref, key, oci.SignOptions{Annotations: map[string]string{"env": "prod"}}); err != nil {
		t.Fatal(err)
	}
	for want, ok := range map[string]bool{"prod": true, "test": false} {
		_, err := trusting(t, oci.Trust{AllOf: []oci.Signer{{Key: publicPEM(t, key), Annotations: map[string]string{"env": want}}}}).Fetch(t.Context(), ref)
		if (err == nil) != ok {
			t.Errorf("a rule that wants env=%s: %v", want, err)
		}
	}
}

func TestTheLongestPatternDecides(t *testing.T) {
	key := newKey()
	_, ref := pushed(t, nil)
	dir := filepath.Dir(ref.Layout)
	signed := []oci.Signer{{Key: publicPEM(t, key)}}
	for _, tt := range []struct {
		name  string
		trust []oci.Trust
		ok    bool
	}{
		{"no rule", nil, true}, // Fetch takes it; the Check of a source does not.
		{"all", []oci.Trust{{Repositories: []string{"*"}, AnyOf: signed}}, false},
		{"all below, and all", []oci.Trust{{Repositories: []string{"*"}, AnyOf: signed}, {Repositories: []string{"oci-layout:" + dir + "/*"}, Unsigned: true}}, true},
		{"the name, and all below", []oci.Trust{{Repositories: []string{ref.Name()}, AnyOf: signed}, {Repositories: []string{"oci-layout:" + dir + "/*"}, Unsigned: true}}, false},
		{"another name", []oci.Trust{{Repositories: []string{ref.Name() + "s"}, AnyOf: signed}}, true},
	} {
		_, err := newClient(t, oci.Config{Trust: tt.trust}).Fetch(t.Context(), ref)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// A rule is for a registry, however that is written in the rule and in the reference.
func TestRulesFollowNoSpelling(t *testing.T) {
	spellings := map[string][]string{
		"ghcr.io/acme/zone:1":           {"GHCR.IO/acme/zone:1", "ghcr.io:443/acme/zone:1", "ghcr.io./acme/zone:1", "oci://Ghcr.io.:0443/acme/zone:1"},
		"docker.io/acme/zone:1":         {"index.docker.io/acme/zone:1", "registry-1.docker.io/acme/zone:1", "registry.hub.docker.com/acme/zone:1", "DOCKER.IO/acme/zone:1"},
		"docker.io/library/zone:1":      {"docker.io/zone:1", "index.docker.io/zone:1"},
		"localhost:5000/acme/zone:1":    {"LOCALHOST:05000/acme/zone:1", "localhost.:5000/acme/zone:1"},
		"[::1]:5000/acme/zone:1":        {"[0::1]:5000/acme/zone:1"},
		"oci-layout:/srv/plugins/a.tar": {"oci-layout:/srv/../srv//plugins/a.tar"},
	}
	strict := func(repository string) []oci.Trust {
		return []oci.Trust{{Repositories: []string{repository}, Unsigned: true}}
	}
	for name, others := range spellings {
		ref := must(oci.ParseReference(name))
		for _, other := range others {
			otherName := strings.TrimSuffix(strings.TrimPrefix(other, "oci://"), ":1")
			for rule, reference := range map[string]string{ref.Name(): other, otherName: name} {
				source := newClient(t, oci.Config{Trust: strict(rule)}).Source(reference)
				if err := source.(interface{ Check(string) error }).Check(""); err != nil {
					t.Errorf("the rule for %s is none for %s: %v", rule, reference, err)
				}
			}
		}
	}
	if _, err := oci.New(oci.Config{Trust: append(strict("ghcr.io/acme/*"), strict("GHCR.IO:443/acme/*")...)}); err == nil {
		t.Error("two rules for one registry were taken")
	}
	// A Reference that was not parsed has other fields.
	for _, ref := range []oci.Reference{{Registry: "GHCR.IO", Repository: "acme/zone", Tag: "1"}, {Registry: "ghcr.io:443", Repository: "acme/zone", Tag: "1"}} {
		if _, err := newClient(t, oci.Config{}).Fetch(t.Context(), ref); err == nil || !strings.Contains(err.Error(), "is not in the form of ParseReference") {
			t.Errorf("%+v: %v, want a refusal", ref, err)
		}
	}
}

func TestSourceNeedsSomethingThatVouches(t *testing.T) {
	trust := []oci.Trust{{Repositories: []string{"ghcr.io/acme/*"}, Unsigned: true}}
	client := newClient(t, oci.Config{Trust: trust})
	for _, tt := range []struct {
		reference, sha256 string
		want              string
	}{
		{"ghcr.io/acme/zone:1", "", ""},
		{"ghcr.io/other/zone:1", "", "nothing vouches for what the tag leads to"},
		{"ghcr.io/other/zone:1", strings.Repeat("0", 64), ""},
		{"ghcr.io/other/zone@" + someDigest, "", ""},
		{"ghcr.io/Zone:", "", `repository is "Zone"`},
	} {
		err := client.Source(tt.reference).(interface{ Check(string) error }).Check(tt.sha256)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("Check of %s with sha256 %q: %v, want %q", tt.reference, tt.sha256, err, tt.want)
		}
	}
}

func TestDowngradesAreRefused(t *testing.T) {
	table := refusals.New(t, "Versions")
	key := newKey()
	cache := t.TempDir()
	client, ref := pushed(t, map[string]string{"org.opencontainers.image.version": "1.10.0"})
	rule := []oci.Trust{{Repositories: []string{"*"}, AnyOf: []oci.Signer{{Key: publicPEM(t, key)}}, RefuseDowngrades: true}}
	verifier := newClient(t, oci.Config{CacheDir: cache, Trust: rule})
	// publish moves the tag to a signed artifact of a version.
	publish := func(version string, module []byte) string {
		t.Helper()
		_, err := client.Push(t.Context(), ref, module, oci.PushOptions{Annotations: map[string]string{"org.opencontainers.image.version": version}})
		if err != nil {
			t.Fatal(err)
		}
		digest, err := client.Sign(t.Context(), ref, key, oci.SignOptions{NoBundle: true})
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	fetch := func(c *oci.Client, ref oci.Reference, want string) {
		t.Helper()
		_, err := c.Fetch(t.Context(), ref)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	refuses := func(c *oci.Client, artifact, want string) {
		t.Helper()
		err := refused(t, c, ref)
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", artifact, err, want)
		}
		table.Add(artifact, err)
	}
	other := append(module, "\x00\x01\x00"...)
	publish("1.10.0", module)
	fetch(verifier, ref, "")
	old := publish("1.9.0", module)
	refuses(verifier, "the replay of an older version", "its version is 1.9.0, but 1.10.0 was accepted before")
	publish("1.10.0", other)
	refuses(verifier, "another module of the same version", "its version 1.10.0 is that of sha256:")
	publish("latest", other)
	refuses(verifier, "a version that is none", `is "latest", want a version`)
	publish("1.9.0", module)
	refuses(newClient(t, oci.Config{CacheDir: cache, Trust: rule}), "the replay of an older version after a restart", "1.10.0 was accepted before")
	fetch(verifier, oci.Reference{Layout: ref.Layout, Digest: old}, "")
	publish("1.11.0-rc.1", other)
	fetch(verifier, ref, "")
	// What another process with the same cache accepts counts, too.
	publish("1.12.0", module)
	fetch(newClient(t, oci.Config{CacheDir: cache, Trust: rule}), ref, "")
	publish("1.11.0", other)
	refuses(verifier, "a version that is older than what another process accepted", "its version is 1.11.0, but 1.12.0 was accepted before")
}

func TestParsePrivateKey(t *testing.T) {
	ec := newKey().(*ecdsa.PrivateKey)
	encode := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	parameters := encode("EC PARAMETERS", []byte{6, 8})
	for name, tt := range map[string]struct {
		pem  []byte
		want string
	}{
		"PKCS #8":      {encode("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(ec))), ""},
		"SEC 1":        {append(parameters, encode("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(ec)))...), ""},
		"PKCS #1":      {encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(must(rsa.GenerateKey(rand.Reader, 2048)))), ""},
		"encrypted":    {encode("ENCRYPTED SIGSTORE PRIVATE KEY", []byte{1}), "want a PRIVATE KEY that is not encrypted"},
		"no PEM":       {[]byte("key"), "it is not PEM"},
		"other bytes":  {encode("PRIVATE KEY", []byte{1}), "read private key"},
		"a public key": {[]byte(publicPEM(t, ec)), "want a PRIVATE KEY"},
	} {
		_, err := oci.ParsePrivateKey(tt.pem)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
