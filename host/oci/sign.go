package oci

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// SignOptions configure the signed text beside the digest, and the storage of the signature. The
// zero value is the default.
type SignOptions struct {
	// Annotations are signed with the digest.
	Annotations map[string]string
	// NoTag and NoBundle leave out one of the two ways to store a signature: under the tag
	// that cosign 2 looks for, and as a bundle that refers to the artifact, as cosign 3
	// does.
	NoTag, NoBundle bool
}

// ParsePrivateKey reads a private key in PEM: PKCS #8, or as OpenSSL writes EC and RSA keys.
// An encrypted one is an error.
func ParsePrivateKey(data []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("read private key: it is not PEM")
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "EC PARAMETERS": // openssl ecparam writes them before the key.
			continue
		default:
			return nil, fmt.Errorf("read private key: it is a %.60q, want a PRIVATE KEY that is not encrypted", block.Type)
		}
		if err != nil {
			return nil, fmt.Errorf("read private key: %w", err)
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf("read private key: it is a %T, want ECDSA, Ed25519 or RSA", key)
		}
		if _, err := newPublicKey(signer.Public()); err != nil {
			return nil, fmt.Errorf("read private key: %w", err)
		}
		return signer, nil
	}
}

// Sign signs the artifact that a reference names, writes the signature beside it, and returns
// the digest that was signed. Signatures of others stay.
func (c *Client) Sign(ctx context.Context, ref Reference, key crypto.Signer, opts SignOptions) (signed string, err error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	fail := func(err error) (string, error) { return "", fmt.Errorf("sign %s: %w", ref, err) }
	if _, err := newPublicKey(key.Public()); err != nil {
		return fail(err)
	}
	to, err := c.target(ref)
	if err != nil {
		return fail(err)
	}
	// The registry itself decides, not a mirror or a cache.
	r, err := c.reader(ref)
	if err != nil {
		return fail(err)
	}
	if ref.Layout == "" {
		r.stores, r.cache = []store{to}, nil
	}
	desc, err := r.resolve(ctx, ref.wanted())
	if err != nil {
		return fail(err)
	}
	data, err := r.readResolved(ctx, ref.wanted(), &desc, maxManifestBytes)
	if err != nil {
		return fail(err)
	}
	if desc.MediaType, err = mediaTypeOf(data); err != nil {
		return fail(err)
	}
	if !opts.NoTag {
		if err := r.signTag(ctx, to, desc, key, opts.Annotations); err != nil {
			return fail(err)
		}
	}
	if !opts.NoBundle {
		if err := signBundle(ctx, to, desc, key, opts.Annotations); err != nil {
			return fail(err)
		}
	}
	return desc.Digest.String(), nil
}

// mediaTypeOf returns the media type of a manifest, which may leave it out.
func mediaTypeOf(data []byte) (string, error) {
	kind, err := kindOf(data)
	if err != nil {
		return "", err
	}
	var m struct {
		MediaType string `json:"mediaType"`
	}
	if err := json.Unmarshal(data, &m); err != nil || m.MediaType == "" {
		return kind, err
	}
	return m.MediaType, nil
}

// signTag adds a signature to those under the tag of a manifest.
func (r *reader) signTag(ctx context.Context, to target, subject ocispec.Descriptor, key crypto.Signer, annotations map[string]string) error {
	var text simpleSigning
	text.Critical.Identity.DockerReference = r.ref.Name()
	text.Critical.Image.Digest = subject.Digest.String()
	text.Critical.Type = simpleSigningType
	text.Optional = asAny(annotations)
	payload, err := json.Marshal(text)
	if err != nil {
		return err
	}
	signature, err := signBytes(key, payload)
	if err != nil {
		return err
	}
	layer := newBlob(mediaTypeSimpleSigning, payload)
	layer.Annotations = map[string]string{annotationSignature: base64.StdEncoding.EncodeToString(signature)}

	tag := signatureTag(subject.Digest.String())
	var others []ocispec.Descriptor
	desc, err := r.resolve(ctx, tag)
	switch {
	case err == nil:
		data, err := r.readResolved(ctx, tag, &desc, maxManifestBytes)
		if err != nil {
			return fmt.Errorf("read the other signatures: %w", err)
		}
		var manifest ocispec.Manifest
		if err := json.Unmarshal(data, &manifest); err != nil {
			return fmt.Errorf("read the other signatures: %w", err)
		}
		others = manifest.Layers
	case !missing(err):
		return fmt.Errorf("read the other signatures: %w", err)
	}
	image := ocispec.Image{Created: &epoch, RootFS: ocispec.RootFS{Type: "layers"}}
	for _, other := range others {
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, other.Digest)
	}
	image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, layer.Digest)
	config, err := json.Marshal(image)
	if err != nil {
		return err
	}
	manifest, blobs := newManifest(newBlob(ocispec.MediaTypeImageConfig, config), layer)
	manifest.Layers = append(others, layer.Descriptor)
	_, err = putManifest(ctx, to, manifest, blobs, tag)
	return err
}

// signBundle writes a bundle that refers to a manifest.
func signBundle(ctx context.Context, to target, desc ocispec.Descriptor, key crypto.Signer, annotations map[string]string) error {
	payload, err := json.Marshal(statement{
		Type: "https://in-toto.io/Statement/v1", PredicateType: predicateSign,
		Subject: []subject{{Digest: map[string]string{"sha256": desc.Digest.Encoded()}, Annotations: asAny(annotations)}},
	})
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	// The hint that cosign writes: it is not trusted.
	hint := sha256.Sum256(public)
	e := &envelope{Payload: payload, PayloadType: payloadTypeInToto}
	signature, err := signBytes(key, e.pae())
	if err != nil {
		return err
	}
	e.Signatures = []envelopeSignature{{Signature: signature}}
	data, err := json.Marshal(bundle{
		MediaType: mediaTypeBundle, Envelope: e,
		VerificationMaterial: verificationMaterial{PublicKey: &publicKeyHint{base64.StdEncoding.EncodeToString(hint[:])}},
	})
	if err != nil {
		return err
	}
	_, err = attach(ctx, to, desc, mediaTypeBundle, data, map[string]string{
		"dev.sigstore.bundle.content":       "dsse-envelope",
		"dev.sigstore.bundle.predicateType": predicateSign,
		ocispec.AnnotationCreated:           time.Now().UTC().Format(time.RFC3339),
	})
	return err
}

// signBytes signs as verifiers expect it by default.
func signBytes(key crypto.Signer, message []byte) ([]byte, error) {
	var signature []byte
	var err error
	switch public := key.Public().(type) {
	case ed25519.PublicKey:
		signature, err = key.Sign(rand.Reader, message, crypto.Hash(0))
	case *ecdsa.PublicKey:
		h := map[int]crypto.Hash{384: crypto.SHA384, 521: crypto.SHA512}[public.Curve.Params().BitSize]
		if h == 0 {
			h = crypto.SHA256
		}
		signature, err = key.Sign(rand.Reader, hashOf(h, message), h)
	case *rsa.PublicKey:
		signature, err = key.Sign(rand.Reader, hashOf(crypto.SHA256, message), crypto.SHA256)
	default:
		err = fmt.Errorf("key is a %T, want ECDSA, Ed25519 or RSA", public)
	}
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return signature, nil
}

func asAny(m map[string]string) map[string]any {
	if m == nil {
		return nil
	}
	out := make(map[string]any, len(m))
	for key, value := range maps.All(m) {
		out[key] = value
	}
	return out
}

func digests(blobs ...blob) (all []digest.Digest) {
	for _, b := range blobs {
		all = append(all, b.Digest)
	}
	return all
}
