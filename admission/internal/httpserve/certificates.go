package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// certificates are the files of a server, as they were when they last were good.
type certificates struct {
	certFile, keyFile, caFile string
	current                   atomic.Pointer[loaded]
}

type loaded struct {
	// pem is what the files held.
	pem    [3][]byte
	config *tls.Config
}

func newCertificates(certFile, keyFile, caFile string) (*certificates, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, caFile: caFile}
	return c, c.reload()
}

// reload reads the files. What they hold is in use afterwards, or nothing has
// changed and the error says why.
func (c *certificates) reload() error {
	var next loaded
	for i, file := range []string{c.certFile, c.keyFile, c.caFile} {
		if file == "" {
			continue
		}
		var err error
		if next.pem[i], err = os.ReadFile(file); err != nil {
			return err
		}
	}
	if old := c.current.Load(); old != nil && bytes.Equal(old.pem[0], next.pem[0]) && bytes.Equal(old.pem[1], next.pem[1]) && bytes.Equal(old.pem[2], next.pem[2]) {
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
	if c.caFile != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(next.pem[2]) {
			return fmt.Errorf("client CA %s: no certificate in it", c.caFile)
		}
		// Probes have no certificate: the handler asks for one where it counts.
		next.config.ClientCAs, next.config.ClientAuth = pool, tls.VerifyClientCertIfGiven
	}
	c.current.Store(&next)
	return nil
}

// config returns a configuration that is the current one for each connection.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current.Load().config, nil
		},
		// ServeTLS wants to see one.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return nil, errors.New("there is a configuration for each client")
		},
	}
}

// pollInterval is how often the files are looked at, for file systems that do not
// tell of changes.
const pollInterval = 30 * time.Second

// follow reads the files again when they change, until ctx ends.
func (c *certificates) follow(ctx context.Context, logger *slog.Logger) {
	changed := make(chan struct{}, 1)
	hint := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	for _, file := range []string{c.certFile, c.keyFile, c.caFile} {
		if watcher, ok := host.File(file).(host.Watcher); ok && file != "" {
			go func() {
				if err := watcher.Watch(ctx, hint); err != nil && logger != nil && ctx.Err() == nil {
					logger.Warn("watch certificate: it is looked at every 30 s", "file", file, "err", err)
				}
			}()
		}
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	// Certificate and key are two files: for a moment they may not fit. What
	// failed is tried again soon.
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
