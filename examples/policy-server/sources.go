package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
)

// sources is a sources.yml.
type sources struct {
	// InsecureSources are hosts that are reached without TLS.
	InsecureSources []string `json:"insecure_sources"`
	// SourceAuthorities are certificates of CAs, by hosts.
	SourceAuthorities map[string][]authority `json:"source_authorities"`
}

// authority is a certificate in PEM or DER: Data, or in the file Path.
type authority struct {
	Type string `json:"type"`
	Data string `json:"data"`
	Path string `json:"path"`
}

// readSources reads a sources.yml; no file, an empty name, is the zero value.
func readSources(file string) (sources, error) {
	var s sources
	if file == "" {
		return s, nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read sources: %w", err)
	}
	return s, nil
}

// pem returns the certificate in PEM.
func (a *authority) pem() (string, error) {
	data := []byte(a.Data)
	switch a.Type {
	case "Data":
	case "Path":
		var err error
		if data, err = os.ReadFile(a.Path); err != nil {
			return "", err
		}
	default:
		return "", fmt.Errorf("type is %q, want Data or Path", a.Type)
	}
	if block, _ := pem.Decode(data); block != nil {
		return string(data) + "\n", nil
	}
	if _, err := x509.ParseCertificate(data); err != nil {
		return "", errors.New("it is no certificate in PEM or DER")
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: data})), nil
}

// registries returns how the hosts are reached, sorted by their names. Errors are all mistakes,
// joined.
func (s *sources) registries() ([]oci.Registry, error) {
	byHost := map[string]*oci.Registry{}
	of := func(host string) *oci.Registry {
		if byHost[host] == nil {
			byHost[host] = &oci.Registry{Host: host}
		}
		return byHost[host]
	}
	var errs []error
	for _, host := range s.InsecureSources {
		of(host).PlainHTTP = true
	}
	for _, host := range slices.Sorted(maps.Keys(s.SourceAuthorities)) {
		for i, a := range s.SourceAuthorities[host] {
			text, err := a.pem()
			if err != nil {
				errs = append(errs, fmt.Errorf("source_authorities of %s: [%d]: %w", host, i, err))
			}
			of(host).CA += text
		}
	}
	var registries []oci.Registry
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		registries = append(registries, *byHost[host])
	}
	return registries, errors.Join(errs...)
}

// artifacts are where modules come from.
type artifacts struct {
	client *oci.Client
	// https are clients for hosts with CAs of their own.
	https map[string]*http.Client
	// verified reports whether modules need signatures, which only registries have.
	verified bool
}

// newArtifacts returns where modules come from by the settings. Errors are the mistakes of all
// files, joined.
func newArtifacts(o *options, logger *slog.Logger) (*artifacts, error) {
	s, sourcesErr := readSources(o.sources)
	registries, registriesErr := s.registries()
	trust, verificationErr := readVerification(o.verification)
	keyless, keylessErr := newKeyless(o.trustRoot, o.trustRootCache)
	cfg := oci.Config{
		CacheDir: filepath.Join(o.downloadDir, "modules"), Registries: registries, Trust: []oci.Trust{trust},
		DockerConfig: o.dockerConfig, Keyless: keyless, Logger: logger,
	}
	if o.dockerConfig != "" {
		// Kubewarden's variable names the directory.
		if info, err := os.Stat(o.dockerConfig); err == nil && info.IsDir() {
			cfg.DockerConfig = filepath.Join(o.dockerConfig, "config.json")
		}
	}
	var client *oci.Client
	err := errors.Join(sourcesErr, registriesErr, verificationErr, keylessErr)
	if verificationErr == nil {
		var clientErr error
		client, clientErr = oci.New(cfg)
		err = errors.Join(err, clientErr)
	}
	if err != nil {
		return nil, err
	}
	if trust.Unsigned {
		logger.Warn("there is no verification-path: modules are taken without signatures")
	}
	a := &artifacts{client: client, https: map[string]*http.Client{}, verified: !trust.Unsigned}
	for _, r := range registries {
		if r.CA == "" {
			continue
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		pool.AppendCertsFromPEM([]byte(r.CA)) // It was parsed.
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		a.https[r.Host] = &http.Client{Transport: transport}
	}
	return a, nil
}

// source returns the source of a module as policies.yml names it: a reference with or without
// registry://, https:// or file://.
func (a *artifacts) source(module string) (host.Source, error) {
	scheme, rest, ok := strings.Cut(module, "://")
	if !ok {
		scheme, rest = "registry", module
	}
	switch scheme {
	case "registry", "oci":
		if _, path, _ := strings.Cut(rest, "/"); !strings.ContainsAny(path, ":@") {
			rest += ":latest"
		}
		ref, err := oci.ParseReference(rest)
		if err != nil {
			return nil, err
		}
		if ref.Layout != "" {
			return nil, errors.New("a module names no image layout, which is a directory of the server")
		}
		return a.client.Source(rest), nil
	case "file", "https":
		if a.verified {
			return nil, fmt.Errorf("a module by %s has no signatures, which verification-path wants", scheme)
		}
		if scheme == "file" {
			return host.File(rest), nil
		}
		name, _, _ := strings.Cut(rest, "/")
		return host.HTTPS(module, host.HTTPSOptions{Client: cmp.Or(a.https[name], a.https[strings.TrimSuffix(name, ":443")])}), nil
	}
	return nil, fmt.Errorf("scheme %s is none of registry, https and file", scheme)
}
