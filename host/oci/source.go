package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/loading"
)

// source is the module that a reference names.
type source struct {
	client *Client
	ref    Reference
	err    error // Of parsing the reference.
	// busy has a value while the artifact is fetched: another fetch finds it in the cache.
	busy chan struct{}

	// ruled is set if Check has found that only a rule vouches for the target of the tag.
	ruled atomic.Bool

	mu    sync.Mutex
	state SourceState
	// waiting are the artifacts that were handed over last and not kept yet, without their
	// modules.
	waiting []waiting
}

// waiting is an artifact whose module, with this digest, may be loaded.
type waiting struct {
	sha256 string
	kept   func()
}

// maxWaiting is for several plugins of one source that load at the same time.
const maxWaiting = 4

var (
	_ host.ConditionalSource = (*source)(nil)
	_ loading.Keeper         = (*source)(nil)
	_ loading.Checker        = (*source)(nil)
	_ loading.CompiledSource = (*source)(nil)
	_ host.Watcher           = layoutSource{}
)

// SourceState is the state of a source.
type SourceState struct {
	// Reference is the reference of the source.
	Reference string
	// Digest is the digest of the manifest that was fetched last, empty if none was.
	Digest string
	// Checked is the time of the last successful request to the registry, Err the error since then.
	Checked time.Time
	Err     error
	// Stale reports that the registry cannot be asked: the serving module may be out of date.
	Stale bool
	// Fetched, Unchanged, FromCache, Refused and Failed count events. Fetched counts fetched
	// modules, and Unchanged checks that found the same tag. FromCache counts modules from the
	// cache since the registry was away. Refused counts artifacts refused for their content, and
	// Failed all other errors.
	Fetched, Unchanged, FromCache, Refused, Failed uint64
}

// Sources returns the states of the sources that are in use, in no order.
func (c *Client) Sources() []SourceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	states := make([]SourceState, 0, len(c.sources))
	for _, pointer := range c.sources {
		s := pointer.Value()
		if s == nil {
			continue
		}
		s.mu.Lock()
		states = append(states, s.state)
		s.mu.Unlock()
		states[len(states)-1].Reference = s.ref.String()
	}
	return states
}

// HasRule reports whether a rule of Config.Trust is for a reference.
func (c *Client) HasRule(ref Reference) (bool, error) {
	if err := ref.check(); err != nil {
		return false, err
	}
	settings, err := c.files.current()
	return err == nil && settings.rule(ref) != nil, err
}

// CacheBytes returns the size of the blobs in the cache when it was last counted.
func (c *Client) CacheBytes() int64 {
	if c.cache == nil {
		return 0
	}
	c.cache.mu.Lock()
	defer c.cache.mu.Unlock()
	return c.cache.bytes
}

// String implements [host.Source].
func (s *source) String() string {
	if s.err != nil {
		return "oci"
	}
	return s.ref.String()
}

// Check implements loading.Checker.
func (s *source) Check(sha256 string) error {
	if s.err != nil {
		return fmt.Errorf("source oci: %w", s.err)
	}
	settings, err := s.client.files.current()
	if err != nil {
		return fmt.Errorf("source %s: %w", s, err)
	}
	if sha256 != "" || s.ref.Digest != "" {
		return nil
	}
	if err := settings.vouch(s.ref); err != nil {
		return fmt.Errorf("source %s: %w", s, err)
	}
	s.ruled.Store(true)
	return nil
}

// Fetch implements [host.Source]. While the registry is away it returns the module from the cache.
func (s *source) Fetch(ctx context.Context) ([]byte, error) {
	a, err := s.fetch(ctx, "", true)
	if err != nil {
		return nil, err
	}
	return a.Module, nil
}

// FetchCompiled implements loading.CompiledSource. The forms are documents of the type
// compiledMediaType that refer to the artifact.
func (s *source) FetchCompiled(ctx context.Context, platform string, sha256 []string) (form []byte, err error) {
	if s.err != nil {
		return nil, s.err
	}
	err = s.client.look(ctx, "fetch the compiled form of", s.ref, func(ctx context.Context, r *reader) error {
		subject, _, err := r.root(ctx, 0)
		if err != nil {
			return err
		}
		form, err = r.compiled(ctx, subject, compiledMediaType(platform), sha256)
		return err
	})
	return form, err
}

// FetchUnless implements [host.ConditionalSource]. The revision is the digest that the tag
// leads to.
func (s *source) FetchUnless(ctx context.Context, revision string) (module []byte, current string, err error) {
	a, err := s.fetch(ctx, revision, false)
	if err != nil {
		return nil, "", err
	}
	return a.Module, a.Digest, nil
}

// fetch returns the artifact, without its module if its digest is unless. stale allows the cache
// when the registry is away.
func (s *source) fetch(ctx context.Context, unless string, stale bool) (*fetched, error) {
	if s.err != nil {
		return nil, s.err
	}
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil, fmt.Errorf("fetch %s: %w", s, ctx.Err())
	}
	a, err := s.client.fetch(ctx, s.ref, unless, stale, s.ruled.Load())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.failed(err)
		return nil, err
	case a.Stale:
		s.state.FromCache++
	case a.Module == nil:
		s.state.Unchanged++
	default:
		s.state.Fetched++
	}
	if a.Module != nil {
		s.handedOver(a)
	}
	s.state.Digest, s.state.Stale = a.Digest, a.Stale
	if !a.Stale {
		s.state.Checked, s.state.Err = time.Now(), nil
	}
	return a, nil
}

// handedOver adds an artifact to those that wait until their module is loaded. s.mu is held.
func (s *source) handedOver(a *fetched) {
	// Several manifests may have one module. The tag leads to the last.
	s.waiting = slices.DeleteFunc(s.waiting, func(w waiting) bool { return w.sha256 == a.sha256 })
	s.waiting = append(s.waiting, waiting{a.sha256, a.kept})
	s.waiting = s.waiting[max(0, len(s.waiting)-maxWaiting):]
}

// Keep implements loading.Keeper.
func (s *source) Keep(sha256 string) {
	s.mu.Lock()
	i := slices.IndexFunc(s.waiting, func(w waiting) bool { return w.sha256 == "sha256:"+sha256 })
	if i < 0 {
		s.mu.Unlock()
		return
	}
	kept := s.waiting[i].kept
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.mu.Unlock()
	kept()
}

// Kept implements loading.Keeper. It verifies the signatures of the artifact in the cache again.
func (s *source) Kept(ctx context.Context) ([]byte, error) {
	if s.err != nil || s.client.cache == nil || s.ref.Layout != "" {
		return nil, fmt.Errorf("fetch the last good module of %s: %w", s, os.ErrNotExist)
	}
	a, err := s.client.fetchKept(ctx, s.ref, s.ruled.Load())
	if err != nil {
		return nil, err
	}
	return a.Module, nil
}

// failed records an error. s.mu is held.
func (s *source) failed(err error) {
	if errors.Is(err, context.Canceled) {
		return // The caller has stopped.
	}
	s.state.Err = err
	switch {
	case away(err):
		s.state.Stale = true
		s.state.Failed++
	case refused(err):
		s.state.Refused++
	default:
		s.state.Failed++
	}
}

// refused reports whether an error concerns the content of an artifact.
func refused(err error) bool {
	if _, ok := errors.AsType[*TrustError](err); ok {
		return true
	}
	_, ok := errors.AsType[*contentError](err)
	return ok
}

// layoutSource is the source of an artifact in a layout, which can be watched.
type layoutSource struct{ *source }

// Watch implements [host.Watcher]: a change of a layout's index may change the artifacts that it
// names.
func (s layoutSource) Watch(ctx context.Context, changed func()) error {
	path := s.ref.Layout
	// Its content does not tell a directory from an archive: the index may be half written now.
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		path = filepath.Join(path, "index.json")
	}
	return host.File(path).(host.Watcher).Watch(ctx, changed)
}
