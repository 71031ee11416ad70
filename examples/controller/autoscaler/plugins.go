package autoscaler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/examples/controller/scaler"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
)

// PluginsConfig configures [Plugins].
type PluginsConfig struct {
	// Runtime loads the modules.
	Runtime *host.Runtime
	// Sources determines the modules that policies may name.
	Sources Sources
	// Metrics answers the queries of guests with the grant metrics.
	Metrics Metrics
	// Lookups has the Objects that each guest looks up, and their Cluster. Of the objects a guest
	// gets those of its policy's namespace.
	Lookups service.Config
	// Limits are the limits of each guest, and the highest that a policy may set.
	Limits host.Limits
	// FollowInterval is the longest time between two checks of a source. Default 30 s.
	FollowInterval time.Duration
	// Observer receives the calls of guests, and Logger their messages. Nil drops them.
	Observer host.Observer
	Logger   *slog.Logger
}

// Plugins manages the plugins of all policies. Policies of a namespace that name the same module
// with the same digest, configuration, grants and limits share one.
//
// Namespaces share no plugin, since an instance remembers earlier requests, and may query only the
// metrics of its namespace. They share the compiled code of a module, which the runtime keeps by
// its digest.
type Plugins struct {
	cfg  PluginsConfig
	stop context.CancelFunc
	ctx  context.Context // It ends when the plugins are closed.
	open sync.WaitGroup

	mu       sync.Mutex
	entries  map[guestKey]*entry
	policies map[types.NamespacedName]*assigned
	// changed receives each policy whose plugin was loaded, replaced or refused.
	changed func(types.NamespacedName)
}

// guestKey identifies a plugin by everything that affects it.
type guestKey struct{ namespace, guest string }

// entry is a plugin, from the time at which a policy names it.
type entry struct {
	key   guestKey
	guest *v1alpha1.Guest
	users map[types.NamespacedName]struct{}
	stop  context.CancelFunc

	// The following fields are guarded by Plugins.mu. scaler is nil until a module is loaded.
	scaler *scaler.Scaler
	// unreadable is the reason that the source cannot be read, and refused the reason that its
	// module does not serve.
	unreadable, refused error
}

// err returns the reason that the source's module does not serve, nil if it does.
func (e *entry) err() error {
	if err := cmp.Or(e.unreadable, e.refused); err != nil || e.scaler != nil {
		return err
	}
	return ErrLoading
}

// assigned holds the plugins of a policy: the one named by its spec, and the one that answers,
// which differs until the former is loaded. Both may be nil.
type assigned struct{ wanted, serving *entry }

// ErrLoading is the error of a module that is being loaded.
var ErrLoading = errors.New("the module is being loaded")

// NewPlugins returns an empty Plugins.
func NewPlugins(cfg PluginsConfig) *Plugins {
	ctx, stop := context.WithCancel(context.Background())
	cfg.Observer = host.Observers(cfg.Observer, digests{})
	return &Plugins{
		cfg: cfg, ctx: ctx, stop: stop,
		entries: map[guestKey]*entry{}, policies: map[types.NamespacedName]*assigned{},
		changed: func(types.NamespacedName) {},
	}
}

// Close closes the plugins. No policy may use them afterwards.
func (p *Plugins) Close() {
	p.stop()
	p.open.Wait()
}

// Use assigns guest to a policy, and returns the plugin that answers for the policy, nil if there
// is none yet. The error is non-nil if that is not the plugin named by the policy, or not its
// newest module. It is [ErrLoading], or the reason that the module does not serve.
//
// The plugin may be called until the next Use or Forget of this policy.
func (p *Plugins) Use(policy types.NamespacedName, guest *v1alpha1.Guest) (*scaler.Scaler, error) {
	_, refused := p.cfg.Sources.Source(policy.Namespace, guest)
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.policies[policy]
	if a == nil {
		a = &assigned{}
		p.policies[policy] = a
	}
	var wanted *entry
	if refused == nil {
		wanted = p.entry(policy, guest)
	}
	if old := a.wanted; old != wanted {
		a.wanted = wanted
		if old != a.serving {
			p.release(policy, old)
		}
	}
	if wanted != nil && wanted.scaler != nil && a.serving != wanted {
		old := a.serving
		a.serving = wanted
		p.release(policy, old)
	}
	err := refused
	if wanted != nil {
		err = wanted.err()
	}
	if a.serving == nil {
		return nil, err
	}
	return a.serving.scaler, err
}

// Forget drops the plugins of a policy that is gone.
func (p *Plugins) Forget(policy types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.policies[policy]; a != nil {
		delete(p.policies, policy)
		p.release(policy, a.wanted)
		p.release(policy, a.serving)
	}
}

// entry returns the plugin of a guest, which it loads in the background if no policy uses it. p.mu
// must be held.
func (p *Plugins) entry(policy types.NamespacedName, guest *v1alpha1.Guest) *entry {
	text, err := json.Marshal(guest)
	if err != nil {
		panic(err) // Never fails: it was read from JSON.
	}
	key := guestKey{policy.Namespace, string(text)}
	e := p.entries[key]
	if e == nil {
		ctx, stop := context.WithCancel(p.ctx)
		e = &entry{key: key, guest: guest.DeepCopy(), users: map[types.NamespacedName]struct{}{}, stop: stop}
		p.entries[key] = e
		p.open.Go(func() { p.serve(ctx, e) })
	}
	e.users[policy] = struct{}{}
	return e
}

// release removes a policy from the users of an entry, and closes an entry without users. e may be
// nil. p.mu must be held.
func (p *Plugins) release(policy types.NamespacedName, e *entry) {
	if e == nil {
		return
	}
	delete(e.users, policy)
	if len(e.users) == 0 && p.entries[e.key] == e {
		delete(p.entries, e.key)
		e.stop()
	}
}

// update changes the state of an entry, and notifies the policies that use it.
func (p *Plugins) update(e *entry, change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, beforeErr := e.scaler, fmt.Sprint(e.err())
	change()
	if e.scaler != before || fmt.Sprint(e.err()) != beforeErr {
		p.tell(e)
	}
}

// tell notifies the policies that use an entry of a change. p.mu must be held.
func (p *Plugins) tell(e *entry) {
	for policy := range e.users {
		p.changed(policy)
	}
}

// retryInterval is the time after which a module is loaded again if it could not be loaded for lack
// of memory or time.
const retryInterval = 10 * time.Second

// serve loads the module of an entry, replaces it when its source changes, and closes the
// plugin when ctx ends.
func (p *Plugins) serve(ctx context.Context, e *entry) {
	source, err := p.cfg.Sources.Source(e.key.namespace, e.guest)
	for err == nil && ctx.Err() == nil {
		again := false
		following, stop := context.WithCancel(ctx)
		opts := host.FollowOptions{
			Interval: p.cfg.FollowInterval,
			Failed: func(err error) {
				if _, ok := errors.AsType[*refusedError](err); !ok {
					p.update(e, func() { e.unreadable = err })
				}
			},
			Checked: func(sha256 string) {
				p.update(e, func() {
					if e.unreadable = nil; e.scaler != nil && e.scaler.Digest() == sha256 {
						e.refused = nil
					}
				})
			},
		}
		take := func(ctx context.Context, module []byte, sha256 string) error {
			if err := p.apply(ctx, e, source, module, sha256); err != nil {
				p.update(e, func() { e.unreadable, e.refused = nil, err })
				if again = errors.Is(err, host.ErrMemory) || errors.Is(err, context.DeadlineExceeded); again {
					defer stop()
				}
				return &refusedError{err}
			}
			if e.guest.SHA256 != "" {
				stop() // It no longer changes.
			}
			return nil
		}
		if e.scaler == nil {
			p.first(following, source, take, &opts)
		} else {
			opts.Applied = e.scaler.Digest()
		}
		err = host.Follow(following, source, opts, take)
		stop()
		if !again {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
	if err != nil {
		p.update(e, func() { e.refused = err })
	}
	<-ctx.Done()
	if e.scaler != nil {
		// No caller remains, and nobody receives the error.
		_ = e.scaler.Close(context.WithoutCancel(ctx))
	}
}

// first applies the module in a source, and records that in opts. Unlike following, it accepts a
// cached module while the source is unreachable. Follow reports the reason if there is none.
func (p *Plugins) first(ctx context.Context, source host.Source, take func(context.Context, []byte, string) error, opts *host.FollowOptions) {
	module, err := source.Fetch(ctx)
	if err != nil {
		return
	}
	sum := sha256.Sum256(module)
	digest := hex.EncodeToString(sum[:])
	if take(ctx, module, digest) != nil {
		opts.Refused = digest
		return
	}
	opts.Applied = digest
	host.Keep(source, digest)
}

// refusedError is an error of a module, not of its source.
type refusedError struct{ error }

// apply loads a module of an entry, or replaces the one that serves.
func (p *Plugins) apply(ctx context.Context, e *entry, source host.Source, module []byte, sha256 string) error {
	if e.guest.SHA256 != "" && e.guest.SHA256 != sha256 {
		return fmt.Errorf("%s: sha256 of the module is %s, want %s", source, sha256, e.guest.SHA256)
	}
	if e.scaler != nil { // Only this goroutine writes scaler.
		if err := e.scaler.Swap(ctx, host.Fetched(source, module), sha256); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		e.unreadable, e.refused = nil, nil
		p.tell(e)
		return nil
	}
	loaded, err := scaler.LoadScaler(ctx, p.cfg.Runtime, p.config(e, source, module), metricsOf{p.cfg.Metrics, e.key.namespace})
	if err != nil {
		return err
	}
	p.update(e, func() { e.scaler, e.unreadable, e.refused = loaded, nil, nil })
	return nil
}

// config returns the configuration of a plugin.
func (p *Plugins) config(e *entry, source host.Source, module []byte) service.Config {
	cfg := service.Config{Config: host.Config{
		Name: e.key.namespace + ": " + source.String(), Module: host.ModuleConfig{Source: host.Fetched(source, module)}, Grants: e.guest.Grants,
		Limits: limits(p.cfg.Limits, e.guest.Limits), Observer: p.cfg.Observer, Logger: p.cfg.Logger,
	}}
	// Without objects, look-ups say that none are named.
	cfg.Grants, cfg.Cluster = append(slices.Clone(cfg.Grants), host.GrantObjects), p.cfg.Lookups.Cluster
	for _, grant := range p.cfg.Lookups.Objects {
		grant.Namespaces = []string{e.key.namespace}
		cfg.Objects = append(cfg.Objects, grant)
	}
	if e.guest.Config != nil {
		cfg.GuestConfig = e.guest.Config.Raw
	}
	return cfg
}

// limits returns the limits of the operator, lowered by those of a policy.
func limits(highest host.Limits, l *v1alpha1.Limits) host.Limits {
	if l == nil {
		return highest
	}
	defaults := host.DefaultLimits()
	if l.MemoryBytes > 0 {
		highest.MemoryBytes = min(cmp.Or(highest.MemoryBytes, defaults.MemoryBytes), uint64(l.MemoryBytes))
	}
	if l.Fuel > 0 {
		highest.Fuel = min(cmp.Or(highest.Fuel, defaults.Fuel), l.Fuel)
	}
	if l.TimeoutMilliseconds > 0 {
		highest.Timeout = min(cmp.Or(highest.Timeout, defaults.Timeout), time.Duration(l.TimeoutMilliseconds)*time.Millisecond)
	}
	return highest
}

// digests is an observer that reports to the caller the digest of the module that has answered.
type digests struct{}

type digestKey struct{}

// withDigest returns a context for a call. The second result receives the digest of the module that
// ran.
func withDigest(ctx context.Context) (context.Context, *string) {
	digest := new(string)
	return context.WithValue(ctx, digestKey{}, digest), digest
}

func (digests) Called(ctx context.Context, c host.CallEvent) {
	if digest, ok := ctx.Value(digestKey{}).(*string); ok {
		*digest = c.Digest
	}
}

func (digests) Built(context.Context, host.BuildEvent) {}
func (digests) CacheHits(string, string, uint64)       {}
func (digests) Refused(context.Context, string, error) {}
func (digests) Restarted(plugin string, replaced bool) {}
