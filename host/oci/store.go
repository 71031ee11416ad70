package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// store is a place that has artifacts: a repository, or a layout.
type store interface {
	// resolve returns the descriptor of a tag or a digest. The error is an
	// errdef.ErrNotFound if there is none.
	resolve(ctx context.Context, tagOrDigest string) (ocispec.Descriptor, error)
	// fetch opens a blob or a manifest. What it returns is not checked yet.
	fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error)
	// referrers returns the manifests whose subject is desc, at most maxReferrers.
	referrers(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error)
	// String names the store in messages.
	String() string
}

// The limits of what a registry or a layout may send before anything is trusted.
const (
	// maxManifestBytes is what the distribution specification wants registries to take.
	maxManifestBytes = 4 << 20
	maxReferrers     = 64
	// maxReferrersBytes is for one page of a list of referrers.
	maxReferrersBytes = 1 << 20
)

// manifestTypes are the media types of manifests that are read.
var manifestTypes = []string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, mediaTypeDockerManifest, mediaTypeDockerList,
}

// repository is a store in a registry.
type repository struct{ *remote.Repository }

func (c *Client) repository(settings *settings, registryHost, name string) (*repository, error) {
	ref := registry.Reference{Registry: registryHost, Repository: name}
	if err := ref.ValidateRepository(); err != nil {
		return nil, err
	}
	e := settings.hosts[registryHost]
	return &repository{&remote.Repository{
		Client: &authorizer{c, registryHost + "/" + name}, Reference: ref, PlainHTTP: e != nil && e.plainHTTP,
		ManifestMediaTypes: manifestTypes, MaxMetadataBytes: maxManifestBytes, ReferrerListMaxPages: 4,
	}}, nil
}

func (r *repository) String() string { return r.Reference.Registry + "/" + r.Reference.Repository }

func (r *repository) resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := r.Resolve(ctx, reference)
	if err == nil || errors.Is(err, errdef.ErrNotFound) || ctx.Err() != nil {
		return desc, r.explain(err)
	}
	if answer := (*errcode.ErrorResponse)(nil); errors.As(err, &answer) && answer.StatusCode != http.StatusMethodNotAllowed || away(err) {
		return desc, r.explain(err)
	}
	// A registry may answer HEAD without a digest, which GET can compute.
	desc, body, err := r.FetchReference(ctx, reference)
	if err == nil {
		body.Close()
	}
	return desc, r.explain(err)
}

func (r *repository) fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := r.Fetch(ctx, desc)
	return body, r.explain(err)
}

var errEnough = errors.New("enough")

func (r *repository) referrers(ctx context.Context, desc ocispec.Descriptor) (all []ocispec.Descriptor, err error) {
	lister := &remote.Repository{
		Client: r.Client, Reference: r.Reference, PlainHTTP: r.PlainHTTP,
		ManifestMediaTypes: manifestTypes, MaxMetadataBytes: maxReferrersBytes, ReferrerListMaxPages: 4,
	}
	err = lister.Referrers(ctx, desc, "", func(page []ocispec.Descriptor) error {
		for _, desc := range page {
			if len(all) == maxReferrers {
				return errEnough
			}
			all = append(all, referrer(desc))
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return all, nil
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return nil, nil
	}
	return all, r.explain(err)
}

// maxTypeBytes is how long a media type is at most, by RFC 6838.
const maxTypeBytes = 255

// referrer returns of a descriptor what is kept: digest, size and types. The rest is of
// somebody who may write to the repository, and as long as they like.
func referrer(desc ocispec.Descriptor) ocispec.Descriptor {
	kept := ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size}
	if len(desc.MediaType) <= maxTypeBytes {
		kept.MediaType = strings.Clone(desc.MediaType)
	}
	if len(desc.ArtifactType) <= maxTypeBytes {
		kept.ArtifactType = strings.Clone(desc.ArtifactType)
	}
	if len(kept.Digest) > maxTypeBytes {
		kept.Digest = "" // It is refused when it is read.
	}
	return kept
}

// answerError is the answer of a registry that is no success.
type answerError struct {
	store  string
	status int
	// text is what the registry wrote, for the log.
	text string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s answered %d %s%s", e.store, e.status, http.StatusText(e.status), publicerr.Redact(e.text))
}

// words returns the answer without what the registry wrote, and without the name of a mirror.
func (e *answerError) words() string {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the registry refuses access: %d %s", e.status, http.StatusText(e.status))
	}
	return fmt.Sprintf("the registry answered %d %s", e.status, http.StatusText(e.status))
}

// explain returns an error of oras with little of what the registry wrote, and with words for
// those who may not see addresses and URLs.
func (r *repository) explain(err error) error {
	if err == nil {
		return nil
	}
	if answer := (*errcode.ErrorResponse)(nil); errors.As(err, &answer) {
		text := ""
		if len(answer.Errors) != 0 {
			text = fmt.Sprintf(": %.200q", answer.Errors[0].Code+": "+answer.Errors[0].Message)
		}
		refused := &answerError{r.String(), answer.StatusCode, text}
		return publicerr.Wrap(refused.words(), refused)
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return publicerr.Wrap("there is no such artifact", fmt.Errorf("%s: %w", r, errdef.ErrNotFound))
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return publicerr.Wrap("the registry speaks plain http", fmt.Errorf("%s: it speaks plain http: want plainHTTP for %s, or a registry with TLS", r, r.Reference.Registry))
	}
	words := publicerr.Network(err)
	if own, ok := errors.AsType[*publicerr.Error](err); ok {
		words = publicerr.Words(own)
	} else if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		words = "the registry wants credentials, and there are none"
	} else if paused := (*PauseError)(nil); errors.As(err, &paused) {
		words = "the registry asked to be left alone for a time"
	} else if words == "" || words == "the request failed" {
		words = "the registry's answer cannot be used"
	}
	return publicerr.Wrap(words, fmt.Errorf("%s: %w", r, withoutURL(err)))
}

// withoutURL returns what a failed request was refused for.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// away reports whether an error means that a registry could not be asked, rather than that
// it has answered no.
func away(err error) bool {
	if answer, ok := errors.AsType[*answerError](err); ok {
		return answer.status >= 500 || answer.status == http.StatusTooManyRequests || answer.status == http.StatusRequestTimeout
	}
	if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusRequestTimeout
	}
	if _, ok := errors.AsType[*PauseError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, errShort) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded)
}

// stores returns the places that have an artifact, in the order in which they are asked.
func (c *Client) stores(settings *settings, ref Reference) ([]store, error) {
	if ref.Layout != "" {
		l, err := openLayout(ref.Layout)
		if err != nil {
			return nil, err
		}
		return []store{l}, nil
	}
	var all []store
	if e := settings.hosts[ref.Registry]; e != nil {
		for _, m := range e.mirrors {
			name := ref.Repository
			if m.prefix != "" {
				name = strings.Trim(m.prefix, "/") + "/" + name
			}
			r, err := c.repository(settings, m.host, name)
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	origin, err := c.repository(settings, ref.Registry, ref.Repository)
	if err != nil {
		return nil, err
	}
	return append(all, origin), nil
}
