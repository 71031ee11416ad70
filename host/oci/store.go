package oci

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// store is a place that has artifacts: a repository, or a layout.
type store interface {
	// resolve returns the descriptor of a tag or a digest, whose size may be wrong. The error is
	// an errdef.ErrNotFound if there is none.
	resolve(ctx context.Context, tagOrDigest string) (ocispec.Descriptor, error)
	// fetch opens a blob or a manifest. Its content is not checked yet. The error is a sizeError if
	// the store knows that it has a different size.
	fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error)
	// referrers returns the manifests whose subject is desc, at most maxReferrers.
	referrers(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error)
	// String names the store in messages.
	String() string
}

// The limits on data from a registry or a layout before anything is trusted.
const (
	// maxManifestBytes is the size that registries must accept by the distribution specification.
	maxManifestBytes = 4 << 20
	maxReferrers     = 64
	// maxReferrersBytes is for one page of a list of referrers.
	maxReferrersBytes = 1 << 20
)

// manifestTypes are the media types of manifests that are read.
var manifestTypes = []string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex, mediaTypeDockerManifest, mediaTypeDockerList,
}

// away reports whether an error means that a registry could not be asked, rather than that
// it has answered no.
func away(err error) bool {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(several.Unwrap(), away)
	}
	if answer, ok := errors.AsType[*answerError](err); ok {
		return comesBack(answer.status)
	}
	if answer, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		return comesBack(answer.StatusCode)
	}
	if _, ok := errors.AsType[*pauseError](err); ok {
		return true
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	return errors.Is(err, errShort) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || errors.Is(err, context.DeadlineExceeded)
}

// comesBack reports whether a registry that answers with a status may succeed at a later time.
func comesBack(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
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
