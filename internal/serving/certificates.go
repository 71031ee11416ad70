package serving

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// certificates holds the last valid contents of a server's certificate files.
type certificates struct {
	certFile, keyFile string
	caFiles           []string
	clientAuth        tls.ClientAuthType
	current           atomic.Pointer[loaded]
}

type loaded struct {
	// pem holds the contents of the files: certificate, key and CAs.
	pem    [][]byte
	config *tls.Config
}

func newCertificates(certFile, keyFile string, caFiles []string, clientAuth tls.ClientAuthType) (*certificates, error) {
	// Probes have no certificate, so by default the handler decides where one is required.
	c := &certificates{certFile: certFile, keyFile: keyFile, caFiles: caFiles, clientAuth: cmp.Or(clientAuth, tls.VerifyClientCertIfGiven)}
	return c, c.reload()
}

// files returns the names of all files.
func (c *certificates) files() []string { return append([]string{c.certFile, c.keyFile}, c.caFiles...) }

// reload reads the files. Either their contents are in use afterwards, or nothing changes and an
// error is returned.
func (c *certificates) reload() error {
	var next loaded
	for _, file := range c.files() {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		next.pem = append(next.pem, text)
	}
	if old := c.current.Load(); old != nil && slices.EqualFunc(old.pem, next.pem, bytes.Equal) {
		return nil
	}
	pair, err := tls.X509KeyPair(next.pem[0], next.pem[1])
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", c.certFile, c.keyFile, err)
	}
	next.config = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{"h2", "http/1.1"},
	}
	if len(c.caFiles) != 0 {
		pool := x509.NewCertPool()
		for i, file := range c.caFiles {
			if !pool.AppendCertsFromPEM(next.pem[2+i]) {
				return fmt.Errorf("client CA %s: no certificate in it", file)
			}
		}
		next.config.ClientCAs, next.config.ClientAuth = pool, c.clientAuth
	}
	c.current.Store(&next)
	return nil
}

// config returns a configuration that uses the current certificates for each connection.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current.Load().config, nil
		},
		// ServeTLS requires one.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return nil, errors.New("there is a configuration for each client")
		},
	}
}

// pollInterval is the interval between checks of the files, for file systems that do not report
// changes.
const pollInterval = 30 * time.Second

// follow reloads the files when they change, until ctx ends.
func (c *certificates) follow(ctx context.Context, logger *slog.Logger) {
	changed := make(chan struct{}, 1)
	hint := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	for _, file := range c.files() {
		if watcher, ok := host.File(file).(host.Watcher); ok {
			go func() {
				if err := watcher.Watch(ctx, hint); err != nil && logger != nil && ctx.Err() == nil {
					logger.Warn("watch certificate: it is checked every 30 s instead", "file", file, "err", err)
				}
			}()
		}
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	// Certificate and key are two files, which may not match for a moment. A failed reload is
	// retried soon.
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		case <-again:
		}
		again = nil
		if err := c.reload(); err != nil {
			again = time.After(time.Second)
			if logger != nil {
				logger.Warn("reload certificate: the old one stays in use", "err", err)
			}
		}
	}
}
