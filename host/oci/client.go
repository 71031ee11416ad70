package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"
	"oras.land/oras-go/v2/errdef"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/lograte"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// Client fetches modules from registries and layouts. It is safe for use by several
// goroutines.
type Client struct {
	cfg    Config
	files  followed
	http   *transport
	plain  *http.Client
	tokens *tokens
	cache  *cache
	// questions bounds the memory held by answers to others.
	questions *semaphore.Weighted

	mu sync.Mutex
	// sources are the sources in use, by their references: a server whose plugins change must not
	// keep every reference that it ever had.
	sources map[Reference]weak.Pointer[source]
	// newest are the highest versions that were accepted, by references; for a client
	// without a cache.
	newest map[Reference]accepted
}

// maxNewest is the maximum number of references with a remembered version. None is dropped for a
// new one.
const maxNewest = 10_000

// New returns a Client. The error has every mistake of the configuration.
//
// The files that the configuration names, and the file of [ReadConfig], are read again before each
// fetch: exchanged keys and certificates count without a restart, as kubelet exchanges those of a
// mounted Secret. While one of them cannot be read or is malformed, a fetch is an error.
func New(cfg Config) (*Client, error) {
	cfg.Logger = lograte.Logger(cfg.Logger, lograte.New(lograte.DefaultBytes)) // Policies' questions can repeat it.
	c := &Client{cfg: cfg, sources: map[Reference]weak.Pointer[source]{}, newest: map[Reference]accepted{}}
	c.files.cfg, c.questions = &c.cfg, semaphore.NewWeighted(maxQuestionsBytes)
	// The program may have changed the configuration after reading it.
	first, err := newSettings(&cfg, cfg.sum())
	cache, cacheErr := openCache(cfg.CacheDir, cfg.CacheBytes)
	if cacheErr != nil {
		cacheErr = fmt.Errorf("configure registries: %w", cacheErr)
	}
	if err := errors.Join(err, cacheErr); err != nil {
		return nil, err
	}
	c.files.now.Store(first)
	c.cache = cache
	c.http = &transport{
		hosts: func() map[string]*endpoint { return c.files.now.Load().hosts }, others: others(),
		sleep: sleep, now: time.Now, pause: map[string]time.Time{},
	}
	c.plain = &http.Client{Transport: c.http, CheckRedirect: checkRedirect}
	c.tokens = newTokens(func() time.Time { return c.http.now() })
	return c, nil
}

func userAgent() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == "github.com/kubewasm/kubewasm" && m.Version != "" {
				return "kubewasm/" + strings.Trim(m.Version, "()")
			}
		}
	}
	return "kubewasm"
}

// Source returns the source of the module that a reference names, see [ParseReference]. Its Check
// reports a reference that is malformed, and one that nothing vouches for: it needs a digest, the
// sha256 of the configuration, or a rule of Config.Trust. Sources of the same reference share their
// state. The client forgets it when the last of them is garbage.
//
// The source is a [host.ConditionalSource]: following a tag costs a request for its digest, and
// nothing more while it stays. That of a layout is a [host.Watcher], too. It keeps modules:
// while the registry is away, a tag leads to the module last loaded from it, and not to a later
// version that was refused.
func (c *Client) Source(reference string) host.Source {
	ref, err := ParseReference(reference)
	if err != nil {
		return &source{client: c, err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sources[ref].Value()
	if s == nil {
		s = &source{client: c, ref: ref, busy: make(chan struct{}, 1)}
		c.sources[ref] = weak.Make(s)
		runtime.AddCleanup(s, c.forget, ref)
	}
	if s.ref.Layout != "" {
		return layoutSource{s}
	}
	return s
}

// forget drops a source that is garbage, unless its reference has a new source by now.
func (c *Client) forget(ref Reference) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sources[ref].Value() == nil {
		delete(c.sources, ref)
	}
}

// Fetch returns the artifact of a reference, after verifying its signatures by the rule of
// Config.Trust for it. An artifact without a rule is not verified. While the registry is away,
// Fetch takes the artifact from the cache, if the cache has it: the one to which the tag led when
// it was last fetched so, or loaded from a [Client.Source].
func (c *Client) Fetch(ctx context.Context, ref Reference) (*Artifact, error) {
	a, err := c.fetch(ctx, ref, "", true, false)
	if err != nil {
		return nil, err
	}
	if a.kept != nil {
		a.kept()
	}
	return a.Artifact, nil
}

// fetch returns an artifact, without its module if its digest is unless. stale allows the cache
// when the registry is away; ruled means that the artifact needs a rule.
func (c *Client) fetch(ctx context.Context, ref Reference, unless string, stale, ruled bool) (*fetched, error) {
	if ref.Digest != "" && ref.Digest == unless {
		return &fetched{Artifact: &Artifact{Digest: unless}}, nil // A digest leads nowhere else.
	}
	ctx, cancel := c.withTimeout(ctx)
	defer cancel()
	r, err := c.reader(ref)
	if err == nil && ruled {
		err = r.settings.vouch(ref)
	}
	if err == nil {
		var a *fetched
		if a, err = r.load(ctx, unless); err != nil && stale && c.cache != nil && ref.Layout == "" && away(err) {
			a, err = r.recall(ctx, err)
		}
		if err == nil {
			return a, nil
		}
	}
	if ctx.Err() != nil {
		err = errors.Join(context.Cause(ctx), err)
	}
	return nil, about("fetch", ref, err)
}

// fetchKept returns the artifact that was loaded last by a reference, from the cache.
func (c *Client) fetchKept(ctx context.Context, ref Reference, ruled bool) (*fetched, error) {
	r, err := c.reader(ref)
	if err == nil && ruled {
		err = r.settings.vouch(ref)
	}
	var a *fetched
	if err == nil {
		r.remembered = true
		a, err = r.load(ctx, "")
	}
	if err != nil {
		return nil, about("fetch the last good module of", ref, err)
	}
	return a, nil
}

// about returns an error that names the attempted action, in the words for users as well.
func about(what string, ref Reference, err error) error {
	return publicerr.Wrap(fmt.Sprintf("%s %s: %s", what, ref, publicerr.Words(err)), fmt.Errorf("%s %s: %w", what, ref, err))
}

// withTimeout bounds everything that a fetch needs.
func (c *Client) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	d := c.files.now.Load().timeout
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("not complete after %s: %w", d, context.DeadlineExceeded))
}

// reader reads the content of an artifact: from the cache, and otherwise from the first store that
// has it.
type reader struct {
	client   *Client
	settings *settings
	ref      Reference
	stores   []store
	// cache keeps the content that is read; nil keeps nothing.
	cache *cache
	// remembered answers from the cache, since the registry is away.
	remembered bool
	// answers are those of the registry. They are kept once the artifact was loaded: a refused
	// artifact must not replace the last good one.
	answers map[string]any
	// questions and reserved bound the memory held by answers, see reserve.
	questions *semaphore.Weighted
	reserved  int64
}

func (c *Client) reader(ref Reference) (*reader, error) {
	if err := ref.check(); err != nil {
		return nil, err
	}
	settings, err := c.files.current()
	if err != nil {
		return nil, err
	}
	stores, err := c.stores(settings, ref)
	if err != nil {
		return nil, err
	}
	return &reader{client: c, settings: settings, ref: ref, stores: stores, cache: c.cache, answers: map[string]any{}}, nil
}

// recall returns the artifact from the cache, since the registry is away for a reason.
func (r *reader) recall(ctx context.Context, reason error) (*fetched, error) {
	r.remembered = true
	// The time may be over, which the cache does not need.
	a, err := r.load(context.WithoutCancel(ctx), "")
	if err != nil {
		return nil, fmt.Errorf("%w; the cache does not have it either: %w", reason, err)
	}
	a.Stale = true
	if logger := r.client.cfg.Logger; logger != nil {
		logger.Warn("the registry is unreachable: the module is from the cache", "reference", r.ref.String(), "digest", a.Digest, "err", reason)
	}
	return a, nil
}

// load resolves, verifies and reads the artifact, in this order.
func (r *reader) load(ctx context.Context, unless string) (*fetched, error) {
	desc, err := r.resolve(ctx, r.ref.wanted())
	if err != nil {
		return nil, err
	}
	a := &fetched{Artifact: &Artifact{Digest: desc.Digest.String()}}
	if a.Digest == unless {
		return a, nil
	}
	root, err := r.readResolved(ctx, r.ref.wanted(), &desc, maxManifestBytes)
	if err != nil {
		return nil, err
	}
	// Nothing that a signature does not cover is parsed before the signature is verified.
	if a.SignedBy, err = r.verify(ctx, desc, root); err != nil {
		return nil, err
	}
	if err := a.module(ctx, root, r.settings.maxBytes, r.read); err != nil {
		return nil, err
	}
	if err := r.client.accept(r.settings.rule(r.ref), r.ref, a.Artifact); err != nil {
		return nil, err
	}
	digest := a.Digest
	a.kept = func() {
		r.client.loaded(r.ref, digest)
		if r.ref.Layout == "" && !r.remembered {
			for key, answer := range r.answers {
				r.client.stored(r.cache.remember(key, answer))
			}
		}
	}
	return a, nil
}

func (r *reader) resolveKey(wanted string) string { return "resolve " + r.ref.Name() + " " + wanted }

// resolve returns the descriptor of a tag or a digest of the artifact's repository.
func (r *reader) resolve(ctx context.Context, wanted string) (desc ocispec.Descriptor, err error) {
	key := r.resolveKey(wanted)
	isDigest := digestRE.MatchString(wanted)
	if r.remembered || isDigest {
		// Content with a digest does not change.
		if r.cache.recall(key, &desc) && checkDescriptor(desc, maxManifestBytes) == nil && (!isDigest || desc.Digest.String() == wanted) {
			return ocispec.Descriptor{Digest: desc.Digest, Size: desc.Size, MediaType: desc.MediaType}, nil
		}
		if r.remembered {
			return desc, fmt.Errorf("%s %s: %w", r.ref.Name(), wanted, errdef.ErrNotFound)
		}
	}
	err = r.each(func(s store) error {
		desc, err = s.resolve(ctx, wanted)
		return err
	})
	if err != nil {
		return desc, err
	}
	if err := checkDescriptor(desc, maxManifestBytes); err != nil {
		return desc, fmt.Errorf("%s: manifest: %w", r.ref.Name(), err)
	}
	if isDigest && desc.Digest.String() != wanted {
		return desc, fmt.Errorf("%s: %w", r.ref.Name(), &contentError{Want: wanted, Got: desc.Digest.String()})
	}
	r.answers[key] = desc
	return desc, nil
}

// readResolved returns the bytes of the descriptor that resolve returned for a tag or a digest, and
// corrects its size: the digest decides, since a registry's answer without the manifest may be
// wrong.
func (r *reader) readResolved(ctx context.Context, wanted string, desc *ocispec.Descriptor, maxBytes int64) ([]byte, error) {
	data, err := r.read(ctx, *desc, maxBytes)
	if other, ok := errors.AsType[*sizeError](err); ok && other.got <= maxBytes {
		desc.Size = other.got
		r.answers[r.resolveKey(wanted)] = *desc
		return r.read(ctx, *desc, maxBytes)
	}
	return data, err
}

// read returns the bytes of a descriptor.
func (r *reader) read(ctx context.Context, desc ocispec.Descriptor, maxBytes int64) (data []byte, err error) {
	if err := checkDescriptor(desc, maxBytes); err != nil {
		return nil, err
	}
	if r.ref.Layout == "" {
		if data = r.cache.get(desc.Digest.String(), desc.Size); data != nil {
			return data, nil
		}
		if r.remembered {
			return nil, fmt.Errorf("%s: %w", desc.Digest, errdef.ErrNotFound)
		}
	}
	err = r.each(func(s store) error {
		for attempt := 1; ; attempt++ {
			if data, err = read(ctx, s, desc, maxBytes); !errors.Is(err, errShort) || attempt == attempts || r.ref.Layout != "" {
				return err
			}
			if err := r.client.http.sleep(ctx, firstBackoff<<attempt); err != nil {
				return err
			}
		}
	})
	if err == nil && r.ref.Layout == "" {
		r.client.stored(r.cache.put(desc.Digest.String(), data))
	}
	return data, err
}

// stored logs an error of the cache, which has no other consequence.
func (c *Client) stored(err error) {
	if err != nil && c.cfg.Logger != nil {
		c.cfg.Logger.Warn("an artifact was not kept", "err", err)
	}
}

// referrers returns the descriptors of manifests that refer to a manifest.
func (r *reader) referrers(ctx context.Context, subject ocispec.Descriptor) (all []ocispec.Descriptor, err error) {
	key := "referrers " + r.ref.Name() + " " + subject.Digest.String()
	if r.remembered {
		r.cache.recall(key, &all)
		return all[:min(len(all), maxReferrers)], nil
	}
	var errs []error
	for _, s := range r.stores {
		some, err := s.referrers(ctx, subject)
		if err != nil {
			errs = append(errs, err)
		}
		for _, desc := range some {
			if len(all) < maxReferrers && !slices.ContainsFunc(all, func(d ocispec.Descriptor) bool { return d.Digest == desc.Digest }) {
				all = append(all, desc)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.Join(errs...)
	}
	r.answers[key] = all
	return all, nil
}

// compiled returns the content of a document of a type that refers to a manifest, and whose SHA-256
// is in a list.
func (r *reader) compiled(ctx context.Context, subject ocispec.Descriptor, mediaType string, sha256 []string) ([]byte, error) {
	referrers, err := r.referrers(ctx, subject)
	if err != nil {
		return nil, err
	}
	for _, desc := range referrers {
		if desc.ArtifactType != mediaType && desc.ArtifactType != "" && desc.ArtifactType != ocispec.MediaTypeEmptyJSON {
			continue // Some registries send the type of the configuration, and the manifest decides.
		}
		data, err := r.read(ctx, desc, maxManifestBytes)
		if err != nil {
			return nil, err
		}
		var manifest ocispec.Manifest
		if err := json.Unmarshal(data, &manifest); err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		if manifest.ArtifactType != mediaType || manifest.Subject == nil || manifest.Subject.Digest != subject.Digest || len(manifest.Layers) != 1 {
			continue
		}
		layer := manifest.Layers[0]
		if slices.ContainsFunc(sha256, func(s string) bool { return strings.EqualFold("sha256:"+s, layer.Digest.String()) }) {
			return r.read(ctx, layer, r.settings.maxBytes)
		}
	}
	return nil, fmt.Errorf("%w: none of %[3]d documents is a %[2]s with a granted digest", fs.ErrNotExist, mediaType, len(referrers))
}

// each calls f with the stores, until one has no error. The error is that of the last, which
// is the registry itself, after those of mirrors that did not answer.
func (r *reader) each(f func(store) error) error {
	var errs []error
	for i, s := range r.stores {
		err := f(s)
		if err == nil {
			return nil
		}
		if i < len(r.stores)-1 && errors.Is(err, errdef.ErrNotFound) {
			continue // A mirror need not have everything.
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
