package oci

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/internal/registryname"
)

// transport sends requests to registries. It refuses plain http to hosts that are not configured
// for it, and repeats requests that are likely to succeed the next time.
type transport struct {
	// hosts returns the configured ones; others is for all other hosts.
	hosts  func() map[string]*endpoint
	others http.RoundTripper
	// sleep waits for a time or until ctx ends.
	sleep func(ctx context.Context, d time.Duration) error
	now   func() time.Time

	mu sync.Mutex
	// pause is the time from which a host that asked for a pause is contacted again, for maxPauses
	// hosts.
	pause map[string]time.Time
}

const (
	// attempts is the maximum number of times that a request is sent, and a download begun.
	attempts = 4
	// firstBackoff is the wait before the second attempt, which then doubles.
	firstBackoff = 250 * time.Millisecond
	// maxPause is the maximum pause that a registry may ask for.
	maxPause = 15 * time.Minute
	// maxPauses bounds the hosts with a pause: clients choose them.
	maxPauses = 1000
)

// newTransport returns the transport for hosts with this TLS configuration. Proxies are
// those of the environment.
func newTransport(config *tls.Config) http.RoundTripper {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        config,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		// Digests and limits apply to the bytes that the registry stores.
		DisableCompression: true,
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// pauseError is the error of a request that was not sent, since the registry asked to be
// left alone for a time.
type pauseError struct {
	Host  string
	Until time.Time
}

func (e *pauseError) Error() string {
	return fmt.Sprintf("registry %s asked for a pause until %s", e.Host, e.Until.UTC().Format(time.RFC3339))
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	// A redirect leads anywhere, and spells it as it likes.
	host, err := registryname.Host(req.URL.Host)
	if err != nil {
		return nil, fmt.Errorf("request to %.100q: %w", req.URL.Host, err)
	}
	e := t.hosts()[host]
	switch {
	case req.URL.Scheme == "http" && (e == nil || !e.plainHTTP):
		return nil, fmt.Errorf("plain http to %s: allowed only for registries with plainHTTP", host)
	case req.URL.Scheme != "http" && req.URL.Scheme != "https":
		return nil, fmt.Errorf("scheme is %q, want https", req.URL.Scheme)
	}
	base := t.others
	if e != nil {
		base = e.transport
	}
	for attempt := 0; ; attempt++ {
		if until, ok := t.paused(host); ok {
			return nil, &pauseError{host, until}
		}
		resp, err := base.RoundTrip(req)
		if resp != nil && resp.StatusCode == http.StatusUnauthorized {
			chooseChallenge(resp.Header)
		}
		wait, again := t.again(req, host, resp, err, attempt)
		if !again {
			return resp, err
		}
		if req.Body != nil {
			if req.GetBody == nil {
				return resp, err
			}
			body, bodyErr := req.GetBody()
			if bodyErr != nil {
				return resp, err
			}
			req = req.Clone(req.Context())
			req.Body = body
		}
		if resp != nil {
			// The connection is used again if its answer was read.
			_, _ = io.CopyN(io.Discard, resp.Body, 16<<10)
			resp.Body.Close()
		}
		if err := t.sleep(req.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// paused returns the time until which a host is not contacted.
func (t *transport) paused(host string) (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.pause[host]
	if ok && !t.now().Before(until) {
		delete(t.pause, host)
		ok = false
	}
	return until, ok
}

// leave records a pause for a host. If there are too many, the pause that ends first is dropped.
func (t *transport) leave(host string, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.pause[host]; !ok && len(t.pause) >= maxPauses {
		var first string
		for other, at := range t.pause {
			if first == "" || at.Before(t.pause[first]) {
				first = other
			}
		}
		delete(t.pause, first)
	}
	t.pause[host] = until
}

// again reports whether a request is repeated, and after which time.
func (t *transport) again(req *http.Request, host string, resp *http.Response, err error, attempt int) (time.Duration, bool) {
	ctx := req.Context()
	if ctx.Err() != nil {
		return 0, false
	}
	wait := firstBackoff << attempt
	wait = wait*9/10 + rand.N(wait/5)
	switch {
	case err != nil:
		var certificate *tls.CertificateVerificationError
		var header tls.RecordHeaderError // It does not speak TLS.
		if errors.As(err, &certificate) || errors.As(err, &header) {
			return 0, false
		}
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable:
		asked, ok := retryAfter(resp.Header.Get("Retry-After"), t.now())
		if !ok {
			break
		}
		wait = max(asked, firstBackoff)
		deadline, bounded := ctx.Deadline()
		if attempt+1 >= attempts || bounded && t.now().Add(wait).After(deadline) {
			t.leave(host, t.now().Add(min(wait, maxPause)))
			return 0, false
		}
	case resp.StatusCode == http.StatusRequestTimeout, resp.StatusCode == http.StatusInternalServerError,
		resp.StatusCode == http.StatusBadGateway, resp.StatusCode == http.StatusGatewayTimeout:
	default:
		return 0, false
	}
	return wait, attempt+1 < attempts
}

// retryAfter reads a Retry-After header: seconds, or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(date.Sub(now), 0), true
	}
	return 0, false
}

// maxRedirects is enough for a registry that sends on to the storage of its blobs.
const maxRedirects = 5

// checkRedirect bounds redirects. The transport decides about their schemes.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	// The query of a URL often is a signature.
	req.Header.Del("Referer")
	return nil
}
