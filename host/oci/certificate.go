package oci

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// certificate is a Certificate that was checked.
type certificate struct {
	leaf *x509.Certificate
	key  *publicKey
	// roots is nil if the certificate is trusted as it is.
	roots, intermediates *x509.CertPool
	log                  bool
}

// The limits of certificates, beyond which crypto/x509 takes long to verify them.
const (
	maxCertificateBytes = 32 << 10
	maxChain            = 16
	maxPolicies         = 100
)

// check returns the certificate, or the first of its mistakes.
func (c *Certificate) check() (*certificate, error) {
	leaf, key, err := parseCertificate(c.PEM)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	checked := &certificate{leaf: leaf, key: key, log: c.Log}
	if len(c.Chain) > maxChain {
		return nil, fmt.Errorf("certificate: its chain has %d certificates, more than %d", len(c.Chain), maxChain)
	}
	if len(c.Chain) != 0 {
		checked.roots, checked.intermediates = x509.NewCertPool(), x509.NewCertPool()
	}
	for i, text := range c.Chain {
		link, _, err := parseCertificate(text)
		if err != nil {
			return nil, fmt.Errorf("certificate: chain[%d]: %w", i, err)
		}
		if i == len(c.Chain)-1 {
			checked.roots.AddCert(link)
		} else {
			checked.intermediates.AddCert(link)
		}
	}
	return checked, nil
}

// parseCertificate reads one certificate in PEM.
func parseCertificate(text string) (*x509.Certificate, *publicKey, error) {
	if len(text) > maxCertificateBytes {
		return nil, nil, fmt.Errorf("it has %d bytes, more than %d", len(text), maxCertificateBytes)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, nil, errors.New("it is no certificate in PEM")
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, nil, errors.New("it contains several certificates, want one")
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, err
	}
	if n := len(cert.Policies) + len(cert.PolicyMappings); n > maxPolicies {
		return nil, nil, fmt.Errorf("it has %d policies, more than %d", n, maxPolicies)
	}
	key, err := newPublicKey(cert.PublicKey)
	return cert, key, err
}

// verify returns an error unless the certificate was valid when the signature was made. The
// signature itself is verified by its key afterwards.
func (c *certificate) verify(ctx context.Context, keyless Keyless, s *Signature) error {
	at := time.Now()
	if c.log {
		log, ok := keyless.(Log)
		if !ok {
			return errors.New("its time is unknown: this program uses no transparency log")
		}
		var err error
		if at, err = log.SignedAt(ctx, s); err != nil {
			return fmt.Errorf("its time is unknown: %w", err)
		}
	}
	if at.Before(c.leaf.NotBefore) || at.After(c.leaf.NotAfter) {
		return fmt.Errorf("the certificate is not valid at %s", at.UTC().Format(time.RFC3339))
	}
	if !slices.Contains(c.leaf.ExtKeyUsage, x509.ExtKeyUsageCodeSigning) {
		return errors.New("the certificate is not for signing code")
	}
	if c.roots == nil {
		return nil
	}
	_, err := c.leaf.Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: c.intermediates, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning},
	})
	return err
}
