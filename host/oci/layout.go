package oci

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"
)

// layout is a store in a directory or a tar, in the OCI image layout. It is read anew for
// each fetch, and holds no file open.
type layout struct {
	path  string
	index ocispec.Index
	// entries are the places of files in a tar, nil for a directory.
	entries map[string]tarEntry
}

type tarEntry struct{ offset, size int64 }

// maxTarEntries is the maximum number of files in a tar of a layout.
const maxTarEntries = 10_000

func openLayout(file string) (*layout, error) {
	l := &layout{path: file}
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if l.entries, err = readTar(file); err != nil {
			return nil, fmt.Errorf("%s: read tar: %w", l, err)
		}
	}
	var version ocispec.ImageLayout
	if err := l.decode(ocispec.ImageLayoutFile, &version); err != nil {
		return nil, err
	}
	if version.Version != ocispec.ImageLayoutVersion {
		return nil, fmt.Errorf("%s: imageLayoutVersion is %.20q, want %s", l, version.Version, ocispec.ImageLayoutVersion)
	}
	return l, l.decode(ocispec.ImageIndexFile, &l.index)
}

// readTar returns the places of the files in a tar.
func readTar(file string) (map[string]tarEntry, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries := map[string]tarEntry{}
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		if len(entries) == maxTarEntries {
			return nil, fmt.Errorf("it has more than %d files", maxTarEntries)
		}
		// A sparse file does not lie there as it is.
		if header.Typeflag != tar.TypeReg || header.PAXRecords["GNU.sparse.major"] != "" {
			continue
		}
		// archive/tar does not read ahead.
		offset, err := f.Seek(0, io.SeekCurrent)
		if err != nil {
			return nil, err
		}
		entries[path.Clean(header.Name)] = tarEntry{offset, header.Size}
	}
}

func (l *layout) String() string { return layoutPrefix + l.path }

// open opens a file by its path in the layout. No link leads out of a directory.
func (l *layout) open(name string) (io.ReadCloser, error) {
	if l.entries == nil {
		root, err := os.OpenRoot(l.path)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		info, err := root.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s has mode %s, want a regular file", name, info.Mode())
		}
		return root.Open(name)
	}
	entry, ok := l.entries[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, entry.offset, entry.size), f}, nil
}

// decode reads a file of the layout itself.
func (l *layout) decode(name string, to any) error {
	f, err := l.open(name)
	if err != nil {
		return fmt.Errorf("%s is no image layout: %w", l, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err != nil {
		return fmt.Errorf("%s: read %s: %w", l, name, err)
	}
	if len(data) > maxManifestBytes {
		return fmt.Errorf("%s: %s has more than %d bytes", l, name, maxManifestBytes)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%s: read %s: %w", l, name, err)
	}
	return nil
}

func (l *layout) resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	var found []ocispec.Descriptor
	for _, desc := range l.index.Manifests {
		name := desc.Annotations[ocispec.AnnotationRefName]
		switch {
		case reference == "" && isArtifact(desc), name == reference && name != "":
			found = append(found, desc)
		case desc.Digest.String() == reference:
			return desc, nil
		}
	}
	switch {
	case len(found) == 1 || len(found) > 1 && same(found):
		return found[0], nil
	case len(found) > 1 && reference == "":
		return ocispec.Descriptor{}, fmt.Errorf("%s has %d artifacts: a tag or a digest is missing", l, len(found))
	case len(found) > 1:
		return ocispec.Descriptor{}, fmt.Errorf("%s has %d artifacts with the tag %s", l, len(found), reference)
	}
	// A manifest that only an index names.
	if digestRE.MatchString(reference) {
		if f, err := l.open(blobPath(reference)); err == nil {
			defer f.Close()
			size, err := io.Copy(io.Discard, io.LimitReader(f, maxManifestBytes+1))
			return ocispec.Descriptor{Digest: digestOf(reference), Size: size}, err
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s: %q: %w", l, reference, errdef.ErrNotFound)
}

// isArtifact reports whether an entry of an index is an artifact, and neither a signature nor
// anything else that belongs to an artifact.
func isArtifact(desc ocispec.Descriptor) bool {
	name := desc.Annotations[ocispec.AnnotationRefName]
	return !signatureTagRE.MatchString(name) && desc.Annotations["kind"] != "dev.cosignproject.cosign/sigs" &&
		(desc.ArtifactType == "" || wasmTypes[desc.ArtifactType])
}

func same(list []ocispec.Descriptor) bool {
	for _, desc := range list {
		if desc.Digest != list[0].Digest {
			return false
		}
	}
	return true
}

func (l *layout) fetch(_ context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
	if !digestRE.MatchString(desc.Digest.String()) {
		return nil, fmt.Errorf("digest is %.80q, want sha256: and 64 lower-case hexadecimal digits", desc.Digest)
	}
	f, err := l.open(blobPath(desc.Digest.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %s: %w", l, desc.Digest, errdef.ErrNotFound)
	}
	return f, err
}

// referrers searches the manifests in the index of the layout.
func (l *layout) referrers(ctx context.Context, subject ocispec.Descriptor) (all []ocispec.Descriptor, err error) {
	looked := 0
	for _, desc := range l.index.Manifests {
		if desc.MediaType != ocispec.MediaTypeImageManifest || desc.Digest == subject.Digest || len(all) == maxReferrers {
			continue
		}
		if looked++; looked > 16*maxReferrers {
			break
		}
		data, err := read(ctx, l, desc, maxManifestBytes)
		if err != nil {
			continue // Content of another artifact may be missing or broken.
		}
		var manifest ocispec.Manifest
		if json.Unmarshal(data, &manifest) == nil && manifest.Subject != nil && manifest.Subject.Digest == subject.Digest {
			desc.ArtifactType = manifest.ArtifactType
			all = append(all, referrer(desc))
		}
	}
	return all, nil
}

func blobPath(digest string) string { return path.Join("blobs", "sha256", digest[len("sha256:"):]) }
