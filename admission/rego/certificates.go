package rego

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

var errPEM = errors.New("no PEM of that kind")

const (
	// maxCertificatesBytes is the maximum length of all certificates together, and certificateWork
	// the cost of reading a byte of them.
	maxCertificatesBytes, certificateWork = 512 << 10, 400
	// maxVerified is the maximum number of certificates to verify, and maxPolicies that of policies
	// in one of them.
	maxVerified, maxPolicies = 16, 100
	// maxPrivateKeyBytes is the maximum length of all private keys together, and privateKeyWork the
	// cost of reading them: crypto/x509 computes with them.
	maxPrivateKeyBytes, privateKeyWork = 8 << 10, 50_000_000
)

var pemPrefix = []byte("-----BEGIN")

// certificate is a certificate in the form seen by policies.
type certificate struct {
	x509.Certificate
	URIStrings []string
}

// readCertificates reads certificates in PEM, in base64 of PEM, or in base64 of DER.
func readCertificates(c *call, text string) ([]*x509.Certificate, error) {
	if len(text) > maxCertificatesBytes {
		return nil, errTooMuch
	}
	c.work(len(text) * certificateWork)
	raw := []byte(text)
	if !bytes.HasPrefix(raw, pemPrefix) {
		var err error
		if raw, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, err
		}
	}
	if !bytes.HasPrefix(raw, pemPrefix) {
		return x509.ParseCertificates(raw)
	}
	var der []byte
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, errPEM
		}
		der = append(der, block.Bytes...)
	}
	return x509.ParseCertificates(der)
}

func withURIs(certs []*x509.Certificate) []certificate {
	list := make([]certificate, len(certs))
	for i, cert := range certs {
		list[i].Certificate = *cert
		for _, uri := range cert.URIs {
			list[i].URIStrings = append(list[i].URIStrings, uri.String())
		}
	}
	return list
}

func parseCertificates(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	certs, err := readCertificates(c, text)
	if err != nil {
		return nil, err
	}
	return ofGo(c, withURIs(certs))
}

// verifyCertificates verifies that the first certificate trusts the last one, through those between
// them, and returns the chain.
func verifyCertificates(c *call, text string, options x509.VerifyOptions) ([]*x509.Certificate, error) {
	certs, err := readCertificates(c, text)
	if err != nil {
		return nil, err
	}
	if len(certs) < 2 {
		return nil, errArguments
	}
	if len(certs) > maxVerified {
		return nil, errTooMuch
	}
	for _, cert := range certs {
		if err := checkKey(cert.PublicKey); err != nil || len(cert.Policies)+len(cert.PolicyMappings) > maxPolicies {
			return nil, errTooMuch
		}
	}
	options.Roots, options.Intermediates = x509.NewCertPool(), x509.NewCertPool()
	options.Roots.AddCert(certs[0])
	last := len(certs) - 1
	for _, cert := range certs[1:last] {
		options.Intermediates.AddCert(cert)
	}
	c.work(len(certs) * len(certs) * signatureWork)
	chains, err := certs[last].Verify(options)
	if err != nil {
		return nil, err
	}
	return chains[0], nil
}

func parseAndVerifyCertificates(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	now, err := c.evaluation.now()
	if err != nil {
		return nil, err
	}
	chain, err := verifyCertificates(c, text, x509.VerifyOptions{CurrentTime: now})
	return verified(c, withURIs(chain), err)
}

// verified returns whether the certificates are verified, and the chain.
func verified(c *call, chain any, err error) (any, error) {
	if errors.Is(err, errTooMuch) {
		return nil, err
	}
	if err != nil {
		return []any{false, []any{}}, nil
	}
	list, err := ofGo(c, chain)
	return []any{true, list}, err
}

var keyUsages = map[string]x509.ExtKeyUsage{
	"KeyUsageAny":                            x509.ExtKeyUsageAny,
	"KeyUsageServerAuth":                     x509.ExtKeyUsageServerAuth,
	"KeyUsageClientAuth":                     x509.ExtKeyUsageClientAuth,
	"KeyUsageCodeSigning":                    x509.ExtKeyUsageCodeSigning,
	"KeyUsageEmailProtection":                x509.ExtKeyUsageEmailProtection,
	"KeyUsageIPSECEndSystem":                 x509.ExtKeyUsageIPSECEndSystem,
	"KeyUsageIPSECTunnel":                    x509.ExtKeyUsageIPSECTunnel,
	"KeyUsageIPSECUser":                      x509.ExtKeyUsageIPSECUser,
	"KeyUsageTimeStamping":                   x509.ExtKeyUsageTimeStamping,
	"KeyUsageOCSPSigning":                    x509.ExtKeyUsageOCSPSigning,
	"KeyUsageMicrosoftServerGatedCrypto":     x509.ExtKeyUsageMicrosoftServerGatedCrypto,
	"KeyUsageNetscapeServerGatedCrypto":      x509.ExtKeyUsageNetscapeServerGatedCrypto,
	"KeyUsageMicrosoftCommercialCodeSigning": x509.ExtKeyUsageMicrosoftCommercialCodeSigning,
	"KeyUsageMicrosoftKernelCodeSigning":     x509.ExtKeyUsageMicrosoftKernelCodeSigning,
}

func parseAndVerifyCertificatesWithOptions(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	o, ok2 := args[1].(object)
	if !ok || !ok2 {
		return nil, errArguments
	}
	var options x509.VerifyOptions
	for _, e := range o {
		n, isNumber := e.value.(number)
		i, err := n.int64()
		isNumber = isNumber && err == nil
		s, isText := e.value.(string)
		switch {
		case e.key == "DNSName" && isText:
			options.DNSName = strings.Trim(s, `"`)
		case e.key == "CurrentTime" && isNumber:
			options.CurrentTime = time.Unix(0, i)
		case e.key == "MaxConstraintComparisons" && isNumber && i <= maxWork/10:
			options.MaxConstraintComparisions = int(i)
		case e.key == "KeyUsages" && (isOf[[]any](e.value) || isOf[set](e.value)):
			for _, v := range elements(e.value) {
				name, isText := v.(string)
				usage, ok := keyUsages[strings.Trim(name, `"`)]
				if isText && !ok {
					return nil, errArguments
				}
				if isText {
					options.KeyUsages = append(options.KeyUsages, usage)
				}
			}
		default:
			if isOf[string](e.key) {
				return nil, errArguments
			}
		}
	}
	if options.CurrentTime.IsZero() {
		now, err := c.evaluation.now()
		if err != nil {
			return nil, fmt.Errorf("crypto.x509.parse_and_verify_certificates_with_options without CurrentTime: %w", err)
		}
		options.CurrentTime = now
	}
	chain, err := verifyCertificates(c, text, options)
	return verified(c, chain, err)
}

func parseCertificateRequest(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	if len(text) > maxCertificatesBytes {
		return nil, errTooMuch
	}
	c.work(len(text) * certificateWork)
	raw := []byte(text)
	if !strings.HasPrefix(text, "-----BEGIN CERTIFICATE REQUEST-----") {
		var err error
		if raw, err = base64.StdEncoding.DecodeString(text); err != nil {
			return nil, err
		}
	}
	if block, _ := pem.Decode(raw); block != nil {
		if block.Type != "CERTIFICATE REQUEST" {
			return nil, errPEM
		}
		raw = block.Bytes
	}
	request, err := x509.ParseCertificateRequest(raw)
	if err != nil {
		return nil, err
	}
	return ofGo(c, request)
}

// parseKeyPair reads a certificate and its private key, each in PEM, or in base64 of PEM or
// DER.
func parseKeyPair(c *call, args []any) (any, error) {
	list, err := stringsOf(args)
	if err != nil {
		return nil, err
	}
	if len(list[0]) > maxCertificatesBytes || len(list[1]) > maxPrivateKeyBytes {
		return nil, errTooMuch
	}
	c.work(len(list[0])*certificateWork + privateKeyWork)
	blocks := make([][]byte, 2)
	for i, kind := range []string{"CERTIFICATE", "PRIVATE KEY"} {
		if blocks[i] = []byte(list[i]); !bytes.HasPrefix(blocks[i], pemPrefix) {
			if blocks[i], err = base64.StdEncoding.DecodeString(list[i]); err != nil {
				return nil, err
			}
		}
		if !bytes.HasPrefix(blocks[i], pemPrefix) {
			blocks[i] = pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: blocks[i]})
		}
	}
	pair, err := tls.X509KeyPair(blocks[0], blocks[1])
	if err != nil {
		return nil, err
	}
	return ofGo(c, &pair)
}

// readPrivateKeys reads private keys in PEM, or in base64 of PEM.
func readPrivateKeys(c *call, text string) ([]any, error) {
	if len(text) > maxPrivateKeyBytes {
		return nil, errTooMuch
	}
	c.work(privateKeyWork)
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		raw = []byte(text)
	}
	var keys []any
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		var key any
		switch block.Type {
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func parsePrivateKeys(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	if !ok {
		return nil, errArguments
	}
	if text == "" {
		return nil, nil
	}
	keys, err := readPrivateKeys(c, text)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return []any{}, nil
	}
	return ofGo(c, keys)
}

// parsePrivateKey returns the first private key as a JSON Web Key. Despite the name of the builtin,
// the key may be of any kind.
func parsePrivateKey(c *call, args []any) (any, error) {
	text, ok := args[0].(string)
	if !ok || text == "" {
		return nil, errArguments
	}
	if !strings.HasPrefix(text, string(pemPrefix)) {
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		text = string(raw)
	}
	keys, err := readPrivateKeys(c, text)
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	bytesOf := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	number := func(n *big.Int) string { return bytesOf(n.Bytes()) }
	switch key := keys[0].(type) {
	case *rsa.PrivateKey:
		if len(key.Primes) != 2 {
			return nil, errArguments
		}
		return textObject("kty", "RSA", "n", number(key.N), "e", number(big.NewInt(int64(key.E))), "d", number(key.D),
			"p", number(key.Primes[0]), "q", number(key.Primes[1]),
			"dp", number(key.Precomputed.Dp), "dq", number(key.Precomputed.Dq), "qi", number(key.Precomputed.Qinv)), nil
	case *ecdsa.PrivateKey:
		public, err := key.PublicKey.Bytes()
		if err != nil {
			return nil, err
		}
		private, err := key.Bytes()
		if err != nil {
			return nil, err
		}
		size := len(public) / 2
		return textObject("kty", "EC", "crv", key.Params().Name, "x", bytesOf(public[1:1+size]), "y", bytesOf(public[1+size:]), "d", bytesOf(private)), nil
	case ed25519.PrivateKey:
		return textObject("kty", "OKP", "crv", "Ed25519", "x", bytesOf(key.Public().(ed25519.PublicKey)), "d", bytesOf(key.Seed())), nil
	}
	return nil, errArguments
}
