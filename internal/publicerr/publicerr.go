// Package publicerr keeps what libraries say in errors from those whom it is not for. An operator
// reads it in the log, without queries and users of URLs. A user of the cluster and a policy get
// words of our own: a library's may have signed URLs, addresses, and what a server wrote.
package publicerr

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"regexp"
	"strings"
	"syscall"
)

// Error is an error with something of a library, and the words for it.
type Error struct {
	err    error
	public string
}

// Wrap returns an error that says what err says, without queries and users of URLs, and public
// to those who may not see that.
func Wrap(public string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{err, public}
}

// Error returns the text for the log.
func (e *Error) Error() string { return Redact(e.err.Error()) }

// Unwrap returns the error itself.
func (e *Error) Unwrap() error { return e.err }

// Words returns what a user of the cluster or a policy may see of an error: its text, unless
// something in it is of a library. Then it is the words for that, and no more.
func Words(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.public
	}
	if words := Network(err); words != "" {
		return words
	}
	return Redact(err.Error())
}

// Network returns in a few words why a request over the network failed, without names and
// addresses; nothing if it is not for that.
func Network(err error) string {
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case lookup.IsNotFound:
			return "no such host"
		case lookup.IsTimeout:
			return "no answer about the host's address in time"
		}
		return "the host's address cannot be looked up"
	}
	if words := certificate(err); words != "" {
		return words
	}
	timeout, isNet := errors.AsType[net.Error](err)
	isNet = isNet && timeout != context.DeadlineExceeded //nolint:errorlint // A deadline of our own has words of its own, and timeouts of the network are one by errors.Is.
	_, isURL := errors.AsType[*url.Error](err)
	_, isOp := errors.AsType[*net.OpError](err)
	switch {
	case isNet && timeout.Timeout(), (isURL || isOp) && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)):
		return "no answer in time"
	case errors.Is(err, context.Canceled) && (isURL || isOp):
		return "the request has ended"
	case isURL || isOp:
		for errno, words := range map[syscall.Errno]string{
			syscall.ECONNREFUSED: "connection refused", syscall.ECONNRESET: "connection reset", syscall.EHOSTUNREACH: "no route to the host",
			syscall.ENETUNREACH: "no route to the network", syscall.EPIPE: "connection closed",
		} {
			if errors.Is(err, errno) {
				return words
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return "the connection ended"
		}
		return "the request failed"
	}
	return ""
}

// certificate returns why a server was not believed.
func certificate(err error) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the server's certificate is of an unknown authority"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the server's certificate is for another host"
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return "the server's certificate is not valid at this time"
		}
		return "the server's certificate is not valid"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "the server's certificate is not trusted"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the server does not speak TLS"
	}
	return ""
}

// urlRE finds URLs. One in quotes ends with them, whatever else it has: a server that redirects
// chooses the characters. Of those that cannot be parsed package http quotes what has no scheme.
var urlRE = regexp.MustCompile(`"[A-Za-z][-A-Za-z0-9+.]*://(?:\\.|[^"\\])*` +
	`|(?:Location header|parse) "(?:\\.|[^"\\])*` +
	`|[A-Za-z][-A-Za-z0-9+.]*://(?:\\.|[^\s"\\])+`)

// Redact returns a text whose URLs have no user, password, query and fragment.
func Redact(text string) string {
	if !strings.Contains(text, "://") && !strings.Contains(text, "parse \"") {
		return text
	}
	return urlRE.ReplaceAllStringFunc(text, func(found string) string {
		head, rest, ok := strings.Cut(found, "://")
		if ok {
			head += "://"
		} else {
			quote := strings.IndexByte(found, '"') + 1
			if strings.HasPrefix(found[quote:], "//") {
				quote += len("//")
			}
			head, rest = found[:quote], found[quote:]
		}
		end := strings.IndexAny(rest, "?#")
		tail := ""
		if end >= 0 {
			rest, tail = rest[:end], "?…"
			if strings.HasSuffix(found, ":") {
				tail += ":" // It belongs to the sentence.
			}
		}
		authority, path, hasPath := strings.Cut(rest, "/")
		if at := strings.LastIndexByte(authority, '@'); at >= 0 {
			authority = authority[at+1:]
		}
		if hasPath {
			authority += "/" + path
		}
		return head + authority + tail
	})
}
