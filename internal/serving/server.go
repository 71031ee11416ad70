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

// Server serves webhooks over TLS. It reloads certificates when their files change, bounds the
// memory that clients can make it hold, and answers every request before it ends. It runs once.
type Server struct {
	// Name is the name of the server in errors.
	Name string
	// Addr is the address to listen on. Listener, if set, is used instead, and closed when Run
	// returns.
	Addr     string
	Listener net.Listener
	// CertFile and KeyFile are the certificate and its key in PEM. Without them the server
	// has no TLS.
	CertFile, KeyFile string
	// ClientCAFiles are PEM bundles of the CAs that sign certificates of clients. ClientAuth is the
	// policy for clients without such a certificate. Default tls.VerifyClientCertIfGiven.
	ClientCAFiles []string
	ClientAuth    tls.ClientAuthType
	// Handler answers requests.
	Handler http.Handler
	// WriteTimeout bounds the time of the answer to a request.
	WriteTimeout time.Duration
	// MaxConnections, DrainDelay and DrainTimeout work as in package webhook. Zero means the
	// default; a negative DrainDelay means none.
	MaxConnections           int
	DrainDelay, DrainTimeout time.Duration
	// Sleep waits for the DrainDelay; nil is time.Sleep. Tests use it to end the delay.
	Sleep func(time.Duration)
	// Logger receives errors; nil drops them.
	Logger *slog.Logger

	listening, draining atomic.Bool
	// started and answered count requests.
	started, answered atomic.Int64
}

const (
	defaultDrainDelay   = 5 * time.Second
	defaultDrainTimeout = 30 * time.Second
	defaultConnections  = 1024
	// An API server sends a few hundred bytes of headers, and possibly a token.
	maxHeaderBytes = 16 << 10
	// quietDrain is the time for which a connection without a request is waited for when the server
	// ends. net/http allows the same to one that has sent nothing yet.
	quietDrain = 5 * time.Second
)

// Listening reports whether Run has begun to listen.
func (s *Server) Listening() bool { return s.listening.Load() }

// Draining reports whether the server is about to end. It still answers, but clients should go
// elsewhere.
func (s *Server) Draining() bool { return s.draining.Load() }

// Run serves until ctx ends, and returns nil when every request is answered.
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
		// Bounds on the memory that a client can occupy without a complete request. An API server
		// uses HTTP/1.1, so this affects only other clients.
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

// drain ends the server after all requests are answered.
func (s *Server) drain(server *http.Server) error {
	s.draining.Store(true)
	// Requests keep arriving until all clients have noticed.
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
			// Shutdown waits to the end for an HTTP/2 connection that was in its handshake when
			// Shutdown began and has no request (golang/go#81153). answered is read first, so that
			// a request that starts between the two reads counts.
			if answered, started := s.answered.Load(), s.started.Load(); answered != started || started != seen {
				seen, since = started, now
			} else if now.Sub(since) >= quietDrain {
				server.Close()
			}
		}
	}
}

// counted counts the requests in h. While the server drains, it closes their connections, so that a
// client sends its next request over a new connection, to another server. An open connection would
// be cut at the end, possibly with a request on its way.
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
