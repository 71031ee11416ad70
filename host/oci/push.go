package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content/oci"
	"oras.land/oras-go/v2/errdef"
)

// PushOptions configure the manifest and the content beside a pushed module. The zero value is the
// default. The same module and options have the same digest, everywhere and always.
type PushOptions struct {
	// Image pushes an image with the file plugin.wasm instead of an artifact: image volumes
	// of containerd mount images only.
	Image bool
	// FileName is the name of the module: the title of the layer, by which CRI-O mounts an
	// artifact, or the file in the image. Default plugin.wasm.
	FileName string
	// Annotations are those of the manifest, such as org.opencontainers.image.version.
	Annotations map[string]string
	// Created is written into the configuration, in UTC and whole seconds. The default is
	// the beginning of 1970, so that the digest depends on nothing but the module.
	Created time.Time
	// Attached are documents about the artifact, such as an SBOM, that refer to it.
	Attached []Attachment
}

// compiledMediaType returns the type of the [Attachment] with the compiled form of a module for a
// platform, as returned by [host.Precompile].
func compiledMediaType(platform string) string {
	return "application/vnd.kubewasm.compiled." + strings.ReplaceAll(platform, "/", "-")
}

// Attachment is a document that refers to an artifact.
type Attachment struct {
	// Type is its media type, such as application/spdx+json.
	Type string
	Data []byte
}

// target is a store that can be written to.
type target interface {
	store
	// put writes a blob, or a manifest with a tag unless that is empty. Existing content is not
	// written again, except for the tag.
	put(ctx context.Context, desc ocispec.Descriptor, data []byte, tag string) error
}

// layoutTarget writes to a directory.
type layoutTarget struct {
	layout
	store *oci.Store
}

func (l *layoutTarget) put(ctx context.Context, desc ocispec.Descriptor, data []byte, tag string) error {
	err := l.store.Push(ctx, desc, bytes.NewReader(data))
	if errors.Is(err, errdef.ErrAlreadyExists) {
		err = nil
	}
	if err == nil && tag != "" {
		err = l.store.Tag(ctx, desc, tag)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", &l.layout, err)
	}
	return nil
}

// target returns the store for writing to a reference: the registry, never a mirror.
func (c *Client) target(ref Reference) (target, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	if ref.Layout == "" {
		settings, err := c.files.current()
		if err != nil {
			return nil, err
		}
		return c.repository(settings, ref.Registry, ref.Repository)
	}
	if info, err := os.Stat(ref.Layout); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is a file: write to a directory and make a tar of it", ref.Name())
	}
	s, err := oci.New(ref.Layout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref.Name(), err)
	}
	return &layoutTarget{layout{path: ref.Layout}, s}, nil
}

const emptyConfig = "{}"

var epoch = time.Unix(0, 0).UTC()

// Push writes a module to the registry or the layout of a reference under its tag, and
// returns the digest of the manifest. It does not look into the module.
func (c *Client) Push(ctx context.Context, ref Reference, module []byte, opts PushOptions) (digest string, err error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	fail := func(err error) (string, error) { return "", fmt.Errorf("push %s: %w", ref, err) }
	if ref.Digest != "" || ref.Tag == "" {
		return fail(errors.New("want a reference with a tag and without a digest"))
	}
	to, err := c.target(ref)
	if err != nil {
		return fail(err)
	}
	name := cmp.Or(opts.FileName, "plugin.wasm")
	created := epoch
	if !opts.Created.IsZero() {
		created = opts.Created.UTC().Truncate(time.Second)
	}
	make := artifactOf
	if opts.Image {
		make = imageOf
	}
	manifest, blobs, err := make(module, name, created)
	if err != nil {
		return fail(err)
	}
	manifest.Annotations = opts.Annotations
	desc, err := putManifest(ctx, to, manifest, blobs, ref.Tag)
	if err != nil {
		return fail(err)
	}
	for _, a := range opts.Attached {
		if _, err := attach(ctx, to, desc, a.Type, a.Data, nil); err != nil {
			return fail(fmt.Errorf("attach %s: %w", a.Type, err))
		}
	}
	return desc.Digest.String(), nil
}

// blob is content with its descriptor.
type blob struct {
	ocispec.Descriptor
	data []byte
}

func newBlob(mediaType string, data []byte) blob {
	return blob{ocispec.Descriptor{MediaType: mediaType, Digest: digestOf(sum(data)), Size: int64(len(data))}, data}
}

func newManifest(config blob, layers ...blob) (ocispec.Manifest, []blob) {
	m := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: config.Descriptor,
	}
	for _, layer := range layers {
		m.Layers = append(m.Layers, layer.Descriptor)
	}
	return m, append(layers, config)
}

// artifactOf returns the manifest of a Wasm OCI artifact, see
// https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/.
func artifactOf(module []byte, name string, created time.Time) (ocispec.Manifest, []blob, error) {
	layer := newBlob(mediaTypeWasm, module)
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: name}
	config, err := json.Marshal(struct {
		Created      time.Time `json:"created"`
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		LayerDigests []string  `json:"layerDigests"`
	}{created, "wasm", "wasip1", []string{layer.Digest.String()}})
	m, blobs := newManifest(newBlob(mediaTypeConfig, config), layer)
	return m, blobs, err
}

// imageOf returns the manifest of an image with one file. The layer is not compressed: the output
// of a compressor changes with its version.
func imageOf(module []byte, name string, created time.Time) (ocispec.Manifest, []blob, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(module)), Mode: 0o644, ModTime: epoch, Format: tar.FormatUSTAR})
	if err == nil {
		_, err = w.Write(module)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return ocispec.Manifest{}, nil, fmt.Errorf("make layer: %w", err)
	}
	layer := newBlob(ocispec.MediaTypeImageLayer, archive.Bytes())
	image := ocispec.Image{Created: &created, RootFS: ocispec.RootFS{Type: "layers", DiffIDs: digests(layer)}}
	// Runtimes of nodes refuse a different operating system, and accept any architecture of an
	// image without an index.
	image.OS, image.Architecture = "linux", "wasm"
	config, err := json.Marshal(image)
	m, blobs := newManifest(newBlob(ocispec.MediaTypeImageConfig, config), layer)
	return m, blobs, err
}

// putManifest writes a manifest after its blobs.
func putManifest(ctx context.Context, to target, m ocispec.Manifest, blobs []blob, tag string) (ocispec.Descriptor, error) {
	for _, b := range blobs {
		if err := to.put(ctx, b.Descriptor, b.data, ""); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	b := newBlob(m.MediaType, data)
	return b.Descriptor, to.put(ctx, b.Descriptor, data, tag)
}

// attach writes a document that refers to a manifest.
func attach(ctx context.Context, to target, subject ocispec.Descriptor, mediaType string, data []byte, annotations map[string]string) (ocispec.Descriptor, error) {
	m, blobs := newManifest(newBlob(ocispec.MediaTypeEmptyJSON, []byte(emptyConfig)), newBlob(mediaType, data))
	m.ArtifactType, m.Annotations = mediaType, annotations
	m.Subject = &ocispec.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}
	return putManifest(ctx, to, m, blobs, "")
}

// Copy writes an artifact to another registry or layout, with its signatures and everything else
// that refers to it, and returns its digest. Copy compares digests but does not verify signatures:
// the one who fetches the copy does. to has a tag, and no digest.
func (c *Client) Copy(ctx context.Context, from, to Reference) (digest string, err error) {
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	fail := func(err error) (string, error) { return "", fmt.Errorf("copy %s to %s: %w", from, to, err) }
	if to.Digest != "" || to.Tag == "" {
		return fail(errors.New("want a destination with a tag and without a digest"))
	}
	r, err := c.reader(from)
	if err != nil {
		return fail(err)
	}
	target, err := c.target(to)
	if err != nil {
		return fail(err)
	}
	desc, err := r.resolve(ctx, from.wanted())
	if err != nil {
		return fail(err)
	}
	if _, err := r.readResolved(ctx, from.wanted(), &desc, maxManifestBytes); err != nil {
		return fail(err)
	}
	if err := r.copy(ctx, target, desc, to.Tag, 0); err != nil {
		return fail(err)
	}
	tag := signatureTag(desc.Digest.String())
	signatures, err := r.resolve(ctx, tag)
	if err == nil {
		if _, err = r.readResolved(ctx, tag, &signatures, maxManifestBytes); err == nil {
			err = r.copy(ctx, target, signatures, tag, 0)
		}
	} else if missing(err) {
		err = nil
	}
	if err != nil {
		return fail(fmt.Errorf("signatures: %w", err))
	}
	referrers, err := r.referrers(ctx, desc)
	if unlisted, ok := errors.AsType[*unlistedError](err); err != nil && (!ok || unlisted.refused()) {
		return fail(fmt.Errorf("its referrers: %w", err))
	}
	for _, referrer := range referrers {
		if err := r.copy(ctx, target, referrer, "", 0); err != nil {
			return fail(fmt.Errorf("its referrers: %w", err))
		}
	}
	return desc.Digest.String(), nil
}

// maxIndexDepth is the maximum depth of nested indexes.
const maxIndexDepth = 3

// copy writes a manifest after everything that it leads to.
func (r *reader) copy(ctx context.Context, to target, desc ocispec.Descriptor, tag string, depth int) error {
	data, err := r.read(ctx, desc, maxManifestBytes)
	if err != nil {
		return err
	}
	kind, err := kindOf(data)
	if err != nil {
		return err
	}
	var parts struct {
		MediaType string               `json:"mediaType"`
		Config    *ocispec.Descriptor  `json:"config"`
		Layers    []ocispec.Descriptor `json:"layers"`
		Manifests []ocispec.Descriptor `json:"manifests"`
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	for _, child := range parts.Manifests {
		if depth == maxIndexDepth {
			return fmt.Errorf("indexes are nested more than %d deep", maxIndexDepth)
		}
		if err := r.copy(ctx, to, child, "", depth+1); err != nil {
			return err
		}
	}
	if parts.Config != nil {
		parts.Layers = append(parts.Layers, *parts.Config)
	}
	for _, part := range parts.Layers {
		content, err := r.read(ctx, part, r.settings.maxBytes)
		if err != nil {
			return err
		}
		part.Annotations, part.Data = nil, nil
		if err := to.put(ctx, part, content, ""); err != nil {
			return err
		}
	}
	desc = ocispec.Descriptor{MediaType: cmp.Or(parts.MediaType, kind), Digest: desc.Digest, Size: desc.Size}
	return to.put(ctx, desc, data, tag)
}
