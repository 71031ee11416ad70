package ociregistry

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/host/oci"
)

// Registry implements [capabilities.Registry]. It is safe for use by several goroutines.
type Registry struct{ client *oci.Client }

var _ capabilities.Registry = (*Registry)(nil)

// New returns a Registry that uses a client.
func New(client *oci.Client) *Registry { return &Registry{client} }

// reference returns the reference of an image. An image of a policy is never a layout.
func reference(image capabilities.Image) (oci.Reference, error) {
	return oci.ParseReference("oci://" + image.String())
}

// Digest implements [capabilities.Registry].
func (r *Registry) Digest(ctx context.Context, image capabilities.Image) (string, error) {
	ref, err := reference(image)
	if err != nil {
		return "", err
	}
	return r.client.Resolve(ctx, ref)
}

// Manifest implements [capabilities.Registry].
func (r *Registry) Manifest(ctx context.Context, image capabilities.Image) ([]byte, error) {
	ref, err := reference(image)
	if err != nil {
		return nil, err
	}
	manifest, _, err := r.client.Manifest(ctx, ref)
	return manifest, err
}

// Config implements [capabilities.Registry].
func (r *Registry) Config(ctx context.Context, image capabilities.Image) (manifest []byte, digest string, config []byte, err error) {
	ref, err := reference(image)
	if err != nil {
		return nil, "", nil, err
	}
	found, err := r.client.Image(ctx, ref)
	if err != nil {
		return nil, "", nil, err
	}
	return found.Manifest, found.Digest, found.Config, nil
}

// Verify implements [capabilities.Registry].
func (r *Registry) Verify(ctx context.Context, image capabilities.Image, wanted capabilities.Signatures) (string, error) {
	ref, err := reference(image)
	if err != nil {
		return "", err
	}
	digest, _, err := r.client.Verify(ctx, ref, oci.Trust{AllOf: signers(&wanted)})
	return digest, err
}

// The issuer of workflow identities, and the address of their repositories.
const (
	gitHubIssuer = "https://token.actions.githubusercontent.com"
	gitHub       = "https://github.com/"
)

// signers returns the required signers.
func signers(wanted *capabilities.Signatures) (list []oci.Signer) {
	for i, key := range wanted.Keys {
		list = append(list, oci.Signer{Name: fmt.Sprintf("pub_keys[%d]", i), Key: key})
	}
	for _, id := range wanted.Identities {
		identity := oci.Identity{Issuer: id.Issuer, Subject: id.Subject}
		if id.SubjectPrefix != "" {
			identity.SubjectRegexp = regexp.QuoteMeta(strings.TrimSuffix(id.SubjectPrefix, "/")) + "/.*"
		}
		list = append(list, oci.Signer{Name: id.Subject + id.SubjectPrefix, Identity: &identity})
	}
	if g := wanted.GitHub; g != nil {
		identity := oci.Identity{Issuer: gitHubIssuer, SourceOwner: gitHub + g.Owner}
		if g.Repository != "" {
			identity.SourceRepository = gitHub + g.Owner + "/" + g.Repository
		}
		list = append(list, oci.Signer{Name: g.Owner + "/" + g.Repository, Identity: &identity})
	}
	if c := wanted.Certificate; c != nil {
		cert := &oci.Certificate{PEM: string(c.PEM), Log: c.NeedsLog}
		for _, link := range c.Chain {
			cert.Chain = append(cert.Chain, string(link))
		}
		list = append(list, oci.Signer{Name: "certificate", Certificate: cert})
	}
	for i := range list {
		list[i].Annotations = wanted.Annotations
	}
	return list
}
