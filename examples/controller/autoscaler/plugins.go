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
	// Sources says which modules policies may name.
	Sources Sources
	// Metrics is what guests with the grant metrics may ask.
	Metrics Metrics
	// Limits are the limits of each guest, and the highest that a policy may set.
	Limits host.Limits
	// FollowInterval is the longest time between two looks at a source. Default 30 s.
	FollowInterval time.Duration
	// Observer is told what guests do; Logger gets what they log. Nil drops it.
	Observer host.Observer
	Logger   *slog.Logger
}

// Plugins are the plugins of all policies. Policies of a namespace that name the same module
// with the same digest, configuration, grants and limits share one.
//
// Namespaces share none: an instance remembers what it was asked before, and what it reads of
// the metrics is bounded by its namespace. They share the compiled code of a module, which
// the runtime keeps by its digest.
type Plugins struct {
	cfg  PluginsConfig
	stop context.CancelFunc
	ctx  context.Context // Ends when the plugins are closed.
	open sync.WaitGroup

	mu       sync.Mutex
	entries  map[guestKey]*entry
	policies map[types.NamespacedName]*assigned
	// changed is told of each policy whose plugin was loaded, replaced or refused.
	changed func(types.NamespacedName)
}

// guestKey is all that makes a plugin what it is.
type guestKey struct{ namespace, guest string }

// entry is a plugin, from the moment on that a policy names it.
type entry struct {
	key   guestKey
	guest *v1alpha1.Guest
	users map[types.NamespacedName]struct{}
	stop  context.CancelFunc

	// The following are guarded by Plugins.mu.
	// scaler is nil until a module was loaded.
	scaler *scaler.Scaler
	// unreadable says why the source cannot be read, refused why its module does not serve.
	unreadable, refused error
}

// err returns why the module that the source has does not serve, nil if it does.
func (e *entry) err() error {
	if err := cmp.Or(e.unreadable, e.refused); err != nil || e.scaler != nil {
		return err
	}
	return ErrLoading
}

// assigned are the plugins of a policy: the one that its spec names, and the one that
// answers, which is another until that is loaded. Both may be nil.
type assigned struct{ wanted, serving *entry }

// ErrLoading is the error of a module that is being loaded.
var ErrLoading = errors.New("the module is being loaded")

// NewPlugins returns Plugins without any.
func NewPlugins(cfg PluginsConfig) *Plugins {
	ctx, stop := context.WithCancel(context.Background())
	cfg.Observer = host.Observers(cfg.Observer, digests{})
	return &Plugins{
		cfg: cfg, ctx: ctx, stop: stop,
		entries: map[guestKey]*entry{}, policies: map[types.NamespacedName]*assigned{},
		changed: func(types.NamespacedName) {},
	}
}

// Close closes the plugins. No policy may use them any more.
func (p *Plugins) Close() {
	p.stop()
	p.open.Wait()
}

// Use makes guest the one of a policy, and returns the plugin that answers for the policy. It
// is nil if there is none yet. The error says why it is not the one that the policy names, or
// not the newest module of it: [ErrLoading], or why that does not serve.
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

// Forget tells that a policy is gone.
func (p *Plugins) Forget(policy types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.policies[policy]; a != nil {
		delete(p.policies, policy)
		p.release(policy, a.wanted)
		p.release(policy, a.serving)
	}
}

// entry returns the plugin of a guest, which it loads in the background if no policy uses it.
// p.mu is held.
func (p *Plugins) entry(policy types.NamespacedName, guest *v1alpha1.Guest) *entry {
	text, err := json.Marshal(guest)
	if err != nil {
		panic(err) // It was read from JSON.
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

// release takes a policy from the users of an entry, which is closed without users. e may be
// nil. p.mu is held.
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

// update changes the state of an entry, and tells the policies that use it.
func (p *Plugins) update(e *entry, change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, beforeErr := e.scaler, fmt.Sprint(e.err())
	change()
	if e.scaler != before || fmt.Sprint(e.err()) != beforeErr {
		p.tell(e)
	}
}

// tell tells the policies that use an entry that it has changed. p.mu is held.
func (p *Plugins) tell(e *entry) {
	for policy := range e.users {
		p.changed(policy)
	}
}

// retryInterval is how long a module waits that could not be loaded for want of memory or
// time, which may be there later.
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
				stop() // It does not change any more.
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
		// Nothing calls it any more. The error has no receiver.
		_ = e.scaler.Close(context.WithoutCancel(ctx))
	}
}

// first takes the module that a source has, and tells opts. Unlike following, it is content with
// what a cache has while the source is away. Follow reports why there is none.
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

// refusedError is the error of a module that does not serve, rather than of its source.
type refusedError struct{ error }

// apply loads a module of an entry, or has it replace the one that serves.
func (p *Plugins) apply(ctx context.Context, e *entry, source host.Source, module []byte, sha256 string) error {
	if e.guest.SHA256 != "" && e.guest.SHA256 != sha256 {
		return fmt.Errorf("%s: sha256 of the module is %s, want %s", source, sha256, e.guest.SHA256)
	}
	if e.scaler != nil { // Only this goroutine writes it.
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

// digests is an observer that tells the caller which module has answered.
type digests struct{}

type digestKey struct{}

// withDigest returns a context for a call. The digest of the module that ran is written to
// the second result.
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
