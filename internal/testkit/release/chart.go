package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// The media types of helm push.
const (
	chartConfigType = "application/vnd.cncf.helm.config.v1+json"
	chartLayerType  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// chart writes the package of the chart, as helm package does, and the artifact that helm push makes of it. The
// annotations of Chart.yaml have the digests of the images.
func (m *maker) chart() error {
	c, err := loader.LoadDir(filepath.Join(m.repo, "charts/kubewasm"))
	if err != nil {
		return err
	}
	c.Metadata.Version, c.Metadata.AppVersion = m.number(), m.version
	if c.Metadata.Annotations == nil {
		c.Metadata.Annotations = map[string]string{}
	}
	maps.Copy(c.Metadata.Annotations, m.digests)
	c.ModTime, c.SchemaModTime = m.time, m.time
	for _, f := range c.Raw {
		f.ModTime = m.time
	}
	for _, f := range c.Templates {
		f.ModTime = m.time
	}
	for _, f := range c.Files {
		f.ModTime = m.time
	}
	file, err := chartutil.Save(c, m.out)
	if err != nil {
		return err
	}
	packed, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	config, err := json.Marshal(c.Metadata)
	if err != nil {
		return err
	}
	repository := "charts/" + c.Name()
	l, err := m.openLayout(repository)
	if err != nil {
		return err
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Layers: make([]ocispec.Descriptor, 1),
		Annotations: map[string]string{
			ocispec.AnnotationTitle: c.Name(), ocispec.AnnotationVersion: m.number(), ocispec.AnnotationDescription: c.Metadata.Description,
			ocispec.AnnotationURL: c.Metadata.Home, ocispec.AnnotationSource: "https://" + root, ocispec.AnnotationCreated: m.time.Format(time.RFC3339),
		},
	}
	if manifest.Config, err = l.blob(chartConfigType, config); err != nil {
		return err
	}
	if manifest.Layers[0], err = l.blob(chartLayerType, packed); err != nil {
		return err
	}
	desc, err := l.json(ocispec.MediaTypeImageManifest, manifest)
	if err != nil {
		return err
	}
	m.list(repository, m.number(), desc.Digest.String())
	if err := l.tag(desc, m.number()); err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	return nil
}
