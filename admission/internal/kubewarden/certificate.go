package kubewarden

import (
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

func (c *certificate) parse() (*x509.Certificate, error) {
	der := c.Data
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
	return x509.ParseCertificate(der)
}

// maxChain is how long a chain may be: each link costs the host a signature to be
// checked, which is no fuel of the guest's.
const maxChain = 16

// isCertificateTrusted answers crypto/v1/is_certificate_trusted as Kubewarden does,
// whose callback_handler/crypto.rs is the reference:
//
//   - A chain has the intermediates first and the root last, and is for signing
//     code: every certificate but the root must say so. The root may not have
//     expired, either, which is stricter.
//   - Without a chain (null), only the times count.
//   - The certificate must be valid at not_after, or else now; without a chain and
//     not_after, its end does not count.
func isCertificateTrusted(payload []byte) ([]byte, error) {
	var q struct {
		Cert     certificate   `json:"cert"`
		Chain    []certificate `json:"cert_chain"`
		NotAfter *string       `json:"not_after"`
	}
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("is_certificate_trusted: %w", err)
	}
	if len(q.Chain) > maxChain {
		return nil, fmt.Errorf("is_certificate_trusted: the chain has %d certificates, more than %d", len(q.Chain), maxChain)
	}
	cert, err := q.Cert.parse()
	if err != nil {
		return nil, fmt.Errorf("is_certificate_trusted: certificate: %w", err)
	}
	now := time.Now()
	at := now
	if q.NotAfter != nil && *q.NotAfter != "" {
		if at, err = time.Parse(time.RFC3339, *q.NotAfter); err != nil {
			return nil, fmt.Errorf("is_certificate_trusted: not_after: %w", err)
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
			return nil, fmt.Errorf("is_certificate_trusted: cert_chain[%d]: %w", i, err)
		}
		chain = append(chain, link)
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(chain[len(chain)-1])
	for _, link := range chain[:len(chain)-1] {
		intermediates.AddCert(link)
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

// signsCode reports whether all certificates but the root say that they are for
// signing code, where crypto/x509 takes those that say nothing, too.
func signsCode(chain []*x509.Certificate) bool {
	return !slices.ContainsFunc(chain[:max(1, len(chain)-1)], func(c *x509.Certificate) bool {
		return !slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageCodeSigning)
	})
}

// trusted is the answer; reason is empty if the certificate is trusted.
func trusted(reason string) ([]byte, error) {
	return json.Marshal(struct {
		Trusted bool   `json:"trusted"`
		Reason  string `json:"reason"`
	}{reason == "", reason})
}
