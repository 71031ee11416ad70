package oci

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	_ "crypto/sha256" // The hashes of signatures.
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// minRSABits and maxRSABits bound the sizes of accepted RSA keys. To verify one signature of a key
// of two million bits takes half a minute.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// publicKey is a key for verifying signatures.
type publicKey struct {
	key crypto.PublicKey
	// hashes are the hashes with which tools sign by such a key.
	hashes []crypto.Hash
	// id tells the key from others, in whatever form it is written.
	id string
}

// parseKey reads a public key in PEM.
func parseKey(data []byte) (*publicKey, error) {
	block, rest := pem.Decode(data)
	if block == nil {
		return nil, errors.New("key is not PEM")
	}
	if next, _ := pem.Decode(rest); next != nil {
		return nil, errors.New("there are two keys, want one")
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		key, err = x509.ParsePKCS1PublicKey(block.Bytes)
	default:
		return nil, fmt.Errorf("key is %.40q, want PUBLIC KEY", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	return newPublicKey(key)
}

func newPublicKey(key crypto.PublicKey) (*publicKey, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("key is a %T, want ECDSA, Ed25519 or RSA", key)
	}
	k := &publicKey{key: key, hashes: []crypto.Hash{crypto.SHA256}, id: "key " + sum(der)}
	switch key := key.(type) {
	case *ecdsa.PublicKey:
		switch key.Curve.Params().BitSize {
		case 256:
		case 384:
			k.hashes = append(k.hashes, crypto.SHA384)
		case 521:
			k.hashes = append(k.hashes, crypto.SHA512)
		default:
			return nil, fmt.Errorf("key is on the curve %s, want P-256, P-384 or P-521", key.Curve.Params().Name)
		}
	case ed25519.PublicKey:
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < minRSABits || n > maxRSABits {
			return nil, fmt.Errorf("key has %d bits, want %d to %d", n, minRSABits, maxRSABits)
		}
	default:
		return nil, fmt.Errorf("key is a %T, want ECDSA, Ed25519 or RSA", key)
	}
	return k, nil
}

var errOtherKey = errors.New("it is by another key, or of something else")

// verify returns an error unless signature is one of message.
func (k *publicKey) verify(message, signature []byte) error {
	switch key := k.key.(type) {
	case ed25519.PublicKey:
		if ed25519.Verify(key, message, signature) {
			return nil
		}
		// Of a digest, where a transparency log must be able to verify it.
		digest := hashOf(crypto.SHA512, message)
		if ed25519.VerifyWithOptions(key, digest, signature, &ed25519.Options{Hash: crypto.SHA512}) == nil {
			return nil
		}
	case *ecdsa.PublicKey:
		for _, h := range k.hashes {
			if ecdsa.VerifyASN1(key, hashOf(h, message), signature) {
				return nil
			}
		}
	case *rsa.PublicKey:
		for _, h := range k.hashes {
			if rsa.VerifyPKCS1v15(key, h, hashOf(h, message), signature) == nil {
				return nil
			}
		}
	}
	return errOtherKey
}

func hashOf(h crypto.Hash, message []byte) []byte {
	hash := h.New()
	hash.Write(message)
	return hash.Sum(nil)
}

// signer is a Signer that was checked.
type signer struct {
	Signer
	key  *publicKey
	cert *certificate
}

// check returns the signer with its key, or every mistake.
func (s *Signer) check(keyless bool) (signer, error) {
	checked := signer{Signer: *s}
	var errs []error
	given := 0
	for _, set := range []bool{s.Key != "", s.KeyFile != "", s.Identity != nil, s.Certificate != nil} {
		if set {
			given++
		}
	}
	if given != 1 {
		errs = append(errs, fmt.Errorf("it sets %d of key, keyFile, identity and certificate, want one", given))
	}
	data := []byte(s.Key)
	name := "key"
	if s.KeyFile != "" {
		name = filepath.Base(s.KeyFile)
		var err error
		if data, err = os.ReadFile(s.KeyFile); err != nil {
			errs = append(errs, fmt.Errorf("keyFile: %w", err))
		}
	}
	if len(data) != 0 {
		var err error
		if checked.key, err = parseKey(data); err != nil {
			if s.KeyFile != "" {
				err = fmt.Errorf("%s: %w", s.KeyFile, err)
			}
			errs = append(errs, err)
		}
	}
	if id := s.Identity; id != nil {
		name = cmp.Or(id.Subject, id.SubjectRegexp, id.SourceRepository, id.SourceOwner)
		if !keyless {
			errs = append(errs, errors.New("identity: this program has no trusted root of Sigstore and verifies keys only: set -sigstore-trust-config, if it has that flag"))
		}
		if (id.Issuer == "") == (id.IssuerRegexp == "") {
			errs = append(errs, errors.New("identity: want one of issuer and issuerRegexp"))
		}
		bySource := id.SourceRepository != "" || id.SourceOwner != ""
		if id.Subject != "" && id.SubjectRegexp != "" || id.Subject == "" && id.SubjectRegexp == "" && !bySource {
			errs = append(errs, errors.New("identity: want one of subject and subjectRegexp, or sourceRepository or sourceOwner"))
		}
		for _, expression := range []string{id.IssuerRegexp, id.SubjectRegexp} {
			if _, err := regexp.Compile(expression); err != nil {
				errs = append(errs, fmt.Errorf("identity: %w", err))
			}
		}
	}
	if c := s.Certificate; c != nil {
		var err error
		if checked.cert, err = c.check(); err != nil {
			errs = append(errs, err)
		} else {
			name = cmp.Or(checked.cert.leaf.Subject.CommonName, "certificate")
			checked.key = checked.cert.key
		}
	}
	if checked.Name == "" {
		checked.Name = name
	}
	return checked, errors.Join(errs...)
}

// signed returns the maker of a signature, or an error unless it is the signer's. root is the
// signed manifest.
func (s *signer) signed(ctx context.Context, keyless Keyless, signature *Signature, root []byte) (by string, err error) {
	var claims map[string]any
	if s.cert != nil {
		if err := s.cert.verify(ctx, keyless, signature); err != nil {
			return "", err
		}
	}
	if s.key != nil {
		by = s.key.id
		claims, err = signature.verify(s.key, root)
	} else {
		by, claims, err = s.verified(ctx, keyless, signature)
	}
	if err == nil {
		err = s.annotated(claims)
	}
	return by, err
}

// verified is signed for an identity.
func (s *signer) verified(ctx context.Context, keyless Keyless, signature *Signature) (by string, claims map[string]any, err error) {
	verified, err := keyless.Verify(ctx, signature, *s.Identity)
	if err != nil {
		return "", nil, err
	}
	if signature.Bundle == nil {
		claims, err = signature.claims()
	} else {
		claims = verified.Annotations
	}
	return "identity " + verified.Signer, claims, err
}

// annotated returns an error unless the annotations that the signer needs were signed.
func (s *signer) annotated(signed map[string]any) error {
	for key, want := range s.Annotations {
		if got := signed[key]; got != want {
			return fmt.Errorf("annotation %q was signed as %.80q, want %q", key, fmt.Sprint(got), want)
		}
	}
	return nil
}
