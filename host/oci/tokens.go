package oci

import (
	"container/list"
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// tokens keeps the tokens that registries gave for credentials, within a size and for a time.
// Repositories, and so keys, are chosen by clients; tokens come from servers.
type tokens struct {
	now func() time.Time

	mu      sync.Mutex
	bytes   int
	entries map[tokenKey]*list.Element
	recent  list.List // Of *token, the last used first.
	// flying are the tokens that are being fetched, as many as there are requests.
	flying map[tokenKey]*tokenFlight
}

// The bounds of tokens.
const (
	maxTokensBytes = 4 << 20
	// maxTokenBytes is more than servers take of all headers.
	maxTokenBytes = 16 << 10
	// tokenBytes is the size of an entry beside its token.
	tokenBytes = 320
	// tokenTime is the maximum time that a token is used, and so a credential after it was
	// withdrawn. A registry may require a new token earlier.
	tokenTime = 5 * time.Minute
)

// tokenKey is a digest: a scope that a registry names may be long.
type tokenKey [sha256.Size]byte

type token struct {
	key    tokenKey
	scheme auth.Scheme
	text   string
	until  time.Time
}

type tokenFlight struct {
	done chan struct{}
	text string
	err  error
}

func newTokens(now func() time.Time) *tokens {
	return &tokens{now: now, entries: map[tokenKey]*list.Element{}, flying: map[tokenKey]*tokenFlight{}}
}

func keyOf(parts ...string) tokenKey { return sha256.Sum256([]byte(strings.Join(parts, "\x00"))) }

func (t *tokens) get(key tokenKey) (*token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[key]
	if !ok {
		return nil, false
	}
	found := e.Value.(*token)
	if !t.now().Before(found.until) {
		t.drop(e)
		return nil, false
	}
	t.recent.MoveToFront(e)
	return found, true
}

func (t *tokens) put(key tokenKey, scheme auth.Scheme, text string) {
	if len(text) > maxTokenBytes {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok {
		t.drop(e)
	}
	for t.bytes+len(text)+tokenBytes > maxTokensBytes {
		t.drop(t.recent.Back())
	}
	// A part of a larger answer must not keep that.
	t.entries[key] = t.recent.PushFront(&token{key, scheme, strings.Clone(text), t.now().Add(tokenTime)})
	t.bytes += len(text) + tokenBytes
}

// drop removes an entry. t.mu is held.
func (t *tokens) drop(e *list.Element) {
	gone := t.recent.Remove(e).(*token)
	delete(t.entries, gone.key)
	t.bytes -= len(gone.text) + tokenBytes
}

// forget removes a token that was of no use.
func (t *tokens) forget(key tokenKey) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, ok := t.entries[key]; ok {
		t.drop(e)
	}
}

// fetch returns the result of f, called once for concurrent callers with the same key.
func (t *tokens) fetch(ctx context.Context, key tokenKey, f func(context.Context) (string, error)) (string, error) {
	for {
		t.mu.Lock()
		flight, ok := t.flying[key]
		if !ok {
			flight = &tokenFlight{done: make(chan struct{})}
			t.flying[key] = flight
		}
		t.mu.Unlock()
		if !ok {
			defer func() {
				t.mu.Lock()
				delete(t.flying, key)
				t.mu.Unlock()
				close(flight.done)
			}()
			flight.err = errors.New("the fetch of a token panicked")
			flight.text, flight.err = f(ctx)
			return flight.text, flight.err
		}
		select {
		case <-flight.done:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		// The other request may have ended before its time.
		if !errors.Is(flight.err, context.Canceled) && !errors.Is(flight.err, context.DeadlineExceeded) {
			return flight.text, flight.err
		}
	}
}

// tokenCache is the cache of one request: tokens are kept by their repository, since each may have
// separate credentials.
type tokenCache struct {
	*tokens
	// repository is HOST/REPOSITORY, and attempt the number of the credential.
	repository, attempt string
	// used are the keys of the tokens of the request.
	used []tokenKey
}

var _ auth.Cache = (*tokenCache)(nil)

// GetScheme implements [auth.Cache].
func (c *tokenCache) GetScheme(_ context.Context, registry string) (auth.Scheme, error) {
	if found, ok := c.get(keyOf("scheme", registry)); ok {
		return found.scheme, nil
	}
	return auth.SchemeUnknown, errdef.ErrNotFound
}

// GetToken implements [auth.Cache].
func (c *tokenCache) GetToken(_ context.Context, registry string, scheme auth.Scheme, scopes string) (string, error) {
	key := keyOf("token", registry, scheme.String(), scopes, c.repository)
	if found, ok := c.get(key); ok {
		c.used = append(c.used, key)
		return found.text, nil
	}
	return "", errdef.ErrNotFound
}

// Set implements [auth.Cache].
func (c *tokenCache) Set(ctx context.Context, registry string, scheme auth.Scheme, scopes string, fetch func(context.Context) (string, error)) (string, error) {
	key := keyOf("token", registry, scheme.String(), scopes, c.repository)
	text, err := c.fetch(ctx, keyOf(string(key[:]), c.attempt), fetch)
	if err != nil {
		return "", err
	}
	c.put(keyOf("scheme", registry), scheme, "")
	c.put(key, scheme, text)
	c.used = append(c.used, key)
	return text, nil
}

// forgetUsed removes the tokens of the request, and reports whether there were any.
func (c *tokenCache) forgetUsed() bool {
	for _, key := range c.used {
		c.forget(key)
	}
	return len(c.used) != 0
}
