package oci

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

// authorizer sends requests with the credentials for a repository, one after the other until the
// registry takes one, as the kubelet does.
type authorizer struct {
	client *Client
	// repository is HOST/REPOSITORY.
	repository string
}

// maxCredentials bounds the credentials that are tried for a repository.
const maxCredentials = 16

// Do implements [remote.Client].
func (a *authorizer) Do(req *http.Request) (*http.Response, error) {
	var best answer
	defer func() { best.discard() }()
	credentials := &repositoryCredentials{authorizer: a}
	for i, again := 0, false; ; {
		got, tokens := credentials.send(req, i)
		if !got.denied() {
			return got.resp, got.err
		}
		// Content that is missing for one credential may exist for another.
		if best.status() != http.StatusNotFound || got.status() == http.StatusNotFound {
			best, got = got, best
		}
		got.discard()
		next := i + 1
		if len(tokens.used) != 0 && !credentials.asked && best.status() != http.StatusNotFound && !again {
			next, again = i, true // The token was of an earlier request, and has had its time.
		}
		more := next == i || next < len(credentials.list)
		if more || best.status() != http.StatusNotFound || len(credentials.list) > 1 {
			tokens.forgetUsed()
		}
		repeated, ok := repeat(req)
		if !more || !ok || req.Context().Err() != nil {
			resp, err := best.resp, best.err
			best = answer{}
			return resp, err
		}
		req, i = repeated, next
	}
}

// repositoryCredentials are those for a repository, which are read when a registry wants some.
type repositoryCredentials struct {
	*authorizer
	asked bool
	list  []Credential
}

// send sends a request with a token that is kept, or otherwise with one for credential i.
func (c *repositoryCredentials) send(req *http.Request, i int) (answer, *tokenCache) {
	cache := &tokenCache{tokens: c.client.tokens, repository: c.repository, attempt: strconv.Itoa(i)}
	client := auth.Client{
		Client: c.client.plain, Header: http.Header{"User-Agent": {userAgent()}}, Cache: cache,
		Credential: func(ctx context.Context, _ string) (auth.Credential, error) {
			if !c.asked {
				list, err := c.client.credentials(ctx, c.repository)
				if err != nil {
					return auth.EmptyCredential, err
				}
				c.asked, c.list = true, list
			}
			if i >= len(c.list) {
				return auth.EmptyCredential, nil
			}
			return auth.Credential(c.list[i]), nil
		},
	}
	resp, err := client.Do(req)
	return answer{resp, err}, cache
}

// answer is the result of a request.
type answer struct {
	resp *http.Response
	err  error
}

// status returns the status of an answer, including one of a server of tokens; 0 if there is none.
func (a answer) status() int {
	if refused, ok := errors.AsType[*errcode.ErrorResponse](a.err); ok {
		return refused.StatusCode
	}
	switch {
	case errors.Is(a.err, auth.ErrBasicCredentialNotFound):
		return http.StatusUnauthorized
	case a.resp != nil && a.err == nil:
		return a.resp.StatusCode
	}
	return 0
}

// denied reports whether another credential may get a different answer.
func (a answer) denied() bool {
	switch a.status() {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return false
}

func (a answer) discard() {
	if a.resp != nil {
		// The connection is used again if its answer was read.
		_, _ = io.CopyN(io.Discard, a.resp.Body, 16<<10)
		a.resp.Body.Close()
	}
}

// repeat returns a request once more, unless its body cannot be had again.
func repeat(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err == nil
}
