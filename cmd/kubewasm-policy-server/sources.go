package main

import (
	"context"
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
	"sync"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/sigstore"
	"github.com/kubewasm/kubewasm/internal/yaml12"
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

// maxSettingsBytes bounds what aliases make of a file.
const maxSettingsBytes = 16 << 20

// decode reads a file of Kubewarden, in YAML 1.2.
func decode(text []byte, to any) error {
	document, unfit, err := yaml12.ToJSON(text, maxSettingsBytes)
	if err != nil {
		return err
	}
	if len(unfit) != 0 {
		return unfit[0]
	}
	return configfile.JSON(document, to)
}

// readSources reads a sources.yml; no file, an empty name, is the zero value.
func readSources(file string) (sources, error) {
	var s sources
	if file == "" {
		return s, nil
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = decode(text, &s)
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
		return "", errors.New("it is not a certificate in PEM or DER")
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: data})), nil
}

// registries returns how the hosts are reached, sorted by their names. Errors are all mistakes,
// joined.
func (s *sources) registries() ([]oci.Registry, error) {
	byHost := map[string]*oci.Registry{}
	of := func(host string) *oci.Registry {
		host = spelling(host)
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

// artifacts are where modules come from. The files of the settings are followed.
type artifacts struct {
	o      *options
	client *oci.Client

	mu sync.Mutex
	// https are clients for hosts with CAs of their own, by the certificates.
	https map[string]*http.Client
}

// newArtifacts returns where modules come from by the settings. Errors are the mistakes of all
// files, joined.
func newArtifacts(o *options, logger *slog.Logger) (*artifacts, error) {
	a := &artifacts{o: o, https: map[string]*http.Client{}}
	cfg, configErr := a.config()
	cfg.Keyless, cfg.Logger, cfg.Reload = newKeyless(o.trustRootCache), logger, a.config
	keylessErr := sigstore.Follow(&cfg, o.trustRoot)
	var clientErr error
	if configErr == nil {
		a.client, clientErr = oci.New(cfg)
	}
	if err := errors.Join(configErr, keylessErr, clientErr); err != nil {
		return nil, err
	}
	if o.verification == "" {
		logger.Warn("there is no verification-path: modules are taken without signatures")
	}
	return a, nil
}

// config returns what the files say now. Errors are the mistakes of all files, joined.
func (a *artifacts) config() (oci.Config, error) {
	s, sourcesErr := readSources(a.o.sources)
	registries, registriesErr := s.registries()
	trust, verificationErr := readVerification(a.o.verification)
	cfg := oci.Config{
		CacheDir: filepath.Join(a.o.downloadDir, "modules"), Registries: registries, Trust: []oci.Trust{trust}, DockerConfig: a.o.dockerConfig,
	}
	if a.o.dockerConfig != "" {
		// Kubewarden's variable names the directory.
		if info, err := os.Stat(a.o.dockerConfig); err == nil && info.IsDir() {
			cfg.DockerConfig = filepath.Join(a.o.dockerConfig, "config.json")
		}
	}
	return cfg, errors.Join(sourcesErr, registriesErr, verificationErr)
}

// maxHTTPS bounds the clients that are kept, of which there is one for each bundle of CAs.
const maxHTTPS = 64

// clientOf returns the client for a host, nil for the default.
func (a *artifacts) clientOf(host string) (*http.Client, error) {
	s, err := readSources(a.o.sources)
	if err != nil {
		return nil, err
	}
	registries, err := s.registries()
	if err != nil {
		return nil, err
	}
	name := spelling(host)
	i := slices.IndexFunc(registries, func(r oci.Registry) bool { return spelling(r.Host) == name })
	if i < 0 || registries[i].CA == "" {
		return nil, nil
	}
	ca := registries[i].CA
	a.mu.Lock()
	defer a.mu.Unlock()
	if client := a.https[ca]; client != nil {
		return client, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM([]byte(ca)) // It was parsed.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if len(a.https) >= maxHTTPS {
		clear(a.https)
	}
	a.https[ca] = &http.Client{Transport: transport}
	return a.https[ca], nil
}

// spelling returns the one spelling of a host, or what is none as it is.
func spelling(host string) string {
	ref, err := oci.ParseReference(host + "/x/x:x")
	if err != nil {
		return host
	}
	return ref.Registry
}

// httpsSource is a module at a URL. How its server is reached is looked up for each download.
type httpsSource struct {
	host.Source
	url       string
	artifacts *artifacts
}

// Fetch implements [host.Source].
func (s *httpsSource) Fetch(ctx context.Context) ([]byte, error) {
	name, _, _ := strings.Cut(strings.TrimPrefix(s.url, "https://"), "/")
	client, err := s.artifacts.clientOf(name)
	if err != nil {
		return nil, err
	}
	return host.HTTPS(s.url, host.HTTPSOptions{Client: client}).Fetch(ctx)
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
			return nil, errors.New("a module cannot name an image layout, which is a directory of the server")
		}
		return a.client.Source(rest), nil
	case "file", "https":
		if a.o.verification != "" {
			return nil, fmt.Errorf("a module by %s has no signatures, which verification-path requires", scheme)
		}
		if scheme == "file" {
			return host.File(rest), nil
		}
		return &httpsSource{Source: host.HTTPS(module, host.HTTPSOptions{}), url: module, artifacts: a}, nil
	}
	return nil, fmt.Errorf("scheme %s is none of registry, https and file", scheme)
}
