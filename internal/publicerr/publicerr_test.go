package publicerr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"no URL?a=b": "no URL?a=b",
		`Get "https://s3.example.com/bucket/x?X-Amz-Signature=SECRET&y=1": dial tcp`:                       `Get "https://s3.example.com/bucket/x?…": dial tcp`,
		"https://user:SECRET@example.com/x#SECRET: no":                                                     "https://example.com/x?…: no",
		"https://user:SEC@RET@example.com: no":                                                             "https://example.com: no",
		"a oci+https://a@b.c?SECRET, http://d":                                                             "a oci+https://b.c?… http://d",
		"https://example.com/%2F?a=%22SECRET":                                                              "https://example.com/%2F?…",
		"https://example.com/x@y":                                                                          "https://example.com/x@y",
		`Get "https://example.com/x?a='b' c|d\"<{SECRET": EOF`:                                             `Get "https://example.com/x?…": EOF`,
		`https://example.com/x?a='SECRET`:                                                                  `https://example.com/x?…`,
		`failed to parse Location header "//a@b:c/x%zz?SECRET": parse "//a@b:c/x%zz?SECRET": invalid port`: `failed to parse Location header "//b:c/x%zz?…": parse "//b:c/x%zz?…": invalid port`,
	} {
		if got := Redact(text); got != want {
			t.Errorf("Redact(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestWordsHaveNothingOfLibraries(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 96, 0, 10), Port: 443}, Err: syscall.ECONNREFUSED}
	lookup := &net.DNSError{Err: "dial udp 10.96.0.10:53: i/o timeout", Name: "ghcr.io", Server: "10.96.0.10:53"}
	missing := &net.DNSError{Err: "no such host", Name: "ghcr.io", Server: "10.96.0.10:53", IsNotFound: true}
	inURL := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://10.96.0.10/x?X-Amz-Signature=SECRET", Err: err}
	}
	for want, err := range map[string]error{
		"connection refused":                               inURL(dial),
		"the host's address cannot be looked up":           inURL(lookup),
		"no such host":                                     missing,
		"the request failed":                               inURL(errors.New("10.96.0.10 said SECRET")),
		"no answer in time":                                inURL(context.DeadlineExceeded),
		"the server's certificate is for another host":     inURL(x509.HostnameError{Host: "10.96.0.10", Certificate: &x509.Certificate{}}),
		"the server does not speak TLS":                    inURL(tls.RecordHeaderError{}),
		"the registry is odd":                              Wrap("the registry is odd", inURL(dial)),
		"a word of our own":                                errors.New("a word of our own"),
		"not complete after 1s: context deadline exceeded": fmt.Errorf("not complete after 1s: %w", context.DeadlineExceeded),
	} {
		wrapped := fmt.Errorf("policy: %w", err)
		got := Words(wrapped)
		if !strings.HasSuffix(got, want) || strings.Contains(got, "SECRET") || strings.Contains(got, "10.96") {
			t.Errorf("Words(%v) is %q, want %q", wrapped, got, want)
		}
		if logged := Wrap("x", wrapped).Error(); strings.Contains(logged, "Signature=SECRET") {
			t.Errorf("the log gets %q", logged)
		}
		if !errors.Is(Wrap("x", wrapped), err) {
			t.Errorf("%v is lost", err)
		}
	}
}

func TestWordsOfRealRequests(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for address, want := range map[string]string{
		server.URL: "the server's certificate is of an unknown authority", closed.URL: "connection refused",
		strings.Replace(server.URL, "https", "http", 1) + "/x": "",
	} {
		resp, err := http.Get(address)
		if want == "" {
			if err == nil {
				resp.Body.Close()
			}
			continue
		}
		if err == nil || Words(err) != want {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}
