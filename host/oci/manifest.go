package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Resolve returns the digest of the manifest or index of a reference, as in "sha256:0123…". Like
// Manifest, Image and Verify, it asks the registry each time, and keeps nothing on disk: answers to
// others must not displace modules. The error is that of the last place that was asked.
func (c *Client) Resolve(ctx context.Context, ref Reference) (digest string, err error) {
	err = c.look(ctx, "resolve", ref, func(ctx context.Context, r *reader) error {
		desc, err := r.resolve(ctx, ref.wanted())
		digest = desc.Digest.String()
		return err
	})
	return digest, err
}

// Manifest returns the manifest or index that a reference leads to, which is JSON of at most 4
// MiB, and its digest. The bytes have that digest; nothing else vouches for them.
func (c *Client) Manifest(ctx context.Context, ref Reference) (manifest []byte, digest string, err error) {
	err = c.look(ctx, "read the manifest of", ref, func(ctx context.Context, r *reader) error {
		var desc ocispec.Descriptor
		desc, manifest, err = r.root(ctx, 0)
		digest = desc.Digest.String()
		return err
	})
	return manifest, digest, err
}

// Image is the manifest of an image with its configuration.
type Image struct {
	// Digest is that of Manifest, as in "sha256:0123…".
	Digest string
	// Manifest and Config are JSON, of at most 4 MiB each.
	Manifest, Config []byte
}

// Image returns the manifest that a reference leads to, with its configuration. Of an index it
// is the one for Linux and the processor of this program, or else the only one.
func (c *Client) Image(ctx context.Context, ref Reference) (image *Image, err error) {
	err = c.look(ctx, "read the configuration of", ref, func(ctx context.Context, r *reader) error {
		image, err = r.image(ctx)
		return err
	})
	return image, err
}

// Verify returns the digest of a reference and the names of its signers, if the signatures satisfy
// trust, whose repositories and downgrades do not count. An artifact with other signatures or none
// is a [TrustError], and so is a mistake of trust: no signature satisfies it.
func (c *Client) Verify(ctx context.Context, ref Reference, trust Trust) (digest string, signedBy []string, err error) {
	trust.Repositories, trust.RefuseDowngrades = []string{"*"}, false
	rules, err := rulesOf([]Trust{trust}, c.cfg.Keyless != nil)
	if err == nil && trust.Unsigned {
		err = errors.New("unsigned verifies nothing")
	}
	if err != nil {
		return "", nil, fmt.Errorf("verify %s: %w", ref, &TrustError{ref.Name(), ref.Digest, err})
	}
	err = c.look(ctx, "verify", ref, func(ctx context.Context, r *reader) error {
		desc, root, err := r.root(ctx, signaturesBytes)
		if err != nil {
			return err
		}
		digest = desc.Digest.String()
		signedBy, err = r.verifyBy(ctx, &rules[0], desc, root)
		return err
	})
	if err != nil {
		return "", nil, err
	}
	return digest, signedBy, nil
}

// The bounds on the memory for questions, in bytes, including parsed content. Many users ask, and
// they choose their questions.
const (
	// maxQuestionsBytes is for all questions of a client at a time. Others wait. The eight
	// questions that one policy may have under way do not take all of it.
	maxQuestionsBytes = 128 << 20
	// resolveBytes is for a manifest whose digest the client has to compute, since a registry does
	// not send it.
	resolveBytes = maxManifestBytes
	// signaturesBytes is for the signatures that a question reads, one after the other.
	signaturesBytes = max(resolveBytes, 2*maxSignatureManifestBytes) + 2*max(maxPayloadBytes, maxBundleBytes)
	// configBytes is for the configuration of an image.
	configBytes = 2 * maxManifestBytes
)

// reserve waits for a share of maxQuestionsBytes, which takes the place of the one before.
func (r *reader) reserve(ctx context.Context, bytes int64) error {
	if r.questions == nil {
		return nil // A fetch is the operator's.
	}
	r.questions.Release(r.reserved)
	r.reserved = 0
	if err := r.questions.Acquire(ctx, bytes); err != nil {
		return fmt.Errorf("wait for other questions: %w", context.Cause(ctx))
	}
	r.reserved = bytes
	return nil
}

// look calls f with a reader that keeps nothing.
func (c *Client) look(ctx context.Context, what string, ref Reference, f func(context.Context, *reader) error) error {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	r, err := c.reader(ref)
	if err == nil {
		r.cache, r.questions = nil, c.questions
		defer func() { c.questions.Release(r.reserved) }()
		if err = r.reserve(ctx, resolveBytes); err == nil {
			err = f(ctx, r)
		}
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return about(what, ref, err)
}

// root returns the manifest or index of the reference. beside is the number of bytes that will be
// held in addition.
func (r *reader) root(ctx context.Context, beside int64) (desc ocispec.Descriptor, data []byte, err error) {
	if desc, err = r.resolve(ctx, r.ref.wanted()); err != nil {
		return desc, nil, err
	}
	if err := r.reserve(ctx, 2*desc.Size+beside); err != nil {
		return desc, nil, err
	}
	said := desc.Size
	if data, err = r.readResolved(ctx, r.ref.wanted(), &desc, maxManifestBytes); err != nil {
		return desc, nil, err
	}
	if desc.Size > said {
		if err := r.reserve(ctx, 2*desc.Size+beside); err != nil {
			return desc, nil, err
		}
	}
	_, err = kindOf(data)
	return desc, data, err
}

func (r *reader) image(ctx context.Context) (*Image, error) {
	desc, data, err := r.root(ctx, configBytes)
	if err != nil {
		return nil, err
	}
	if kind, err := kindOf(data); err == nil && kind == ocispec.MediaTypeImageIndex {
		var index ocispec.Index
		if err := json.Unmarshal(data, &index); err != nil {
			return nil, fmt.Errorf("read index: %w", err)
		}
		if desc, err = forPlatform(index.Manifests); err != nil {
			return nil, fmt.Errorf("index: %w", err)
		}
		if err := checkDescriptor(desc, maxManifestBytes); err != nil {
			return nil, fmt.Errorf("index: %w", err)
		}
		if err := r.reserve(ctx, 2*desc.Size+configBytes); err != nil {
			return nil, err
		}
		if data, err = r.read(ctx, desc, maxManifestBytes); err != nil {
			return nil, err
		}
		if kind, err := kindOf(data); err != nil {
			return nil, err
		} else if kind != ocispec.MediaTypeImageManifest {
			return nil, errors.New("index: it leads to another index, want a manifest")
		}
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(data, &manifest); err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	config, err := r.read(ctx, manifest.Config, maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if !json.Valid(config) {
		return nil, fmt.Errorf("configuration: its %d bytes are not JSON", len(config))
	}
	return &Image{Digest: desc.Digest.String(), Manifest: data, Config: config}, nil
}

// forPlatform returns the manifest of an index for Linux and this processor, or its only one.
func forPlatform(manifests []ocispec.Descriptor) (ocispec.Descriptor, error) {
	var others []ocispec.Descriptor
	for _, desc := range manifests {
		switch p := desc.Platform; {
		case desc.Annotations["vnd.docker.reference.type"] != "":
			// buildkit's attestations.
		case p != nil && p.OS == "linux" && p.Architecture == runtime.GOARCH:
			return desc, nil
		default:
			others = append(others, desc)
		}
	}
	if len(others) == 1 {
		return others[0], nil
	}
	return ocispec.Descriptor{}, fmt.Errorf("it has %d manifests, none for linux/%s", len(others), runtime.GOARCH)
}
