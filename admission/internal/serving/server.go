package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Server serves webhooks: by TLS, with certificates that are read again when their files
// change, with bounds for what strangers can make it hold, and with an end that leaves no
// request without an answer. It runs once.
type Server struct {
	// Name stands in errors.
	Name string
	// Addr is the address to listen on. Listener, if it is set, is served in its place, and
	// closed when Run returns.
	Addr     string
	Listener net.Listener
	// CertFile and KeyFile are the certificate and its key in PEM. Without them the server
	// has no TLS.
	CertFile, KeyFile string
	// ClientCAFiles are bundles in PEM of those who sign the certificates of clients.
	// ClientAuth says what becomes of a client without such a certificate. Default
	// tls.VerifyClientCertIfGiven.
	ClientCAFiles []string
	ClientAuth    tls.ClientAuthType
	// Handler answers requests.
	Handler http.Handler
	// WriteTimeout is how long the answer to a request may take.
	WriteTimeout time.Duration
	// MaxConnections, DrainDelay and DrainTimeout are as in package webhook. Zero is the
	// default; a DrainDelay below zero is none.
	MaxConnections           int
	DrainDelay, DrainTimeout time.Duration
	// Sleep waits for the DrainDelay; nil is time.Sleep. A test says by it when the delay ends.
	Sleep func(time.Duration)
	// Logger takes what goes wrong; nil drops it.
	Logger *slog.Logger

	listening, draining atomic.Bool
	// started and answered count requests.
	started, answered atomic.Int64
}

const (
	defaultDrainDelay   = 5 * time.Second
	defaultDrainTimeout = 30 * time.Second
	defaultConnections  = 1024
	// An API server sends some hundred bytes of headers, and a token perhaps.
	maxHeaderBytes = 16 << 10
	// quietDrain is how long a connection without a request is waited for when the
	// server ends: what net/http gives one that has sent nothing yet.
	quietDrain = 5 * time.Second
)

// Listening reports whether Run has begun to listen.
func (s *Server) Listening() bool { return s.listening.Load() }

// Draining reports whether the server is about to end: it goes on to answer, and clients
// should go elsewhere.
func (s *Server) Draining() bool { return s.draining.Load() }

// Run serves until ctx ends, and returns when everything is answered. The error is nil then.
func (s *Server) Run(ctx context.Context) error {
	var certificates *certificates
	var err error
	if s.CertFile != "" || s.KeyFile != "" {
		if certificates, err = newCertificates(s.CertFile, s.KeyFile, s.ClientCAFiles, s.ClientAuth); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	listener := s.Listener
	if listener == nil {
		if listener, err = net.Listen("tcp", s.Addr); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	server := &http.Server{
		Handler:        s.counted(s.Handler),
		ConnState:      newConnections(cmp.Or(s.MaxConnections, defaultConnections)).changed,
		MaxHeaderBytes: maxHeaderBytes,
		// What a client can have the server hold without a request that is read: an
		// API server speaks HTTP/1.1, so this is for others.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 16, MaxReadFrameSize: 16 << 10,
			MaxReceiveBufferPerConnection: 128 << 10, MaxReceiveBufferPerStream: 64 << 10,
		},
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       s.WriteTimeout,
		WriteTimeout:      s.WriteTimeout,
		IdleTimeout:       5 * time.Minute,
		ErrorLog:          errorLog(s.Logger),
	}
	served := make(chan error, 1)
	s.listening.Store(true)
	if certificates == nil {
		go func() { served <- server.Serve(listener) }()
	} else {
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		defer stop()
		go certificates.follow(watching, s.Logger)
		server.TLSConfig = certificates.config()
		go func() { served <- server.ServeTLS(listener, "", "") }()
	}
	select {
	case err := <-served:
		return fmt.Errorf("%s: %w", s.Name, err)
	case <-ctx.Done():
	}
	return s.drain(server)
}

// drain ends the server without an answer that is missing.
func (s *Server) drain(server *http.Server) error {
	s.draining.Store(true)
	// Requests go on arriving until everybody knows.
	sleep := s.Sleep
	if sleep == nil {
		sleep = time.Sleep
	}
	sleep(cmp.Or(s.DrainDelay, defaultDrainDelay))
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(s.DrainTimeout, defaultDrainTimeout))
	defer cancel()
	shut := make(chan error, 1)
	go func() { shut <- server.Shutdown(ctx) }()
	look := time.NewTicker(quietDrain / 50)
	defer look.Stop()
	seen, since := s.started.Load(), time.Now()
	for {
		select {
		case err := <-shut:
			if err != nil {
				return fmt.Errorf("%s: wait for requests: %w", s.Name, errors.Join(err, server.Close()))
			}
			return nil
		case now := <-look.C:
			// A connection of HTTP/2 that was at its handshake when Shutdown began,
			// and has no request then, is waited for to the end (golang/go#81153).
			// answered is read first: a request that starts between the two counts.
			if answered, started := s.answered.Load(), s.started.Load(); answered != started || started != seen {
				seen, since = started, now
			} else if now.Sub(since) >= quietDrain {
				server.Close()
			}
		}
	}
}

// counted counts the requests that h is at. While the server drains, it closes their
// connections: a client that asks again does so by a new connection, which comes out at
// another server. One that is left open would be cut in the end, and a request may be on its
// way then.
func (s *Server) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.started.Add(1)
		defer s.answered.Add(1)
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	})
}
