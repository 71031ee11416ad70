package oci

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/internal/registryname"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Config configures the fetching of artifacts and the trust in them. It is also a configuration
// file in YAML or JSON; the program sets the fields without a name there. The zero value reaches
// public registries with the credentials of docker, keeps nothing on disk, and accepts artifacts by
// digest.
type Config struct {
	// CacheDir is a directory that keeps fetched content, by its digest. Several processes may
	// share it. With it, a component also starts while the registry is away. Versions that
	// RefuseDowngrades has accepted are remembered over restarts, even if the cache has to drop
	// other content. Empty keeps nothing.
	CacheDir string `json:"cacheDir,omitempty"`
	// CacheBytes is the maximum size of the cache. Default 1 GiB.
	CacheBytes int64 `json:"cacheBytes,omitempty"`
	// DockerConfig is the path of docker's config.json, or of a mounted pull secret, for
	// credentials and helpers. It is read anew when credentials are needed. The default is
	// the one of the user, if there is one.
	DockerConfig string `json:"dockerConfig,omitempty"`
	// Registries are the registries that need more than their name.
	Registries []Registry `json:"registries,omitempty"`
	// Trust lists the rules for trusted artifacts.
	Trust []Trust `json:"trust,omitempty"`
	// Timeout is the maximum duration of a fetch, including everything that it needs. Default 60 s.
	Timeout time.Duration `json:"timeout,omitempty"`
	// MaxBytes is the size of the largest layer and of the largest module. Default, and at
	// most, 256 MiB.
	MaxBytes int64 `json:"maxBytes,omitempty"`

	// Reload returns the configuration anew before each fetch; [ReadConfig] sets it. Only
	// registries, trust, dockerConfig, timeout and maxBytes of its result count. A program that
	// changes those of a Config clears Reload. nil reads only the files that the configuration
	// names.
	Reload func() (Config, error) `json:"-"`
	// Credentials returns the credentials for a repository, HOST/PATH, in the order in which
	// they are tried; those of DockerConfig come after them. [PullSecrets] makes one from
	// Secrets of Kubernetes.
	Credentials func(ctx context.Context, repository string) ([]Credential, error) `json:"-"`
	// Keyless verifies signatures by an identity; nil refuses rules that name one.
	Keyless Keyless `json:"-"`
	// Logger receives a line when the registry is away and the cache serves instead; nil drops it.
	Logger *slog.Logger `json:"-"`
}

// configFields is Config without its methods.
type configFields Config

// MarshalJSON writes durations as texts, such as "1m0s".
func (c Config) MarshalJSON() ([]byte, error) { return configfile.Marshal(configFields(c)) }

// UnmarshalJSON reads the output of MarshalJSON, see package configfile.
func (c *Config) UnmarshalJSON(data []byte) error { return configfile.JSON(data, (*configFields)(c)) }

// ReadConfig reads a configuration file in YAML or JSON, which the client follows. The error
// names the file and has every unknown field. No file, an empty name, is the zero Config.
func ReadConfig(file string) (Config, error) {
	if file == "" {
		return Config{}, nil
	}
	var mu sync.Mutex
	var before []byte
	var cfg Config
	read := func() (Config, error) {
		mu.Lock()
		defer mu.Unlock()
		data, err := readFile(file)
		if err != nil {
			return Config{}, fmt.Errorf("read configuration of registries: %w", err)
		}
		if before != nil && bytes.Equal(data, before) {
			return cfg, nil
		}
		var next Config
		if err := configfile.YAML(data, &next); err != nil {
			return Config{}, fmt.Errorf("read configuration of registries: %s: %w", file, err)
		}
		cfg, before = next, append([]byte{}, data...)
		return cfg, nil
	}
	first, err := read()
	if err != nil {
		return first, err
	}
	first.Reload = read
	return first, nil
}

// Registry configures the access to a registry.
type Registry struct {
	// Host is its name, with its port if there is one. Its spelling is of no consequence,
	// see [ParseReference].
	Host string `json:"host"`
	// Mirrors are asked before the registry, in their order: HOST[:PORT][/PREFIX]. The prefix
	// stands before the repository. A Registry with the host of a mirror configures the access to
	// it.
	Mirrors []string `json:"mirrors,omitempty"`
	// CAFile is a PEM file of certificates that are trusted besides those of the system.
	CAFile string `json:"caFile,omitempty"`
	// CA are such certificates themselves.
	CA string `json:"ca,omitempty"`
	// CertFile and KeyFile are PEM files of the certificate that the client shows.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// PlainHTTP reaches this host without TLS. No other host is ever reached so.
	PlainHTTP bool `json:"plainHTTP,omitempty"`
}

const (
	defaultCacheBytes = 1 << 30
	defaultTimeout    = 60 * time.Second
)

func (c *Config) timeout() time.Duration {
	return cmp.Or(c.Timeout, defaultTimeout)
}

func (c *Config) maxBytes() int64 {
	if c.MaxBytes == 0 {
		return wasmbin.MaxModuleBytes
	}
	return c.MaxBytes
}

// check returns every mistake of the numbers.
func (c *Config) check() (errs []error) {
	if c.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("cacheBytes is %d, less than 0", c.CacheBytes))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout is %s, less than 0", c.Timeout))
	}
	if c.MaxBytes < 0 || c.MaxBytes > wasmbin.MaxModuleBytes {
		errs = append(errs, fmt.Errorf("maxBytes is %d, want 1 to %d", c.MaxBytes, wasmbin.MaxModuleBytes))
	}
	if c.DockerConfig != "" {
		if _, err := os.Stat(c.DockerConfig); err != nil {
			errs = append(errs, fmt.Errorf("dockerConfig: %w", err))
		}
	}
	return errs
}

// endpoint is a registry as it is reached.
type endpoint struct {
	mirrors   []mirror
	plainHTTP bool
	transport http.RoundTripper
}

// mirror is a place that has the repositories of a registry under a prefix.
type mirror struct{ host, prefix string }

// endpoint returns how a registry is reached.
func (r *Registry) endpoint() (*endpoint, []error) {
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("registry %q: "+format, append([]any{r.Host}, args...)...))
	}
	e := &endpoint{plainHTTP: r.PlainHTTP}
	for _, m := range r.Mirrors {
		name, prefix, _ := strings.Cut(strings.TrimSuffix(m, "/"), "/")
		ref, err := ParseReference(strings.TrimSuffix(name+"/"+prefix, "/") + "/x:x")
		if err != nil || ref.Registry == "" {
			fail("mirror %q is not HOST[:PORT][/PREFIX]", m)
			continue
		}
		e.mirrors = append(e.mirrors, mirror{ref.Registry, prefix})
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.CAFile != "" || r.CA != "" {
		var err error
		if config.RootCAs, err = x509.SystemCertPool(); err != nil {
			config.RootCAs = x509.NewCertPool()
		}
	}
	if r.CAFile != "" {
		pem, err := os.ReadFile(r.CAFile)
		if err != nil {
			fail("caFile: %w", err)
		} else if !config.RootCAs.AppendCertsFromPEM(pem) {
			fail("caFile: %s has no certificate in PEM", r.CAFile)
		}
	}
	if r.CA != "" && !config.RootCAs.AppendCertsFromPEM([]byte(r.CA)) {
		fail("ca: it has no certificate in PEM")
	}
	switch {
	case (r.CertFile == "") != (r.KeyFile == ""):
		fail("certFile and keyFile need one another")
	case r.CertFile != "":
		pair, err := tls.LoadX509KeyPair(r.CertFile, r.KeyFile)
		if err != nil {
			fail("certFile: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if r.PlainHTTP && (r.CAFile != "" || r.CA != "" || r.CertFile != "") {
		fail("plainHTTP excludes ca, caFile and certFile")
	}
	e.transport = newTransport(config)
	return e, errs
}

// endpoints returns the access to registries, by the one spelling of their hosts.
func endpoints(registries []Registry) (map[string]*endpoint, error) {
	byHost := map[string]*endpoint{}
	var errs []error
	for i := range registries {
		r := &registries[i]
		host, err := registryname.Host(r.Host)
		if err != nil {
			errs = append(errs, fmt.Errorf("registry %q: host is a name with or without a port, without scheme and path: %w", r.Host, err))
		} else if byHost[host] != nil {
			errs = append(errs, fmt.Errorf("registry %q occurs twice", host))
		}
		e, mistakes := r.endpoint()
		byHost[host] = e
		errs = append(errs, mistakes...)
	}
	return byHost, errors.Join(errs...)
}
