package capabilities

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// Config configures a Provider, and bounds it.
type Config struct {
	// Registry answers about artifacts; nil answers nothing.
	Registry Registry
	// Resolver looks host names up; nil answers nothing.
	Resolver Resolver
	Bounds
}

// Bounds bounds the cache and the requests of a Provider. Configuration files have it as well, with
// durations such as "90s". Zero fields have the defaults.
type Bounds struct {
	// CacheBytes and CacheEntries bound the cache of answers. Defaults 16 MiB and 4096.
	CacheBytes   int `json:"cacheBytes,omitempty"`
	CacheEntries int `json:"cacheEntries,omitempty"`
	// TTL is the time for which an answer is kept. Default 60 s; answers about addresses and rights
	// are kept for 5 s at most.
	TTL metav1.Duration `json:"ttl,omitzero"`
	// Timeout bounds a request begun by a policy, even if the policy no longer waits. Default 10 s.
	Timeout metav1.Duration `json:"timeout,omitzero"`
}

// Check returns every mistake, joined.
func (b *Bounds) Check() error {
	var errs []error
	for _, field := range []struct {
		name     string
		negative bool
	}{
		{"cacheBytes", b.CacheBytes < 0}, {"cacheEntries", b.CacheEntries < 0}, {"ttl", b.TTL.Duration < 0}, {"timeout", b.Timeout.Duration < 0},
	} {
		if field.negative {
			errs = append(errs, fmt.Errorf("%s is less than 0", field.name))
		}
	}
	return errors.Join(errs...)
}

const (
	defaultCacheBytes   = 16 << 20
	defaultCacheEntries = 4096
	defaultTTL          = time.Minute
	defaultTimeout      = 10 * time.Second
	// shortTTL is the TTL of answers that may change unnoticed.
	shortTTL = 5 * time.Second
	// maxUnderWay is the maximum number of requests of one policy that are under way.
	maxUnderWay = 8
)

// Provider answers questions of policies. It is safe for use by several goroutines.
type Provider struct {
	cfg Config
	now func() time.Time

	mu     sync.Mutex
	cache  cache
	flying map[[sha256.Size]byte]*flight
	calls  map[counted]uint64
	// users counts the open callers of each policy.
	users  map[string]int
	shared uint64
}

// flight is a question that is under way.
type flight struct {
	done   chan struct{}
	answer []byte
	err    error
}

// counted is the key by which calls are counted.
type counted struct{ policy, operation, result string }

// NewProvider returns a Provider. The error has every mistake of the configuration.
func NewProvider(cfg Config) (*Provider, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("configure host capabilities: %w", err)
	}
	orDefault(&cfg.CacheBytes, defaultCacheBytes)
	orDefault(&cfg.CacheEntries, defaultCacheEntries)
	orDefault(&cfg.TTL.Duration, defaultTTL)
	orDefault(&cfg.Timeout.Duration, defaultTimeout)
	return &Provider{
		cfg: cfg, now: time.Now, cache: newCache(cfg.CacheBytes, cfg.CacheEntries),
		flying: map[[sha256.Size]byte]*flight{}, calls: map[counted]uint64{}, users: map[string]int{},
	}, nil
}

func orDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

// Stats holds the counters of a Provider.
type Stats struct {
	// Hits and Misses count look-ups in the cache. Shared counts misses that waited for the request
	// of another call. Evictions counts answers dropped in favor of others.
	Hits, Misses, Shared, Evictions uint64
	// Entries and Bytes are the size of the cache.
	Entries, Bytes int
	// Calls counts the calls of policies, in no order.
	Calls []Calls
}

// The results of calls.
const (
	Answered = "answered"
	Failed   = "failed"
	Refused  = "refused"
)

// Calls counts calls of an operation by a policy.
type Calls struct {
	// Policy is the name of the plugin. Operation is a name such as "oci/v2/verify", or
	// "unknown". Result is Answered, Failed, or Refused for want of a grant.
	Policy, Operation, Result string
	Count                     uint64
}

// Stats returns the current counters.
func (p *Provider) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Hits: p.cache.hits, Misses: p.cache.misses, Shared: p.shared, Evictions: p.cache.evictions,
		Entries: len(p.cache.entries), Bytes: p.cache.bytes,
	}
	for c, n := range p.calls {
		s.Calls = append(s.Calls, Calls{c.policy, c.operation, c.result, n})
	}
	return s
}

// Caller returns the Provider for one policy, which must close the Caller. A nil Provider answers
// nothing.
func (p *Provider) Caller(policy string, scope Scope) *Caller {
	if p == nil {
		p, _ = NewProvider(Config{}) // Has no mistake.
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.users[policy]++
	return &Caller{provider: p, policy: policy, scope: scope, slots: make(chan struct{}, maxUnderWay)}
}

// Close ends the use of the Provider by a version of a policy. The counters of a policy are dropped
// with its last version.
func (c *Caller) Close() {
	c.once.Do(func() {
		p := c.provider
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.users[c.policy]--; p.users[c.policy] > 0 {
			return
		}
		delete(p.users, c.policy)
		for counted := range p.calls {
			if counted.policy == c.policy {
				delete(p.calls, counted)
			}
		}
	})
}

// Caller asks on behalf of one policy. It is safe for use by several goroutines.
type Caller struct {
	provider *Provider
	policy   string
	scope    Scope
	// slots holds a value for each request under way.
	slots chan struct{}
	once  sync.Once
}

// Scope returns the scope of the policy. It must not be changed.
func (c *Caller) Scope() *Scope { return &c.scope }

// Count counts a call of an operation of Kubewarden's host, with the result given by its error.
func (c *Caller) Count(operation string, err error) {
	result := Answered
	switch _, refused := errors.AsType[*GrantError](err); {
	case refused:
		result = Refused
	case err != nil:
		result = Failed
	}
	if !slices.Contains(operations, operation) {
		operation = "unknown"
	}
	c.provider.mu.Lock()
	defer c.provider.mu.Unlock()
	c.provider.calls[counted{c.policy, operation, result}]++
}

// GrantError is the error of a call that the policy's configuration does not grant.
type GrantError struct{ text string }

// Error names the missing grant, and the field that gives it.
func (e *GrantError) Error() string { return e.text }

func refuse(format string, args ...any) error {
	return &GrantError{fmt.Sprintf(format, args...)}
}

// Digest returns the digest that an image names.
func (c *Caller) Digest(ctx context.Context, image Image) (string, error) {
	answer, err := c.about(ctx, ManifestDigest, image, "", func(ctx context.Context) ([]byte, error) {
		digest, err := c.provider.cfg.Registry.Digest(ctx, image)
		return []byte(digest), err
	})
	return string(answer), err
}

// Manifest returns the manifest or the index that an image names.
func (c *Caller) Manifest(ctx context.Context, image Image) ([]byte, error) {
	return c.about(ctx, Manifest, image, "", func(ctx context.Context) ([]byte, error) {
		return c.provider.cfg.Registry.Manifest(ctx, image)
	})
}

// Config returns the result of encode for the manifest of an image, its digest and its
// configuration.
func (c *Caller) Config(ctx context.Context, image Image, encode func(manifest []byte, digest string, config []byte) []byte) ([]byte, error) {
	return c.about(ctx, ManifestConfig, image, "", func(ctx context.Context) ([]byte, error) {
		manifest, digest, config, err := c.provider.cfg.Registry.Config(ctx, image)
		if err != nil {
			return nil, err
		}
		return encode(manifest, digest, config), nil
	})
}

// Verify returns the digest that an image names if it has the signatures wanted.
func (c *Caller) Verify(ctx context.Context, image Image, wanted Signatures) (string, error) {
	key, err := json.Marshal(wanted)
	if err != nil {
		return "", err
	}
	answer, err := c.about(ctx, VerifyV2, image, string(key), func(ctx context.Context) ([]byte, error) {
		digest, err := c.provider.cfg.Registry.Verify(ctx, image, wanted)
		return []byte(digest), err
	})
	return string(answer), err
}

// about asks the registry about an image.
func (c *Caller) about(ctx context.Context, operation string, image Image, key string, f func(context.Context) ([]byte, error)) ([]byte, error) {
	if err := c.scope.MayAsk(image); err != nil {
		return nil, err
	}
	if c.provider.cfg.Registry == nil {
		return nil, errors.New("the host has no access to registries")
	}
	return c.ask(ctx, operation, image.String()+"\x00"+key, c.provider.cfg.TTL.Duration, f)
}

// LookupHost returns the result of encode for the addresses of a host name.
func (c *Caller) LookupHost(ctx context.Context, name string, encode func(addresses []string) []byte) ([]byte, error) {
	name, err := c.scope.HostName(name)
	if err != nil {
		return nil, err
	}
	if c.provider.cfg.Resolver == nil {
		return nil, errors.New("the host does not look up host names")
	}
	return c.ask(ctx, LookupHost, name, shortTTL, func(ctx context.Context) ([]byte, error) {
		addresses, err := c.provider.cfg.Resolver.LookupHost(ctx, name)
		if err != nil {
			// Both the error and its text name the server that was asked.
			words := cmp.Or(publicerr.Network(err), "the host's address cannot be looked up")
			return nil, publicerr.Wrap(fmt.Sprintf("look up %s: %s", name, words), fmt.Errorf("look up %s: %w", name, err))
		}
		return encode(addresses[:min(len(addresses), maxAddresses)]), nil
	})
}

// maxAddresses is the maximum number of addresses that a policy gets for a host name.
const maxAddresses = 256

// Ask returns the answer of f to a question about the cluster, identified by the operation and the
// key. The answer is cached for some seconds. If fresh is set, Ask calls f in any case. The value
// returned by f must not be changed.
func (c *Caller) Ask(ctx context.Context, operation, key string, fresh bool, f func(context.Context) ([]byte, error)) ([]byte, error) {
	if fresh {
		return c.ask(ctx, operation, key, 0, f)
	}
	return c.ask(ctx, operation, key, shortTTL, f)
}

// ask returns the answer of f to a question. The answer comes from the cache, from another call
// with the same question that is under way, or from f. An answer of f is kept for ttl at most, or
// not at all if ttl is 0. The error is ctx's if it ends first; f then continues.
func (c *Caller) ask(ctx context.Context, operation, key string, ttl time.Duration, f func(context.Context) ([]byte, error)) ([]byte, error) {
	p := c.provider
	ttl = min(ttl, p.cfg.TTL.Duration)
	sum := sha256.Sum256([]byte(operation + "\x00" + key))
	known := func(again bool) (*flight, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.known(sum, ttl, again)
	}
	if fl, ok := known(false); ok {
		return fl.wait(ctx)
	}
	// A request joined by others holds a slot of the policy that began it, not one of theirs.
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("the policy has %d pending questions: %w", maxUnderWay, context.Cause(ctx))
	}
	fl, ok := known(true)
	if ok {
		<-c.slots
		return fl.wait(ctx)
	}
	// A request that others wait for must not end with the call that began it.
	flying, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.cfg.Timeout.Duration, fmt.Errorf("no answer within %s: %w", p.cfg.Timeout.Duration, context.DeadlineExceeded))
	go func() {
		defer cancel()
		fl.answer, fl.err = call(flying, f)
		<-c.slots
		p.land(sum, ttl, fl)
	}()
	return fl.wait(ctx)
}

// known returns the flight that has or will have the answer. If there is none, it returns a new
// one, which others can join if again is set.
func (p *Provider) known(sum [sha256.Size]byte, ttl time.Duration, again bool) (*flight, bool) {
	if ttl == 0 {
		return &flight{done: make(chan struct{})}, false
	}
	if answer, ok := p.cache.get(sum, p.now(), again); ok {
		return &flight{done: landed, answer: answer}, true
	}
	if fl := p.flying[sum]; fl != nil {
		p.shared++
		return fl, true
	}
	fl := &flight{done: make(chan struct{})}
	if again {
		p.flying[sum] = fl
	}
	return fl, false
}

// landed is a closed channel.
var landed = func() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

// land ends a flight, and keeps its answer.
func (p *Provider) land(sum [sha256.Size]byte, ttl time.Duration, fl *flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ttl != 0 {
		delete(p.flying, sum)
		if fl.err == nil {
			p.cache.put(sum, fl.answer, p.now(), ttl)
		}
	}
	close(fl.done)
}

// call returns the answer of f. It turns a panic into an error.
func call(ctx context.Context, f func(context.Context) ([]byte, error)) (answer []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			answer, err = nil, fmt.Errorf("panic: %v", r)
		}
	}()
	if answer, err = f(ctx); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return answer, err
}

func (f *flight) wait(ctx context.Context) ([]byte, error) {
	select {
	case <-f.done:
		return f.answer, f.err
	case <-ctx.Done():
		return nil, fmt.Errorf("no answer before the call's deadline: %w", context.Cause(ctx))
	}
}
