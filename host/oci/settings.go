package oci

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// settings are the content of a configuration and its files: the access to registries, and the
// signers that count. They do not change.
type settings struct {
	// sum is a digest of the configuration with its files, as they were read.
	sum          [sha256.Size]byte
	hosts        map[string]*endpoint
	trust        []rule
	dockerConfig string
	timeout      time.Duration
	maxBytes     int64
}

// followed are the settings that follow the files of a configuration.
type followed struct {
	cfg *Config
	now atomic.Pointer[settings]
	// reading is held while files are read.
	reading sync.Mutex
}

// newSettings returns the settings, or every mistake.
func newSettings(cfg *Config, sum [sha256.Size]byte) (*settings, error) {
	errs := cfg.check()
	s := &settings{sum: sum, dockerConfig: cfg.DockerConfig, timeout: cfg.timeout(), maxBytes: cfg.maxBytes()}
	var err error
	s.hosts, err = endpoints(cfg.Registries)
	errs = append(errs, err)
	s.trust, err = rulesOf(cfg.Trust, cfg.Keyless != nil)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("configure registries: %w", err)
	}
	return s, nil
}

// current returns the present settings of the configuration and its files. A removed key no longer
// counts, and a file that cannot be read is an error: its former content may have been withdrawn.
func (f *followed) current() (*settings, error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	cfg := *f.cfg
	if cfg.Reload != nil {
		next, err := cfg.Reload()
		if err != nil {
			return nil, err
		}
		cfg.Registries, cfg.Trust, cfg.DockerConfig = next.Registries, next.Trust, next.DockerConfig
		cfg.Timeout, cfg.MaxBytes = next.Timeout, next.MaxBytes
	}
	sum := cfg.sum()
	old := f.now.Load()
	if old != nil && old.sum == sum {
		return old, nil
	}
	s, err := newSettings(&cfg, sum)
	if err != nil {
		return nil, err
	}
	f.now.Store(s)
	if old != nil {
		for _, e := range old.hosts {
			e.transport.(*http.Transport).CloseIdleConnections()
		}
	}
	return s, nil
}

// sum returns a digest of the followed settings, and of the files that they name.
func (c *Config) sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(c) // A hash takes everything, and the fields are texts and numbers.
	for _, name := range c.files() {
		data, err := readFile(name)
		// A file that cannot be read differs from an empty one.
		fmt.Fprintf(h, "%q %d %v\n", name, len(data), err)
		h.Write(data)
	}
	h.Sum(sum[:0])
	return sum
}

// files returns the names of the files of keys and certificates.
func (c *Config) files() (names []string) {
	add := func(name string) {
		if name != "" {
			names = append(names, name)
		}
	}
	for i := range c.Registries {
		r := &c.Registries[i]
		add(r.CAFile)
		add(r.CertFile)
		add(r.KeyFile)
	}
	for i := range c.Trust {
		for _, list := range [][]Signer{c.Trust[i].AllOf, c.Trust[i].AnyOf} {
			for j := range list {
				add(list[j].KeyFile)
			}
		}
	}
	return names
}

// others is the transport to hosts that are not configured.
func others() http.RoundTripper { return newTransport(&tls.Config{MinVersion: tls.VersionTLS12}) }
