package kubewarden

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// certificate is a certificate in a question. Policies send its bytes as numbers.
type certificate struct {
	Encoding string `json:"encoding"` // Pem or Der.
	Data     []byte `json:"data"`
}

// parse reads the certificate. It accepts only kinds and sizes of keys that are fast to check.
func (c *certificate) parse() (*x509.Certificate, error) {
	der := c.Data
	if len(der) > maxCertificateBytes {
		return nil, fmt.Errorf("it has %d bytes, more than %d", len(der), maxCertificateBytes)
	}
	switch c.Encoding {
	case "Der":
	case "Pem":
		block, _ := pem.Decode(c.Data)
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("it is no certificate in PEM")
		}
		der = block.Bytes
	default:
		return nil, fmt.Errorf("its encoding is %.20q, want Pem or Der", c.Encoding)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if n := len(cert.Policies) + len(cert.PolicyMappings); n > maxPolicies {
		return nil, fmt.Errorf("it has %d policies, more than %d", n, maxPolicies)
	}
	return cert, checkKey(cert.PublicKey)
}

// checkKey returns the reason that signatures of a key are not checked, nil if they are.
func checkKey(key any) error {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n > maxRSABits {
			return fmt.Errorf("its key has %d bits, more than %d", n, maxRSABits)
		}
		return nil
	case *ecdsa.PublicKey, ed25519.PublicKey: // The curves are P-224 to P-521.
		return nil
	}
	return errors.New("its key is none of RSA, ECDSA and Ed25519")
}

// Limits of a question, beyond which crypto/x509 takes long. A check of one signature with a key of
// two million bits takes half a minute.
const (
	// maxChain is the maximum length of a chain.
	maxChain = 16
	// maxCertificateBytes is the maximum length of a certificate, about twenty times an ordinary
	// one. maxTrustBytes is that of the whole question, which has up to four characters for a byte.
	maxCertificateBytes = 32 << 10
	maxTrustBytes       = 2 << 20
	maxRSABits          = 8192
	maxPolicies         = 100
	// maxSignatures is the maximum number of signatures that crypto/x509 checks.
	maxSignatures = 100
)

// Costs of certificates, in nanoseconds: parsing one, and checking a signature.
const (
	parseWork     = 100_000
	signatureWork = 500_000
)

// isCertificateTrusted answers crypto/v1/is_certificate_trusted as in callback_handler/crypto.rs of
// Kubewarden:
//
//   - A chain has the intermediates first and the root last, and is for code signing: every
//     certificate but the root must declare that usage. In addition to Kubewarden's rules, the root
//     must not have expired.
//   - Without a chain (null), only the validity periods count.
//   - The certificate must be valid at not_after, or else now; without a chain and not_after, the
//     end of the validity is ignored.
func isCertificateTrusted(b *budget, payload []byte) ([]byte, error) {
	var q struct {
		Cert     certificate   `json:"cert"`
		Chain    []certificate `json:"cert_chain"`
		NotAfter *string       `json:"not_after"`
	}
	if err := b.read(payload, maxTrustBytes, &q); err != nil {
		return nil, err
	}
	if len(q.Chain) > maxChain {
		return nil, fmt.Errorf("the chain has %d certificates, more than %d", len(q.Chain), maxChain)
	}
	b.work((1 + len(q.Chain)) * parseWork)
	cert, err := q.Cert.parse()
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	now := time.Now()
	at := now
	if q.NotAfter != nil && *q.NotAfter != "" {
		if at, err = time.Parse(time.RFC3339, *q.NotAfter); err != nil {
			return nil, fmt.Errorf("not_after: %w", err)
		}
		if cert.NotAfter.Before(at) {
			return trusted("the certificate is used after it has expired")
		}
	}
	switch {
	case cert.NotBefore.After(now):
		return trusted("the certificate is used before it is valid")
	case q.Chain == nil:
		return trusted("")
	case len(q.Chain) == 0:
		return trusted("the chain is empty")
	}
	var chain []*x509.Certificate
	for i := range q.Chain {
		link, err := q.Chain[i].parse()
		if err != nil {
			return nil, fmt.Errorf("cert_chain[%d]: %w", i, err)
		}
		chain = append(chain, link)
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(chain[len(chain)-1])
	for _, link := range chain[:len(chain)-1] {
		intermediates.AddCert(link)
	}
	// Each certificate may be tried as the issuer of each other.
	b.work(min(len(q.Chain)*len(q.Chain), maxSignatures) * signatureWork)
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	chains, err := cert.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	})
	if err != nil {
		return trusted("the certificate is not trusted: " + err.Error())
	}
	if !slices.ContainsFunc(chains, signsCode) {
		return trusted("the certificate is not trusted: it or its issuer is not for signing code")
	}
	return trusted("")
}

// signsCode reports whether all certificates but the root declare code signing as their usage.
// crypto/x509 accepts certificates without a declared usage as well.
func signsCode(chain []*x509.Certificate) bool {
	return !slices.ContainsFunc(chain[:max(1, len(chain)-1)], func(c *x509.Certificate) bool {
		return !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning)
	})
}

// trusted returns the answer; an empty reason means that the certificate is trusted.
func trusted(reason string) ([]byte, error) {
	return json.Marshal(struct {
		Trusted bool   `json:"trusted"`
		Reason  string `json:"reason"`
	}{reason == "", reason})
}
