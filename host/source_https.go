package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// HTTPSOptions bound a download. The zero value is the default.
type HTTPSOptions struct {
	// Client makes the requests. Its CheckRedirect is called after the rules of
	// [HTTPS]. Its transport decides about proxies and certificates; one that adds
	// credentials adds them to redirected requests as well. Default: a client with
	// http.DefaultTransport.
	Client *http.Client
	// Timeout is the maximum duration of a fetch, from the first connection to the last byte.
	// Default 30 s.
	Timeout time.Duration
	// MaxBytes is the size of the largest accepted module. Default, and at most, 256 MiB.
	MaxBytes int64
}

// maxRedirects is enough for a mirror that sends on to a content network.
const maxRedirects = 5

// HTTPS returns the source of a module at an https URL, which is downloaded anew for each load, in
// the form that the server stores: as it is, or compressed by gzip. The configuration must name the
// module's SHA-256: otherwise the server of the URL would decide on the code that runs.
//
// At most five redirects are followed, to https only. A user and password in the
// URL are sent to its host alone, and appear in no message; neither does its
// query, which often is a signature.
//
// Any status but 200 is an error. A URL of another scheme is an error too, when the configuration
// is checked and in Fetch.
func HTTPS(rawURL string, opts HTTPSOptions) Source {
	s := &httpsSource{timeout: opts.Timeout, maxBytes: opts.MaxBytes}
	if s.timeout == 0 {
		s.timeout = 30 * time.Second
	}
	if s.maxBytes == 0 {
		s.maxBytes = wasmbin.MaxModuleBytes
	}
	if s.url, s.err = url.Parse(rawURL); s.err != nil {
		// A text that cannot be parsed may contain a password anywhere.
		s.err = errors.New("URL cannot be parsed")
	}
	if opts.Client != nil {
		s.client = *opts.Client
	}
	s.client.CheckRedirect = checkRedirect(s.client.CheckRedirect)
	return s
}

type httpsSource struct {
	url      *url.URL
	err      error // Of parsing the URL; url is nil then.
	client   http.Client
	timeout  time.Duration
	maxBytes int64
}

// Check implements loading.Checker.
func (s *httpsSource) Check(sha256 string) error {
	errs := []error{s.checkOptions()}
	if sha256 == "" {
		errs = append(errs, fmt.Errorf("source %s needs sha256", s))
	}
	return errors.Join(errs...)
}

func (s *httpsSource) checkOptions() error {
	var errs []error
	switch {
	case s.err != nil:
		errs = append(errs, fmt.Errorf("source %s: %w", s, s.err))
	case s.url.Scheme != "https":
		errs = append(errs, fmt.Errorf("source %s: scheme is %q, want https", s, s.url.Scheme))
	case s.url.Host == "":
		errs = append(errs, fmt.Errorf("source %s: host is missing", s))
	}
	if s.timeout < 0 {
		errs = append(errs, fmt.Errorf("source %s: timeout is %s, less than 0", s, s.timeout))
	}
	if s.maxBytes < 0 || s.maxBytes > wasmbin.MaxModuleBytes {
		errs = append(errs, fmt.Errorf("source %s: maxBytes is %d, want 1 to %d", s, s.maxBytes, wasmbin.MaxModuleBytes))
	}
	return errors.Join(errs...)
}

func (s *httpsSource) Fetch(ctx context.Context) ([]byte, error) {
	if err := s.checkOptions(); err != nil {
		return nil, err
	}
	late := fmt.Errorf("not complete after %s: %w", s.timeout, context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, late)
	defer cancel()
	module, err := s.get(ctx)
	// A server that sees the connection end may finish its answer properly, so
	// that half a module looks whole.
	if ctx.Err() != nil {
		err = ctx.Err()
		if errors.Is(context.Cause(ctx), late) {
			err = late
		}
	}
	if err != nil {
		// The network's text has addresses, and is for the log.
		return nil, publicerr.Wrap(fmt.Sprintf("get %s: %s", s, publicerr.Words(err)), fmt.Errorf("get %s: %w", s, err))
	}
	return module, nil
}

// get makes the request and reads the answer.
func (s *httpsSource) get(ctx context.Context) ([]byte, error) {
	// Go's transport would ask for gzip and unpack it; the digest and the limit apply to the bytes
	// that the server stores.
	header := http.Header{"Accept-Encoding": {"identity"}}
	req := (&http.Request{Method: http.MethodGet, URL: s.url, Header: header}).WithContext(ctx)
	resp, err := s.client.Do(req)
	if err != nil {
		words := cmp.Or(publicerr.Network(err), "the request failed")
		if own, ok := errors.AsType[*publicerr.Error](err); ok {
			words = publicerr.Words(own)
		}
		// A *url.Error repeats the URL, query included.
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err
		}
		return nil, publicerr.Wrap(words, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		// The reason phrase is the server's.
		return nil, fmt.Errorf("status is %d %s, want 200 OK", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	if resp.ContentLength > s.maxBytes {
		return nil, fmt.Errorf("content length is %d bytes, more than %d", resp.ContentLength, s.maxBytes)
	}
	module, err := io.ReadAll(io.LimitReader(resp.Body, s.maxBytes+1))
	if err != nil {
		return nil, publicerr.Wrap(cmp.Or(publicerr.Network(err), "the response ended early"), err)
	}
	if int64(len(module)) > s.maxBytes {
		return nil, fmt.Errorf("content has more than %d bytes", s.maxBytes)
	}
	return unpack(module)
}

// String returns the URL without user, password, query and fragment.
func (s *httpsSource) String() string {
	if s.url == nil {
		return "https"
	}
	shown := url.URL{Scheme: s.url.Scheme, Opaque: s.url.Opaque, Host: s.url.Host, Path: s.url.Path, RawPath: s.url.RawPath}
	return shown.String()
}

// checkRedirect returns the rules for redirects, followed by next unless that is
// nil.
func checkRedirect(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		if req.URL.Scheme != "https" {
			// The target is chosen by the server.
			return publicerr.Wrap(fmt.Sprintf("redirect to scheme %q, want https", req.URL.Scheme), fmt.Errorf("redirect to scheme %q of host %s, want https", req.URL.Scheme, req.URL.Host))
		}
		if len(via) > maxRedirects {
			err := fmt.Errorf("more than %d redirects", maxRedirects)
			return publicerr.Wrap(err.Error(), err)
		}
		// Go sends the credentials of a URL to its own host only, but its query to
		// the next one.
		req.Header.Del("Referer")
		if next != nil {
			return next(req, via)
		}
		return nil
	}
}
