package kubewarden

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// signed is a certificate with its key.
type signed struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// sign makes a certificate for signing code, which change may make another.
func sign(t *testing.T, name string, issuer *signed, change func(*x509.Certificate)) *signed {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, KeyUsage: x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signed{cert, key}
}

// sent is a certificate as policies send it.
func (s *signed) sent(encoding string) map[string]any {
	data := s.cert.Raw
	if encoding == "Pem" {
		data = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw})
	}
	numbers := make([]int, len(data))
	for i, b := range data {
		numbers[i] = int(b)
	}
	return map[string]any{"encoding": encoding, "data": numbers}
}

func TestIsCertificateTrusted(t *testing.T) {
	root := sign(t, "root", nil, nil)
	middle := sign(t, "middle", root, nil)
	leaf := sign(t, "leaf", middle, func(c *x509.Certificate) { c.IsCA = false })
	forServers := sign(t, "server", middle, func(c *x509.Certificate) {
		c.IsCA, c.ExtKeyUsage = false, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	anything := sign(t, "anything", middle, func(c *x509.Certificate) { c.IsCA, c.ExtKeyUsage = false, nil })
	expired := sign(t, "expired", middle, func(c *x509.Certificate) { c.IsCA, c.NotAfter = false, time.Now().Add(-time.Minute) })
	tomorrow := sign(t, "tomorrow", middle, func(c *x509.Certificate) { c.IsCA, c.NotBefore = false, time.Now().Add(time.Minute) })
	plain := sign(t, "plain", root, func(c *x509.Certificate) { c.ExtKeyUsage = nil })
	ofPlain := sign(t, "of plain", plain, func(c *x509.Certificate) { c.IsCA = false })
	stranger := sign(t, "stranger", nil, nil)
	now, later := time.Now().Format(time.RFC3339), time.Now().Add(2*time.Hour).Format(time.RFC3339)
	chain := []any{middle.sent("Pem"), root.sent("Der")}

	const ok = ""
	tests := []struct {
		name     string
		cert     any
		chain    any
		notAfter any
		want     string // Of the reason, or of the error.
	}{
		{"a chain", leaf.sent("Pem"), chain, nil, ok},
		{"a chain, at a time", leaf.sent("Der"), chain, now, ok},
		{"a chain, no time in Go's way", leaf.sent("Der"), chain, "", ok},
		{"no chain", leaf.sent("Pem"), nil, nil, ok},
		{"an empty chain", leaf.sent("Pem"), []any{}, nil, "the chain is empty"},
		{"another root", leaf.sent("Pem"), []any{middle.sent("Pem"), stranger.sent("Pem")}, nil, "signed by unknown authority"},
		{"a link is missing", leaf.sent("Pem"), []any{root.sent("Pem")}, nil, "signed by unknown authority"},
		{"for another use", forServers.sent("Pem"), chain, nil, "incompatible key usage"},
		{"for no use in particular", anything.sent("Pem"), chain, nil, "not for signing code"},
		{"an issuer for no use in particular", ofPlain.sent("Pem"), []any{plain.sent("Pem"), root.sent("Pem")}, nil, "not for signing code"},
		{"expired, with a chain", expired.sent("Pem"), chain, nil, "expired"},
		{"expired, with a time", expired.sent("Pem"), nil, now, "after it has expired"},
		{"expired, and nobody asks", expired.sent("Pem"), nil, nil, ok},
		{"will have expired", leaf.sent("Pem"), nil, later, "after it has expired"},
		{"not yet valid", tomorrow.sent("Pem"), nil, nil, "before it is valid"},
		{"no time", leaf.sent("Pem"), nil, "soon", "not_after: parsing time"},
		{"no certificate", map[string]any{"encoding": "Pem", "data": []int{1}}, nil, nil, "no certificate in PEM"},
		{"no certificate in DER", map[string]any{"encoding": "Der", "data": []int{1}}, nil, nil, "x509: malformed certificate"},
		{"no encoding", map[string]any{"data": []int{1}}, nil, nil, `its encoding is ""`},
		{"a chain of none", leaf.sent("Pem"), []any{map[string]any{"encoding": "Der", "data": []int{}}}, nil, "cert_chain[0]: x509"},
		{"no bytes", map[string]any{"encoding": "Der", "data": []int{256}}, nil, nil, "cannot unmarshal number 256"},
		{"a chain without end", leaf.sent("Pem"), make([]any, 17), nil, "the chain has 17 certificates, more than 16"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			payload, err := json.Marshal(map[string]any{"cert": test.cert, "cert_chain": test.chain, "not_after": test.notAfter})
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Trusted bool
				Reason  string
			}
			answer, err := isCertificateTrusted(unlimited(t), payload)
			if err != nil {
				got.Reason = err.Error()
			} else if err := json.Unmarshal(answer, &got); err != nil {
				t.Fatal(err)
			}
			if got.Trusted != (test.want == ok) || got.Trusted != (got.Reason == "") || !strings.Contains(got.Reason, test.want) {
				t.Errorf("trusted is %t: %s\nwant %s", got.Trusted, got.Reason, test.want)
			}
		})
	}
}

func FuzzAnswersToHostileQuestions(f *testing.F) {
	f.Add("crypto", "v1/is_certificate_trusted", []byte(`{"cert":{"encoding":"Der","data":[48]},"cert_chain":[]}`))
	f.Add("kubernetes", "can_i", []byte(`{"subject_access_review":{"resource_attributes":{}}}`))
	f.Add("kubernetes", "list_resources_all", []byte(`{"api_version":"/","kind":"","label_selector":"("}`))
	f.Add("oci", "v1/verify", []byte(`{"SigstorePubKeyVerify":{"image":"a","pub_keys":["k"],"annotations":{"a":"b"}}}`))
	f.Add("oci", "v2/verify", []byte(`{"type":"SigstoreKeylessPrefixVerify","image":"a@sha256:0","keyless_prefix":[{"issuer":"i","url_prefix":"https://a"}]}`))
	f.Add("oci", "v2/verify", []byte(`{"type":"SigstoreCertificateVerify","image":"a","certificate":[1],"certificate_chain":[[256]]}`))
	f.Add("oci", "v1/oci_manifest_config", []byte(`"a:b"`))
	f.Add("net", "v1/dns_lookup_host", []byte(`"a..b"`))
	f.Add("tracing", "log", []byte(`{"level":1,"message":null}`))
	f.Fuzz(func(t *testing.T, namespace, operation string, payload []byte) {
		c := granting(objects{1, `{"kind":"Secret"}`})
		answer, err := c.call(unlimited(t), "kubewarden", namespace, operation, payload)
		if err == nil && namespace != "tracing" && !json.Valid(answer) {
			t.Errorf("answer is %q", answer)
		}
	})
}
