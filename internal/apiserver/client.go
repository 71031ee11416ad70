// Package apiserver sends requests to an API server with the service account of a Pod. It is
// for programs that need a few requests and not the memory of client-go.
package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/internal/cut"
)

// Config configures a Client.
type Config struct {
	// URL is the API server's. Default is that of the variables which each container has.
	URL string `json:"url"`
	// TokenFile and CAFile default to those of the Pod's service account. Both are read anew for
	// each request and connection.
	TokenFile string `json:"tokenFile"`
	CAFile    string `json:"caFile"`
}

// Client sends requests to an API server. It is safe for use by several goroutines.
type Client struct {
	cfg    Config
	client *http.Client
}

// New checks the configuration, and that the CA file has certificates.
func New(cfg Config) (*Client, error) {
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	if cfg.URL == "" {
		at, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if at == "" || port == "" {
			return nil, errors.New("the process is in no Pod, and url is missing")
		}
		cfg.URL = "https://" + net.JoinHostPort(at, port)
	}
	cfg.TokenFile, cfg.CAFile = cmp.Or(cfg.TokenFile, account+"token"), cmp.Or(cfg.CAFile, account+"ca.crt")
	if u, err := url.Parse(cfg.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("url %q is no address of https", cfg.URL)
	}
	if _, err := cfg.authorities(); err != nil {
		return nil, err
	}
	return &Client{cfg: cfg, client: &http.Client{
		Transport: &http.Transport{
			MaxIdleConns: 1, IdleConnTimeout: time.Minute,
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				pool, err := cfg.authorities()
				if err != nil {
					return nil, err
				}
				return (&tls.Dialer{Config: &tls.Config{RootCAs: pool}}).DialContext(ctx, network, addr)
			},
		},
		// The token goes to no other server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Wrap returns a Client of an API server that sends its requests by client, which authenticates them:
// one of client-go.
func Wrap(url string, client *http.Client) *Client {
	return &Client{cfg: Config{URL: url}, client: client}
}

// authorities reads the certificates that sign the API server's.
func (c *Config) authorities() (*x509.CertPool, error) {
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate", c.CAFile)
	}
	return pool, nil
}

// StatusError is an answer other than 2xx.
type StatusError struct {
	Code int
	text string
}

func (e *StatusError) Error() string { return e.text }

// Do sends a request: path has the query, and body may be nil. The caller ends it by ctx, which
// also bounds the reading of the answer, and closes the body.
//
// An answer other than 2xx is a *[StatusError].
func (c *Client) Do(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.cfg.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.cfg.TokenFile != "" {
		token, err := os.ReadFile(c.cfg.TokenFile)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, &StatusError{resp.StatusCode, fmt.Sprintf("%s %s: %s: %s", method, path, resp.Status, cut.Text(answer, 200))}
	}
	return resp, nil
}
