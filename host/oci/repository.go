package oci

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// repository is a store in a registry. Manifests, and lists of referrers, are read and written
// here: a digest identifies them, without the headers that registries and proxies leave out or get
// wrong. Blobs are uploaded by oras.
type repository struct{ *remote.Repository }

func (c *Client) repository(settings *settings, registryHost, name string) (*repository, error) {
	ref := registry.Reference{Registry: registryHost, Repository: name}
	if err := ref.ValidateRepository(); err != nil {
		return nil, err
	}
	e := settings.hosts[registryHost]
	return &repository{&remote.Repository{
		Client: &authorizer{c, registryHost + "/" + name}, Reference: ref, PlainHTTP: e != nil && e.plainHTTP,
	}}, nil
}

func (r *repository) String() string { return r.Reference.Registry + "/" + r.Reference.Repository }

// resolve asks by HEAD, which registries do not count. The size is that reported by the registry, 0
// if it reports none.
func (r *repository) resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	resp, err := r.send(ctx, http.MethodHead, "manifests/"+reference, nil)
	if err != nil {
		if status(err) != http.StatusNotFound && saysNo(err) {
			return r.weigh(ctx, reference) // Some answer GET alone.
		}
		return ocispec.Descriptor{}, err
	}
	resp.Body.Close()
	desc := ocispec.Descriptor{Digest: digestOf(resp.Header.Get("Docker-Content-Digest")), Size: max(resp.ContentLength, 0), MediaType: mediaTypeIn(resp)}
	if desc.Digest == "" && digestRE.MatchString(reference) {
		desc.Digest = digestOf(reference)
	}
	// Another algorithm is refused later. A digest that is missing or misspelt is computed.
	if desc.Digest.Validate() != nil {
		return r.weigh(ctx, reference)
	}
	return desc, nil
}

// weigh computes the values that HEAD does not return.
func (r *repository) weigh(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	body, _, mediaType, err := r.open(ctx, "manifests/"+reference)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer body.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(body, maxManifestBytes+1))
	if err != nil {
		return ocispec.Descriptor{}, r.explain(err)
	}
	return ocispec.Descriptor{Digest: digest.NewDigest(digest.SHA256, h), Size: n, MediaType: mediaType}, nil
}

func (r *repository) fetch(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	kind := "blobs/"
	if slices.Contains(manifestTypes, desc.MediaType) {
		kind = "manifests/"
	}
	body, size, _, err := r.open(ctx, kind+desc.Digest.String())
	if err == nil && size >= 0 && size != desc.Size {
		answer{resp: &http.Response{Body: body}}.discard()
		other := &sizeError{want: desc.Size, got: size}
		return nil, publicerr.Wrap(fmt.Sprintf("read %s: %s", desc.Digest, other), fmt.Errorf("%s: read %s: %w", r, desc.Digest, other))
	}
	return body, err
}

// open opens a manifest or a blob, and returns its size, -1 if that is not known.
func (r *repository) open(ctx context.Context, rest string) (body io.ReadCloser, size int64, mediaType string, err error) {
	resp, err := r.send(ctx, http.MethodGet, rest, nil)
	if err != nil {
		return nil, 0, "", err
	}
	body, size, mediaType = resp.Body, resp.ContentLength, mediaTypeIn(resp)
	if !strings.HasPrefix(rest, "manifests/") {
		return body, size, mediaType, nil
	}
	// Some proxies compress without being asked, and a manifest is text.
	stream := bufio.NewReader(body)
	if start, _ := stream.Peek(2); !bytes.Equal(start, []byte{0x1f, 0x8b}) {
		return readCloser{stream, body}, size, mediaType, nil
	}
	z, err := gzip.NewReader(stream)
	if err != nil {
		body.Close()
		return nil, 0, "", r.explain(fmt.Errorf("decompress: %w", err))
	}
	return readCloser{z, body}, -1, mediaType, nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// mediaTypeIn returns the media type of a manifest in an answer. Some registries send a wrong one,
// so the content decides.
func mediaTypeIn(resp *http.Response) string {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if mediaType = strings.TrimSpace(mediaType); slices.Contains(manifestTypes, mediaType) {
		return mediaType
	}
	return ocispec.MediaTypeImageManifest
}

// send sends a request about the content of the repository, with a manifest of a type unless it is
// nil. The answer is a success, and the error is explained.
func (r *repository) send(ctx context.Context, method, rest string, manifest *blob) (*http.Response, error) {
	scheme := "https"
	if r.PlainHTTP {
		scheme = "http"
	}
	address := fmt.Sprintf("%s://%s/v2/%s/%s", scheme, r.Reference.Host(), r.Reference.Repository, rest)
	return r.sendTo(ctx, method, address, !strings.HasPrefix(rest, "blobs/"), manifest)
}

func (r *repository) sendTo(ctx context.Context, method, address string, wantsManifest bool, manifest *blob) (*http.Response, error) {
	actions, body := []string{auth.ActionPull}, []byte(nil)
	if manifest != nil {
		actions, body = append(actions, auth.ActionPush), manifest.data
	}
	req, err := http.NewRequestWithContext(auth.AppendRepositoryScope(ctx, r.Reference, actions...), method, address, bytes.NewReader(body))
	if err != nil {
		return nil, r.explain(err)
	}
	switch {
	case manifest != nil:
		req.Header.Set("Content-Type", manifest.MediaType)
	case wantsManifest:
		req.Header.Set("Accept", strings.Join(manifestTypes, ", "))
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		return nil, r.explain(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer answer{resp: resp}.discard()
	if resp.StatusCode == http.StatusNotFound && manifest == nil {
		return nil, r.explain(errdef.ErrNotFound)
	}
	var said struct {
		Errors errcode.Errors `json:"errors"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 8<<10)).Decode(&said) // Text that is not JSON is not shown.
	return nil, r.explain(&errcode.ErrorResponse{Method: method, URL: req.URL, StatusCode: resp.StatusCode, Errors: said.Errors})
}

// status returns the status of the answer that an error is about, 0 if there is none.
func status(err error) int {
	if refused, ok := errors.AsType[*answerError](err); ok {
		return refused.status
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return http.StatusNotFound
	}
	return answer{err: err}.status()
}

// saysNo reports whether a registry has refused a request for good.
func saysNo(err error) bool { return status(err) >= http.StatusBadRequest && !away(err) }

// missing reports whether an error may mean that there is no such tag, in a repository from which
// other content was read: some registries refuse access to missing content.
func missing(err error) bool {
	switch status(err) {
	case http.StatusNotFound, http.StatusForbidden, http.StatusUnauthorized:
		return true
	}
	return false
}

// unlistedError is the error of a registry that neither lists the referrers of a manifest nor has
// the tag that stands for the list.
type unlistedError struct {
	answer error
	tag    string
}

func (e *unlistedError) Error() string {
	return fmt.Sprintf("%v, and there is no tag %s", e.answer, e.tag)
}

func (e *unlistedError) Unwrap() error { return e.answer }

// refused reports whether the registry may have a list, and does not show it.
func (e *unlistedError) refused() bool { return missing(e.answer) }

// maxReferrersPages is for the pages of a list of referrers.
const maxReferrersPages = 4

var errNoList = errors.New("its response is not a list of referrers")

func (r *repository) referrers(ctx context.Context, subject ocispec.Descriptor) (all []ocispec.Descriptor, err error) {
	add := func(list []ocispec.Descriptor) (more bool) {
		for _, desc := range list[:min(len(list), maxReferrers-len(all))] {
			all = append(all, referrer(desc))
		}
		return len(all) < maxReferrers
	}
	err = r.listed(ctx, subject, add)
	if err == nil || len(all) != 0 || !saysNo(err) && !errors.Is(err, errNoList) {
		return all, err
	}
	tag := referrersTag(subject)
	index, tagErr := r.taggedIndex(ctx, tag, subject)
	switch {
	case tagErr == nil:
		add(index.Manifests)
		return all, nil
	case !missing(tagErr):
		return nil, tagErr
	case status(err) != http.StatusNotFound:
		return nil, publicerr.Wrap(publicerr.Words(err), &unlistedError{err, tag})
	case status(tagErr) != http.StatusNotFound:
		return nil, tagErr
	}
	return nil, nil
}

// listed calls add with the pages of the registry's own list, while it wants more.
func (r *repository) listed(ctx context.Context, subject ocispec.Descriptor, add func([]ocispec.Descriptor) bool) error {
	resp, err := r.send(ctx, http.MethodGet, "referrers/"+subject.Digest.String(), nil)
	if err != nil {
		return err
	}
	for page := 1; ; page++ {
		var index *ocispec.Index
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxReferrersBytes+1))
		resp.Body.Close()
		if err == nil {
			index, err = indexOf(data)
		}
		if err != nil {
			return r.explain(err)
		}
		if !add(index.Manifests) {
			return nil
		}
		next, err := nextPage(resp)
		if err != nil || next == "" {
			return r.explain(err)
		}
		if page == maxReferrersPages {
			return r.explain(fmt.Errorf("the list of referrers has more than %d pages", page))
		}
		if resp, err = r.sendTo(ctx, http.MethodGet, next, true, nil); err != nil {
			return err
		}
	}
}

// indexOf reads a list of referrers. Anything but an index is an errNoList.
func indexOf(data []byte) (*ocispec.Index, error) {
	if len(data) > maxReferrersBytes {
		return nil, fmt.Errorf("the list of referrers has more than %d bytes", maxReferrersBytes)
	}
	var parts struct {
		Manifests json.RawMessage `json:"manifests"`
		Layers    json.RawMessage `json:"layers"`
	}
	var index ocispec.Index
	if json.Unmarshal(data, &parts) != nil || parts.Manifests == nil || parts.Layers != nil || json.Unmarshal(data, &index) != nil {
		return nil, errNoList
	}
	return &index, nil
}

// nextPage returns the URL of the next page, which must be at the same place.
func nextPage(resp *http.Response) (string, error) {
	link := resp.Header.Get("Link")
	if link == "" {
		return "", nil
	}
	path, _, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	next, err := resp.Request.URL.Parse(path)
	if !ok || err != nil || next.Scheme != resp.Request.URL.Scheme || next.Host != resp.Request.URL.Host {
		return "", errors.New("the next page of a list is on a different host")
	}
	return next.String(), nil
}

// referrersTag returns the tag that stands for a list of referrers where a registry has none.
func referrersTag(subject ocispec.Descriptor) string {
	return strings.Replace(subject.Digest.String(), ":", "-", 1)
}

// taggedIndex returns the list under the tag. Some registries take the tag for the digest, and
// answer with the manifest: that is an errdef.ErrNotFound.
func (r *repository) taggedIndex(ctx context.Context, tag string, subject ocispec.Descriptor) (*ocispec.Index, error) {
	body, _, _, err := r.open(ctx, "manifests/"+tag)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data, err := io.ReadAll(io.LimitReader(body, maxReferrersBytes+1))
	if err != nil {
		return nil, r.explain(err)
	}
	if sum(data) == subject.Digest.String() {
		return nil, r.explain(errdef.ErrNotFound)
	}
	index, err := indexOf(data)
	if err != nil {
		return nil, r.explain(fmt.Errorf("tag %s: %w", tag, err))
	}
	return index, nil
}

func (r *repository) put(ctx context.Context, desc ocispec.Descriptor, data []byte, tag string) error {
	if !slices.Contains(manifestTypes, desc.MediaType) {
		if ok, err := r.Exists(ctx, desc); ok && err == nil {
			return nil
		}
		return r.explain(r.Push(ctx, desc, bytes.NewReader(data)))
	}
	resp, err := r.send(ctx, http.MethodPut, "manifests/"+cmp.Or(tag, desc.Digest.String()), &blob{desc, data})
	if err != nil {
		return err
	}
	answer{resp: resp}.discard()
	var parts struct {
		Subject      *ocispec.Descriptor `json:"subject"`
		ArtifactType string              `json:"artifactType"`
		Config       ocispec.Descriptor  `json:"config"`
		Annotations  map[string]string   `json:"annotations"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	if parts.Subject == nil || resp.Header.Get("OCI-Subject") != "" {
		return nil
	}
	desc.ArtifactType, desc.Annotations = cmp.Or(parts.ArtifactType, parts.Config.MediaType), parts.Annotations
	return r.refer(ctx, *parts.Subject, desc)
}

// refer adds a manifest to the list under the tag of another, for a registry that keeps no list.
func (r *repository) refer(ctx context.Context, subject, desc ocispec.Descriptor) error {
	tag := referrersTag(subject)
	index, err := r.taggedIndex(ctx, tag, subject)
	if missing(err) {
		index, err = &ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}, nil
	}
	if err != nil {
		return fmt.Errorf("read its referrers: %w", err)
	}
	if slices.ContainsFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.Digest == desc.Digest }) {
		return nil
	}
	index.Manifests = append(index.Manifests, desc)
	data, err := json.Marshal(index)
	if err != nil {
		return err
	}
	return r.put(ctx, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageIndex, Digest: digestOf(sum(data)), Size: int64(len(data))}, data, tag)
}

// maxTypeBytes is the maximum length of a media type, by RFC 6838.
const maxTypeBytes = 255

// referrer returns the part of a descriptor that is kept: digest, size and types. The rest comes
// from someone who may write to the repository, at any length.
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
	// text is the registry's text, for the log.
	text string
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s answered %d %s%s", e.store, e.status, http.StatusText(e.status), publicerr.Redact(e.text))
}

// words returns the answer without the registry's text, and without the name of a mirror.
func (e *answerError) words() string {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Sprintf("the registry refuses access: %d %s", e.status, http.StatusText(e.status))
	}
	return fmt.Sprintf("the registry answered %d %s", e.status, http.StatusText(e.status))
}

// explain returns an error of oras with little of the registry's text, and with words for readers
// who may not see addresses and URLs.
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
		return publicerr.Wrap("the registry speaks plain http", fmt.Errorf("%s: it speaks plain http: set plainHTTP for %s, or use a registry with TLS", r, r.Reference.Registry))
	}
	words := publicerr.Network(err)
	if own, ok := errors.AsType[*publicerr.Error](err); ok {
		words = publicerr.Words(own)
	} else if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		words = "the registry requires credentials, and none are configured"
	} else if paused := (*pauseError)(nil); errors.As(err, &paused) {
		words = "the registry asked for a pause"
	} else if words == "" || words == "the request failed" {
		words = "the registry's response is invalid"
	}
	return publicerr.Wrap(words, fmt.Errorf("%s: %w", r, withoutURL(err)))
}

// withoutURL returns the reason why a request failed.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
