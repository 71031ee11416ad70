package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/testkit/refusals"
)

// module is the smallest module.
var module = []byte("\x00asm\x01\x00\x00\x00")

// The media types of manifests.
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
	wasmType     = "application/wasm"
	tarType      = "application/vnd.oci.image.layer.v1.tar"
)

// object is JSON.
type object = map[string]any

func with(o object, changes object) object {
	o = maps.Clone(o)
	maps.Copy(o, changes)
	return o
}

// layout is an image layout that a test writes by hand.
type layout struct {
	t   *testing.T
	dir string
	// manifests are the entries of its index.
	manifests []object
}

func newLayout(t *testing.T) *layout {
	l := &layout{t: t, dir: t.TempDir()}
	if err := os.MkdirAll(filepath.Join(l.dir, "blobs", "sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.write("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return l
}

func (l *layout) write(name string, data []byte) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), data, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// blob writes a blob and returns its descriptor.
func (l *layout) blob(mediaType string, data []byte) object {
	l.t.Helper()
	digest := digestOf(data)
	l.write("blobs/sha256/"+digest[len("sha256:"):], data)
	return object{"mediaType": mediaType, "digest": digest, "size": len(data)}
}

func (l *layout) json(mediaType string, value any) object {
	l.t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.blob(mediaType, data)
}

// manifest writes a manifest of layers and returns its descriptor.
func (l *layout) manifest(config string, layers ...object) object {
	l.t.Helper()
	return l.json(manifestType, l.manifestOf(config, layers...))
}

func (l *layout) manifestOf(config string, layers ...object) object {
	l.t.Helper()
	return object{"schemaVersion": 2, "mediaType": manifestType, "config": l.blob(config, []byte("{}")), "layers": layers}
}

// tag adds a descriptor to the index and returns a reference of it.
func (l *layout) tag(desc object, tag string) oci.Reference {
	l.t.Helper()
	l.manifests = slices.DeleteFunc(l.manifests, func(o object) bool {
		a, _ := o["annotations"].(object)
		return a["org.opencontainers.image.ref.name"] == tag
	})
	l.manifests = append(l.manifests, with(desc, object{"annotations": object{"org.opencontainers.image.ref.name": tag}}))
	index, err := json.Marshal(object{"schemaVersion": 2, "mediaType": indexType, "manifests": l.manifests})
	if err != nil {
		l.t.Fatal(err)
	}
	l.write("index.json", index)
	return oci.Reference{Layout: l.dir, Tag: tag}
}

// tarFile is an entry of a tar.
type tarFile struct {
	tar.Header
	data []byte
}

func file(name string, data []byte) tarFile {
	return tarFile{tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o644}, data}
}

func tarOf(t *testing.T, files ...tarFile) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(f.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func newClient(t *testing.T, cfg oci.Config) *oci.Client {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // Not that of the machine.
	client, err := oci.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestFetchReadsTheShapesInUse(t *testing.T) {
	for name, make := range map[string]func(*layout) object{
		"an artifact with the configuration v0": func(l *layout) object {
			return l.manifest("application/vnd.wasm.config.v0+json", l.blob(wasmType, module))
		},
		"an artifact with the configuration v1": func(l *layout) object {
			return l.manifest("application/vnd.wasm.config.v1+json", l.blob(wasmType, module))
		},
		"an artifact with an empty configuration": func(l *layout) object {
			return l.manifest("application/vnd.oci.empty.v1+json", l.blob(wasmType, module))
		},
		"the layer of older tools": func(l *layout) object {
			return l.manifest("application/vnd.wasm.config.v1+json", l.blob("application/vnd.wasm.content.layer.v1+wasm", module))
		},
		"an image": func(l *layout) object {
			return l.manifest("application/vnd.oci.image.config.v1+json", l.blob(tarType, tarOf(l.t, file("plugin.wasm", module))))
		},
		"a compressed image with other files": func(l *layout) object {
			archive := tarOf(l.t, tarFile{Header: tar.Header{Typeflag: tar.TypeDir, Name: "plugins/"}}, file("plugins/README", []byte("read me")), file("./plugins/zone.wasm", module))
			return l.manifest("application/vnd.oci.image.config.v1+json", l.blob(tarType+"+gzip", gzipOf(l.t, archive)))
		},
		"a module in a layer of an image": func(l *layout) object {
			return l.manifest("application/vnd.oci.image.config.v1+json", l.blob(tarType, module))
		},
		"a compressed module in a layer of an image": func(l *layout) object {
			return l.manifest("application/vnd.oci.image.config.v1+json", l.blob(tarType+"+gzip", gzipOf(l.t, module)))
		},
		"a bundle of OPA": func(l *layout) object {
			bundle := tarOf(l.t, file("/data.json", []byte("{}")), file("/policy.wasm", module), file("/.manifest", []byte("{}")))
			return l.manifest("application/vnd.oci.image.config.v1+json", l.blob(tarType+"+gzip", gzipOf(l.t, bundle)))
		},
		"an image of docker": func(l *layout) object {
			layer := l.blob("application/vnd.docker.image.rootfs.diff.tar.gzip", gzipOf(l.t, tarOf(l.t, file("plugin.wasm", module))))
			return l.json("application/vnd.docker.distribution.manifest.v2+json", with(l.manifestOf("application/vnd.docker.container.image.v1+json", layer), object{"mediaType": "application/vnd.docker.distribution.manifest.v2+json"}))
		},
		"a manifest without a media type": func(l *layout) object {
			m := l.manifestOf("application/vnd.wasm.config.v0+json", l.blob(wasmType, module))
			delete(m, "mediaType")
			return l.json(manifestType, m)
		},
		"an index of one platform": func(l *layout) object {
			m := with(l.manifest("application/vnd.oci.image.config.v1+json", l.blob(tarType, tarOf(l.t, file("plugin.wasm", module)))), object{"platform": object{"os": "linux", "architecture": "amd64"}})
			attestation := with(m, object{"platform": object{"os": "unknown", "architecture": "unknown"}, "annotations": object{"vnd.docker.reference.type": "attestation-manifest"}})
			return l.json(indexType, object{"schemaVersion": 2, "mediaType": indexType, "manifests": []object{m, attestation}})
		},
		"an index with the architecture wasm": func(l *layout) object {
			m := l.manifest("application/vnd.wasm.config.v0+json", l.blob(wasmType, module))
			other := l.manifest("application/vnd.oci.image.config.v1+json")
			return l.json(indexType, object{"schemaVersion": 2, "manifests": []object{
				with(other, object{"platform": object{"os": "linux", "architecture": "amd64"}}),
				with(m, object{"platform": object{"os": "wasip1", "architecture": "wasm"}}),
			}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLayout(t)
			desc := make(l)
			got, err := newClient(t, oci.Config{}).Fetch(t.Context(), l.tag(desc, "1"))
			if err != nil {
				t.Fatal(err)
			}
			want := &oci.Artifact{Module: module, Digest: desc["digest"].(string)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFetchRefusesBadArtifacts(t *testing.T) {
	const config = "application/vnd.wasm.config.v0+json"
	const imageConfig = "application/vnd.oci.image.config.v1+json"
	other := digestOf([]byte("other"))
	table := refusals.New(t, "Content")
	image := func(l *layout, files ...tarFile) object {
		return l.manifest(imageConfig, l.blob(tarType, tarOf(l.t, files...)))
	}
	for _, tt := range []struct {
		name string
		make func(*layout) object
		want string
	}{
		{"the digest of the layer is that of another", func(l *layout) object {
			layer := l.blob(wasmType, module)
			l.write("blobs/sha256/"+layer["digest"].(string)[7:], []byte("\x00asm\x02\x00\x00\x00"))
			return l.manifest(config, layer)
		}, "content has the digest"},
		{"the digest of the manifest is that of another", func(l *layout) object {
			m := l.manifest(config, l.blob(wasmType, module))
			name := "blobs/sha256/" + m["digest"].(string)[7:]
			data, _ := os.ReadFile(filepath.Join(l.dir, name))
			data[len(data)-1] = ' '
			l.write(name, data)
			return m
		}, "content has the digest"},
		{"the layer is shorter than its size", func(l *layout) object {
			return l.manifest(config, with(l.blob(wasmType, module), object{"size": 9}))
		}, "it has 8 bytes, but 9 in its descriptor"},
		{"the layer is longer than its size", func(l *layout) object {
			return l.manifest(config, with(l.blob(wasmType, module), object{"size": 7}))
		}, "it has more than the 7 bytes of its descriptor"},
		{"the size is below 0", func(l *layout) object {
			return l.manifest(config, with(l.blob(wasmType, module), object{"size": -1}))
		}, "has -1 bytes, want at most"},
		{"the layer is too large", func(l *layout) object {
			return l.manifest(config, with(l.blob(wasmType, module), object{"size": 1 << 40}))
		}, "has 1099511627776 bytes, want at most 10000"},
		{"the layer is missing", func(l *layout) object {
			return l.manifest(config, object{"mediaType": wasmType, "digest": other, "size": 8})
		}, other + ": not found"},
		{"the digest is of another algorithm", func(l *layout) object {
			return l.manifest(config, with(l.blob(wasmType, module), object{"digest": "sha512:" + strings.Repeat("0", 128)}))
		}, "want sha256: and 64"},
		{"the digest is a path", func(l *layout) object {
			return l.manifest(config, with(l.blob(wasmType, module), object{"digest": "sha256:../../../../etc/passwd"}))
		}, "want sha256: and 64"},
		{"there are two layers", func(l *layout) object {
			return l.manifest(config, l.blob(wasmType, module), l.blob(wasmType, append(module, 0)))
		}, "it has 2 layers, want one"},
		{"there is no layer", func(l *layout) object {
			return l.json(manifestType, with(l.manifestOf(config), object{"layers": []object{}}))
		}, "it has 0 layers, want one"},
		{"the layer is of another type", func(l *layout) object {
			return l.manifest(config, l.blob("text/html", module))
		}, `the media type of its layer is "text/html"`},
		{"the layer is compressed in another way", func(l *layout) object {
			return l.manifest(imageConfig, l.blob(tarType+"+zstd", module))
		}, `the media type of its layer is "application/vnd.oci.image.layer.v1.tar+zstd"`},
		{"the layer is foreign", func(l *layout) object {
			return l.manifest(config, with(l.blob(wasmType, module), object{"urls": []string{"https://example.com/x"}}))
		}, "its layer is at external urls"},
		{"the layer must not be distributed", func(l *layout) object {
			return l.manifest(imageConfig, l.blob("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", module))
		}, "the media type of its layer is"},
		{"the layer is no module", func(l *layout) object {
			return l.manifest(config, l.blob(wasmType, []byte("#!/bin/sh")))
		}, "its 9 bytes are not a WebAssembly module"},
		{"the layer is empty", func(l *layout) object {
			return l.manifest(config, l.blob(wasmType, nil))
		}, "its 0 bytes are not a WebAssembly module"},
		{"the manifest is no JSON", func(l *layout) object {
			return l.blob(manifestType, []byte("{"))
		}, "read manifest: unexpected end"},
		{"the manifest is huge", func(l *layout) object {
			return with(l.manifest(config, l.blob(wasmType, module)), object{"size": 5 << 20})
		}, "has 5242880 bytes, want at most 4194304"},
		{"the manifest is deeply nested", func(l *layout) object {
			return l.blob(manifestType, []byte(`{"schemaVersion":2,"layers":`+strings.Repeat("[", 1<<20)))
		}, "exceeded max depth"},
		{"the manifest is of the first version", func(l *layout) object {
			return l.json(manifestType, with(l.manifestOf(config, l.blob(wasmType, module)), object{"schemaVersion": 1}))
		}, "schemaVersion is 1, want 2"},
		{"the manifest is an index, too", func(l *layout) object {
			return l.json(manifestType, with(l.manifestOf(config, l.blob(wasmType, module)), object{"manifests": []object{}}))
		}, "want either layers or manifests"},
		{"the manifest calls itself an index", func(l *layout) object {
			return l.json(manifestType, with(l.manifestOf(config, l.blob(wasmType, module)), object{"mediaType": indexType}))
		}, "but it has layers"},
		{"the manifest is of an unknown type", func(l *layout) object {
			return l.json(manifestType, with(l.manifestOf(config, l.blob(wasmType, module)), object{"mediaType": "text/plain"}))
		}, `mediaType is "text/plain"`},
		{"the manifest belongs to another", func(l *layout) object {
			return l.json(manifestType, with(l.manifestOf(config, l.blob(wasmType, module)), object{"subject": object{"mediaType": manifestType, "digest": other, "size": 1}}))
		}, "it is part of " + other},
		{"the index is empty", func(l *layout) object {
			return l.json(indexType, object{"schemaVersion": 2, "manifests": []object{}})
		}, "index: it has no manifests"},
		{"the index has no manifest for WebAssembly", func(l *layout) object {
			m := l.manifest(config, l.blob(wasmType, module))
			return l.json(indexType, object{"schemaVersion": 2, "manifests": []object{
				with(m, object{"platform": object{"os": "linux", "architecture": "amd64"}}),
				with(m, object{"platform": object{"os": "linux", "architecture": "arm64"}}),
			}})
		}, "want one for the architecture wasm; platforms are linux/amd64, linux/arm64"},
		{"the index leads to an index", func(l *layout) object {
			inner := l.json(indexType, object{"schemaVersion": 2, "manifests": []object{l.manifest(config, l.blob(wasmType, module))}})
			return l.json(indexType, object{"schemaVersion": 2, "manifests": []object{inner}})
		}, "it leads to another index"},
		{"the image has no module", func(l *layout) object { return image(l, file("README", nil)) }, "it has no .wasm file"},
		{"the image has two modules", func(l *layout) object { return image(l, file("a.wasm", module), file("b.wasm", module)) }, `it has "a.wasm" and "b.wasm"`},
		{"the image has one module twice", func(l *layout) object { return image(l, file("a.wasm", module), file("./a.wasm", module)) }, `it has "a.wasm" and "a.wasm"`},
		{"a file leads out of the image", func(l *layout) object { return image(l, file("../../etc/a.wasm", module)) }, "leads out of the image"},
		{"the module is a symbolic link", func(l *layout) object {
			return image(l, tarFile{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "a.wasm", Linkname: "/etc/passwd"}})
		}, `file "a.wasm" is no regular file`},
		{"the module is a hard link", func(l *layout) object {
			return image(l, tarFile{Header: tar.Header{Typeflag: tar.TypeLink, Name: "a.wasm", Linkname: "b"}})
		}, `file "a.wasm" is no regular file`},
		{"the module is a device", func(l *layout) object {
			return image(l, tarFile{Header: tar.Header{Typeflag: tar.TypeChar, Name: "a.wasm"}})
		}, `file "a.wasm" is no regular file`},
		{"the module is deleted", func(l *layout) object { return image(l, file(".wh.a.wasm", module)) }, "it has no .wasm file"},
		{"the module in the image is too large", func(l *layout) object {
			return l.manifest(imageConfig, l.blob(tarType+"+gzip", gzipOf(l.t, tarOf(l.t, file("a.wasm", make([]byte, 20_000))))))
		}, `file "a.wasm" has 20000 bytes, more than 10000`},
		{"the image is a bomb", func(l *layout) object {
			return l.manifest(imageConfig, l.blob(tarType+"+gzip", gzipOf(l.t, tarOf(l.t, file("zeros", make([]byte, 3<<20)), file("a.wasm", module)))))
		}, "it has more than 10000 bytes"},
		{"the image has very many files", func(l *layout) object {
			return l.manifest(imageConfig, l.blob(tarType+"+gzip", gzipOf(l.t, tarOf(l.t, slices.Repeat([]tarFile{file("a", nil)}, 1001)...))))
		}, "it has more than 1000 files"},
		{"the module is a directory", func(l *layout) object {
			return image(l, tarFile{Header: tar.Header{Typeflag: tar.TypeDir, Name: "a.wasm/"}})
		}, "it has no .wasm file"},
		{"the image is no tar", func(l *layout) object { return l.manifest(imageConfig, l.blob(tarType, bytes.Repeat([]byte{1}, 600))) }, "read tar"},
		{"the image ends early", func(l *layout) object {
			return l.manifest(imageConfig, l.blob(tarType, tarOf(l.t, file("a.wasm", module))[:514]))
		}, "unexpected EOF"},
		{"the image is no gzip", func(l *layout) object { return l.manifest(imageConfig, l.blob(tarType+"+gzip", []byte{0x1f, 0x8b, 0})) }, "decompress"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLayout(t)
			err := refused(t, newClient(t, oci.Config{
				MaxBytes: 10_000, Trust: []oci.Trust{{Repositories: []string{"*"}, Unsigned: true}},
			}), l.tag(tt.make(l), "1"))
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			table.Add(tt.name, err)
		})
	}
}

// refused loads a plugin from a reference, and returns the error after which nothing was
// compiled.
func refused(t *testing.T, client *oci.Client, ref oci.Reference) error {
	t.Helper()
	cache := t.TempDir()
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: cache})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	plugin, err := rt.Load(t.Context(), host.Config{Name: "zone", Module: host.ModuleConfig{Source: client.Source(ref.String())}}, host.Adapter{Kind: abi.KindScheduler})
	if err == nil {
		t.Fatalf("%s was loaded: %s", ref, plugin.Digest())
	}
	err = errors.Unwrap(errors.Unwrap(err)) // Without that it is of a load, and the name of the plugin.
	for _, dir := range []string{"kubewasm-modules"} {
		files, globErr := filepath.Glob(filepath.Join(cache, dir, "*"))
		if len(files) != 0 || globErr != nil {
			t.Errorf("something was compiled: %v, %v", files, globErr)
		}
	}
	if a, fetchErr := client.Fetch(t.Context(), ref); a != nil || fetchErr == nil || fetchErr.Error() != err.Error() {
		t.Errorf("Fetch returns %v, %v, and the source %v", a, fetchErr, err)
	}
	return err
}
