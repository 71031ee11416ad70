package oci

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/wasmlayer"
)

// The media types of modules, and of images that have one.
const (
	mediaTypeWasm           = "application/wasm"
	mediaTypeWasmOld        = "application/vnd.wasm.content.layer.v1+wasm"
	mediaTypeConfig         = "application/vnd.wasm.config.v0+json"
	mediaTypeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	mediaTypeDockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	mediaTypeDockerLayer    = "application/vnd.docker.image.rootfs.diff.tar.gzip"
)

// wasmTypes are the media types by which an artifact, its configuration or its layer is a
// WebAssembly module.
var wasmTypes = map[string]bool{
	mediaTypeWasm: true, mediaTypeWasmOld: true, mediaTypeConfig: true, "application/vnd.wasm.config.v1+json": true,
}

// Artifact is a module with the description from its manifest. Every byte was verified by the
// digests that lead to it.
type Artifact struct {
	// Module is the module. It must not be changed.
	Module []byte
	// Digest is the digest of the manifest or index of the reference, to which signatures apply; it
	// begins with "sha256:".
	Digest string
	// Annotations are those of the manifest. They are covered by its digest.
	Annotations map[string]string
	// SignedBy names the signers of the rule of [Trust] whose signatures were verified.
	SignedBy []string
	// Stale reports that the registry is away, and that the artifact comes from the cache.
	Stale bool
}

// fetched is an artifact that was fetched, with or without its module.
type fetched struct {
	*Artifact
	// sha256 is the digest of the module.
	sha256 string
	// kept records the artifact as the one to load by its reference while the registry is away, and
	// refuses older versions from then on. nil without a module.
	kept func()
}

// module finds the module of a manifest or an index. get reads the content of a descriptor.
func (a *fetched) module(ctx context.Context, root []byte, maxBytes int64, get func(context.Context, ocispec.Descriptor, int64) ([]byte, error)) error {
	kind, err := kindOf(root)
	if err != nil {
		return err
	}
	if kind == ocispec.MediaTypeImageIndex {
		var index ocispec.Index
		if err := json.Unmarshal(root, &index); err != nil {
			return fmt.Errorf("read index: %w", err)
		}
		desc, err := choose(index.Manifests)
		if err != nil {
			return fmt.Errorf("index: %w", err)
		}
		if root, err = get(ctx, desc, maxManifestBytes); err != nil {
			return err
		}
		if kind, err = kindOf(root); err != nil {
			return err
		}
		if kind != ocispec.MediaTypeImageManifest {
			return errors.New("index: it leads to another index, want a manifest")
		}
	}
	var manifest ocispec.Manifest
	if err := json.Unmarshal(root, &manifest); err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	a.Annotations = manifest.Annotations
	layer, isImage, err := moduleLayer(&manifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	data, err := get(ctx, layer, maxBytes)
	if err != nil {
		return err
	}
	if isImage {
		if data, err = wasmlayer.Unpack(data, maxBytes); err != nil {
			return fmt.Errorf("layer %s: %w", layer.Digest, err)
		}
	}
	if !bytes.HasPrefix(data, []byte(wasmlayer.Magic)) {
		return fmt.Errorf("layer %s: its %d bytes are not a WebAssembly module", layer.Digest, len(data))
	}
	a.Module, a.sha256 = data, layer.Digest.String()
	if isImage {
		a.sha256 = sum(data)
	}
	return nil
}

// kindOf returns the kind of bytes, manifest or index, as a media type of OCI. The registry's own
// statement is ignored: the digest does not cover it.
func kindOf(data []byte) (string, error) {
	var either struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     string          `json:"mediaType"`
		Layers        json.RawMessage `json:"layers"`
		Manifests     json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(data, &either); err != nil {
		return "", fmt.Errorf("read manifest: %w", err)
	}
	if either.SchemaVersion != 2 {
		return "", fmt.Errorf("manifest: schemaVersion is %d, want 2", either.SchemaVersion)
	}
	if (either.Layers != nil) == (either.Manifests != nil) {
		// A text with both would be one kind to the signer and the other here.
		return "", errors.New("manifest: want either layers or manifests")
	}
	isIndex := either.Manifests != nil
	switch either.MediaType {
	case "":
	case ocispec.MediaTypeImageManifest, mediaTypeDockerManifest:
		if isIndex {
			return "", fmt.Errorf("manifest: mediaType is %s, but it has manifests", either.MediaType)
		}
	case ocispec.MediaTypeImageIndex, mediaTypeDockerList:
		if !isIndex {
			return "", fmt.Errorf("manifest: mediaType is %s, but it has layers", either.MediaType)
		}
	default:
		return "", fmt.Errorf("manifest: mediaType is %.100q, want an image manifest or an index", either.MediaType)
	}
	if isIndex {
		return ocispec.MediaTypeImageIndex, nil
	}
	return ocispec.MediaTypeImageManifest, nil
}

// choose returns the manifest for WebAssembly of an index, or its only one.
func choose(manifests []ocispec.Descriptor) (ocispec.Descriptor, error) {
	var wasm, others []ocispec.Descriptor
	var platforms []string
	for _, desc := range manifests {
		switch p := desc.Platform; {
		case desc.Annotations["vnd.docker.reference.type"] != "":
			// buildkit's attestations.
		case p != nil && p.Architecture == "wasm":
			wasm = append(wasm, desc)
		default:
			others = append(others, desc)
		}
		if p := desc.Platform; p != nil {
			platforms = append(platforms, fmt.Sprintf("%.20s/%.20s", p.OS, p.Architecture))
		}
	}
	switch {
	case len(wasm) == 1:
		return wasm[0], nil
	case len(wasm) == 0 && len(others) == 1:
		return others[0], nil
	case len(wasm) == 0 && len(others) == 0:
		return ocispec.Descriptor{}, errors.New("it has no manifests")
	}
	return ocispec.Descriptor{}, fmt.Errorf("it has %d manifests, want one for the architecture wasm; platforms are %s",
		len(manifests), strings.Join(platforms[:min(len(platforms), 8)], ", "))
}

// imageLayers are the media types of layers that may hold the module as a file.
var imageLayers = []string{ocispec.MediaTypeImageLayer, ocispec.MediaTypeImageLayerGzip, mediaTypeDockerLayer}

// moduleLayer returns the layer of a manifest that is the module or, for an image, that holds it as
// a file.
func moduleLayer(m *ocispec.Manifest) (layer ocispec.Descriptor, isImage bool, err error) {
	if m.Subject != nil {
		return layer, false, fmt.Errorf("it is part of %.80s, not a separate artifact", m.Subject.Digest)
	}
	if len(m.Layers) != 1 {
		return layer, false, fmt.Errorf("it has %d layers, want one", len(m.Layers))
	}
	layer = m.Layers[0]
	if len(layer.URLs) != 0 {
		return layer, false, errors.New("its layer is at external urls, want one in the registry")
	}
	switch {
	case layer.MediaType == mediaTypeWasm || layer.MediaType == mediaTypeWasmOld:
		return layer, false, nil
	case slices.Contains(imageLayers, layer.MediaType):
		return layer, true, nil
	}
	return layer, false, fmt.Errorf("the media type of its layer is %.100q, want %s or a layer of an image, uncompressed or gzip", layer.MediaType, mediaTypeWasm)
}

// errShort is the error of a download that ended early; another attempt may succeed.
var errShort = errors.New("it ended early")

// sizeError is the error of content whose size differs from that of its descriptor.
type sizeError struct{ want, got int64 }

func (e *sizeError) Error() string {
	if e.got > e.want {
		return fmt.Sprintf("it has more than the %d bytes of its descriptor", e.want)
	}
	return fmt.Sprintf("it has %d bytes, but %d in its descriptor", e.got, e.want)
}

// read returns the bytes of a descriptor, after their size and digest were compared with it.
func read(ctx context.Context, from store, desc ocispec.Descriptor, maxBytes int64) ([]byte, error) {
	if err := checkDescriptor(desc, maxBytes); err != nil {
		return nil, err
	}
	body, err := from.fetch(ctx, desc)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// The place may be a mirror, whose name is for the operator only.
	read := func(format string, args ...any) error {
		why := fmt.Errorf(format, args...)
		words := why.Error()
		if errors.Is(why, errShort) {
			words = errShort.Error()
		}
		return publicerr.Wrap(fmt.Sprintf("read %s: %s", desc.Digest, words), fmt.Errorf("%s: read %s: %w", from, desc.Digest, why))
	}
	// The size is that of the descriptor: the sender may stop early.
	var content bytes.Buffer
	content.Grow(int(min(desc.Size, 1<<20)))
	n, err := io.Copy(&content, io.LimitReader(body, desc.Size+1))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil && n < desc.Size:
		return nil, read("%w after %d of %d bytes: %w", errShort, n, desc.Size, withoutURL(err))
	case n < desc.Size && sum(content.Bytes()) == desc.Digest.String():
		return nil, read("%w", &sizeError{want: desc.Size, got: n})
	case n < desc.Size:
		return nil, read("%w after %d of %d bytes", errShort, n, desc.Size)
	case n > desc.Size:
		beyond, _ := io.Copy(io.Discard, io.LimitReader(body, maxBytes-desc.Size))
		return nil, read("%w", &sizeError{want: desc.Size, got: n + beyond})
	}
	if got := sum(content.Bytes()); got != desc.Digest.String() {
		err := &contentError{Want: desc.Digest.String(), Got: got}
		return nil, publicerr.Wrap(err.Error(), fmt.Errorf("%s: %w", from, err))
	}
	return content.Bytes(), nil
}

// contentError is the error of content that does not have its digest.
type contentError struct {
	Want, Got string // As in "sha256:0123…".
}

func (e *contentError) Error() string {
	return fmt.Sprintf("content has the digest %s, want %s", e.Got, e.Want)
}

// checkDescriptor returns an error for a descriptor that must not be fetched.
func checkDescriptor(desc ocispec.Descriptor, maxBytes int64) error {
	if !digestRE.MatchString(desc.Digest.String()) {
		return fmt.Errorf("digest is %.80q, want sha256: and 64 lower-case hexadecimal digits", desc.Digest)
	}
	if desc.Size < 0 || desc.Size > maxBytes {
		return fmt.Errorf("%s has %d bytes, want at most %d", desc.Digest, desc.Size, maxBytes)
	}
	return nil
}

func digestOf(s string) digest.Digest { return digest.Digest(s) }

// sum returns the digest of bytes, as in "sha256:0123…".
func sum(data []byte) string {
	h := sha256.New()
	// By the megabyte: Go's garbage collector waits for each write.
	for piece := range slices.Chunk(data, 1<<20) {
		h.Write(piece)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
