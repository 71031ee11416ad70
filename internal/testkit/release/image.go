package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// registry is where images, charts and modules are pushed to.
const registry = "ghcr.io/kubewasm/"

// recipe holds the lines of a Dockerfile that the image of a release has as well.
type recipe struct {
	entrypoint, user string
	// guests are the directories of the guests in /plugins.
	guests []string
}

var (
	entrypointLine = regexp.MustCompile(`(?m)^ENTRYPOINT \["/([a-z-]+)"\]$`)
	userLine       = regexp.MustCompile(`(?m)^USER ([0-9]+:[0-9]+)$`)
	guestsLine     = regexp.MustCompile(`(?m)^RUN for guest in ([a-z0-9 -]+); do \\$`)
	guestsDir      = regexp.MustCompile(`\./(examples/[a-z]+)/\$guest`)
)

// readRecipe reads the Dockerfile of a program of a repository.
func readRecipe(repo, name string) (recipe, error) {
	text, err := os.ReadFile(filepath.Join(repo, "cmd", name, "Dockerfile"))
	if err != nil {
		return recipe{}, err
	}
	entrypoint, user := entrypointLine.FindSubmatch(text), userLine.FindSubmatch(text)
	if entrypoint == nil || user == nil {
		return recipe{}, fmt.Errorf("cmd/%s/Dockerfile: no ENTRYPOINT and USER in the form that the release reads", name)
	}
	r := recipe{entrypoint: string(entrypoint[1]), user: string(user[1])}
	guests, dir := guestsLine.FindSubmatch(text), guestsDir.FindSubmatch(text)
	if (guests == nil) != (dir == nil) {
		return recipe{}, fmt.Errorf("cmd/%s/Dockerfile: guests are not built in the form that the release reads", name)
	}
	if guests != nil {
		for guest := range strings.FieldsSeq(string(guests[1])) {
			r.guests = append(r.guests, string(dir[1])+"/"+guest)
		}
	}
	return r, nil
}

// layout is an OCI image layout that is written.
type layout struct {
	dir   string
	index ocispec.Index
}

// openLayout returns the layout of a repository, with the manifests that it has already.
func (m *maker) openLayout(repository string) (*layout, error) {
	l := &layout{dir: filepath.Join(m.out, "oci", filepath.FromSlash(repository))}
	l.index = ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	text, err := os.ReadFile(filepath.Join(l.dir, ocispec.ImageIndexFile))
	if err == nil {
		return l, json.Unmarshal(text, &l.index)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return l, os.MkdirAll(filepath.Join(l.dir, ocispec.ImageBlobsDir, "sha256"), 0o755) //nolint:gosec // Everybody may read it.
}

// blob writes a blob.
func (l *layout) blob(mediaType string, data []byte) (ocispec.Descriptor, error) {
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	//nolint:gosec // Everybody may read it.
	return desc, os.WriteFile(filepath.Join(l.dir, ocispec.ImageBlobsDir, "sha256", desc.Digest.Encoded()), data, 0o644)
}

// json writes a blob of JSON.
func (l *layout) json(mediaType string, value any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return l.blob(mediaType, data)
}

// tag writes the index with a tag for a manifest.
func (l *layout) tag(desc ocispec.Descriptor, tag string) error {
	desc.Annotations = map[string]string{ocispec.AnnotationRefName: tag}
	l.index.Manifests = append(l.index.Manifests, desc)
	for name, value := range map[string]any{ocispec.ImageLayoutFile: ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}, ocispec.ImageIndexFile: l.index} {
		data, err := json.Marshal(value)
		if err != nil {
			return err
		}
		//nolint:gosec // Everybody may read it.
		if err := os.WriteFile(filepath.Join(l.dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// base returns the files of an image beside a program and its guests: users, certificates of CAs and a directory
// for temporary files, as distroless/static has them. The CAs are Mozilla's, without those with a constraint that
// PEM cannot express.
func base() []entry {
	var roots bytes.Buffer
	for r := range bundle.Roots() {
		if r.Constraint == nil {
			roots.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate}))
		}
	}
	return []entry{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"tmp/", 0o1777, nil},
	}
}

// labels returns the labels of an image, and the annotations of its index.
func (m *maker) labels(title string) map[string]string {
	return map[string]string{
		ocispec.AnnotationTitle: title, ocispec.AnnotationVersion: m.version, ocispec.AnnotationRevision: m.commit,
		ocispec.AnnotationSource: "https://" + root, ocispec.AnnotationLicenses: "Apache-2.0",
		ocispec.AnnotationCreated: m.time.Format(time.RFC3339),
	}
}

// image writes the image of a program for all platforms. modules are the guests by their directories.
func (m *maker) image(p program, binaries map[platform]string, modules map[string][]byte) error {
	r, err := readRecipe(m.repo, p.name)
	if err != nil {
		return err
	}
	l, err := m.openLayout(p.repository())
	if err != nil {
		return err
	}
	files := base()
	if len(r.guests) > 0 {
		files = append(files, entry{"plugins/", 0o755, nil})
	}
	for _, guest := range r.guests {
		module := modules[guest]
		if module == nil {
			return fmt.Errorf("%s was not built", guest)
		}
		files = append(files, entry{"plugins/" + filepath.Base(guest) + ".wasm", 0o644, module})
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Annotations: m.labels(p.full())}
	for _, on := range p.platforms {
		binary, err := os.ReadFile(binaries[on])
		if err != nil {
			return err
		}
		config := ocispec.Image{
			Created: &m.time, Platform: ocispec.Platform{OS: on.os, Architecture: on.arch}, RootFS: ocispec.RootFS{Type: "layers"},
			Config: ocispec.ImageConfig{
				User: r.user, Entrypoint: []string{"/" + r.entrypoint}, WorkingDir: "/", Labels: m.labels(p.full()),
				Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
			},
		}
		manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
		for _, entries := range [][]entry{files, {{r.entrypoint, 0o755, binary}}} {
			compressed, plain, err := pack(m.time, entries...)
			if err != nil {
				return err
			}
			layer, err := l.blob(ocispec.MediaTypeImageLayerGzip, compressed)
			if err != nil {
				return err
			}
			manifest.Layers = append(manifest.Layers, layer)
			config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(plain))
			config.History = append(config.History, ocispec.History{Created: &m.time, CreatedBy: "kubewasm-release"})
		}
		if manifest.Config, err = l.json(ocispec.MediaTypeImageConfig, config); err != nil {
			return err
		}
		desc, err := l.json(ocispec.MediaTypeImageManifest, manifest)
		if err != nil {
			return err
		}
		desc.Platform = &ocispec.Platform{OS: on.os, Architecture: on.arch}
		index.Manifests = append(index.Manifests, desc)
	}
	desc, err := l.json(ocispec.MediaTypeImageIndex, index)
	if err != nil {
		return err
	}
	key := "kubewasm.dev/digest." + p.repository()
	if p.minor != "" {
		key += "-" + p.minor
	}
	m.digests[key] = desc.Digest.String()
	m.list(p.repository(), p.tag(m.version), desc.Digest.String())
	return l.tag(desc, p.tag(m.version))
}

// list adds a line to images.txt.
func (m *maker) list(repository, tag, digest string) {
	m.images = append(m.images, registry+repository+":"+tag+"@"+digest)
}
