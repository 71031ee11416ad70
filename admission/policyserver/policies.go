package policyserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/capabilities"
	"github.com/kubewasm/kubewasm/admission/internal/boolexpr"
	"github.com/kubewasm/kubewasm/admission/internal/serving"
	"github.com/kubewasm/kubewasm/host"
)

// served is a policy as requests see it. It does not change.
type served struct {
	id string
	// declared is what policies.yml says now: its mode, message and allowedToMutate count.
	declared Policy
	// policy is what is asked, of what loaded says. It is nil if nothing can be.
	policy admission.Policy
	loaded Policy
	// guests is what Guests said of what is declared, and grants what it grants what is asked.
	guests guestsOf
	grants string
	since  time.Time
	// monitors is used while the mode is monitor.
	monitors *serving.Monitor
	// err is why what is declared could not be loaded, nil if it was.
	err error
	// sources are those of the modules of what is declared. A client of registries tells of
	// those that are in use.
	sources []host.Source
	// attempts is how often it was tried since it was declared, and tried when it was last.
	attempts int
	tried    time.Time
}

// fetchError is the error of a module that may be there later.
type fetchError struct{ error }

func (e *fetchError) Unwrap() error { return e.error }

// Status describes a policy.
type Status struct {
	ID string
	// Group reports whether it is a group.
	Group bool
	// Digest is the SHA-256 of the module that serves, in hexadecimal; empty for a group, and
	// if none does.
	Digest string
	// Since is when the version that serves came into service.
	Since time.Time
	// Err is why what policies.yml declares is not in service, nil if it is.
	Err error
}

// Policies returns the policies, sorted by their ids.
func (s *Server) Policies() []Status {
	table := s.serving.Load()
	list := make([]Status, 0, len(table))
	for _, id := range slices.Sorted(maps.Keys(table)) {
		p := table[id]
		status := Status{ID: id, Group: len(p.declared.Policies) != 0, Since: p.since, Err: p.err}
		if plugin, ok := p.policy.(*admission.Plugin); ok {
			status.Digest = plugin.Digest()
		}
		list = append(list, status)
	}
	return list
}

// publish makes the table what requests see, and closes policies that are not in it any more
// after the last request that sees them.
func (s *Server) publish(gone ...admission.Policy) {
	s.mu.Lock()
	drained := s.serving.Replace(maps.Clone(s.table))
	s.mu.Unlock()
	for _, policy := range gone {
		if policy == nil {
			continue
		}
		s.background.Go(func() {
			<-drained
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			if err := policy.Close(ctx); err != nil {
				s.log(slog.LevelError, "close policy", "policy", policy.Name(), "err", err)
			}
		})
	}
}

const (
	closeTimeout = time.Minute
	// parallelLoads is how many policies are fetched and loaded at a time. The Runtime
	// bounds the compilations among them.
	parallelLoads = 8
)

// Apply makes the policies of the file those that are served. Those that have not changed are
// left alone. Each of the others is in service as soon as it is loaded. Errors are those
// of policies that cannot be loaded, joined: the others are in service.
func (s *Server) Apply(ctx context.Context, f *File) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.apply(ctx, f)
}

func (s *Server) apply(ctx context.Context, f *File) error {
	s.file = f
	for _, warning := range f.Warnings {
		s.log(slog.LevelWarn, "policies.yml has a field that is ignored", "warning", warning)
	}
	// What takes nothing counts at once: policies that are gone, and what answers.
	var gone []admission.Policy
	var wanted []string
	s.mu.Lock()
	for id, p := range s.table {
		if _, ok := f.Policies[id]; !ok {
			gone = append(gone, p.policy)
			delete(s.table, id)
			s.log(slog.LevelInfo, "policy is removed", "policy", id)
			if s.cfg.Observer != nil {
				s.cfg.Observer.Forget(id)
			}
		}
	}
	for id, declared := range f.Policies {
		old := s.table[id]
		if old == nil || old.declared.built() != declared.built() || old.guests != s.cfg.Guests.about(id, &declared) {
			wanted = append(wanted, id)
			continue
		}
		next := *old
		next.declared = declared
		s.table[id] = &next
	}
	s.mu.Unlock()
	s.publish(gone...)
	slices.Sort(wanted)
	err := s.load(ctx, f, wanted)
	s.mu.Lock()
	s.applied = true
	s.mu.Unlock()
	return err
}

// load loads some policies of a file. Each comes into service as soon as it can.
func (s *Server) load(ctx context.Context, f *File, ids []string) error {
	errs := make([]error, len(ids))
	fetched := fetches{source: s.cfg.Source, modules: map[string]*fetched{}}
	room := make(chan struct{}, parallelLoads)
	var wg sync.WaitGroup
	for i, id := range ids {
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			declared := f.Policies[id]
			policy, err := s.build(ctx, id, &declared, &fetched)
			s.install(id, declared, policy, fetched.sources(&declared, err == nil), err)
			errs[i] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// install puts what came of loading a policy into service.
func (s *Server) install(id string, declared Policy, policy admission.Policy, sources []host.Source, err error) {
	guests := s.cfg.Guests.about(id, &declared)
	s.mu.Lock()
	next := &served{
		id: id, monitors: new(serving.Monitor), declared: declared, policy: policy, loaded: declared, guests: guests, grants: guests.grants,
		since: time.Now(), err: err, sources: sources, attempts: 1, tried: time.Now(),
	}
	old := s.table[id]
	var gone admission.Policy
	switch {
	case old == nil:
	case err == nil:
		gone = old.policy
	default:
		if old.declared.built() == declared.built() && old.guests == guests {
			next.attempts = old.attempts + 1
		}
		if old.policy != nil && !old.loaded.takesAway(&declared, s.cfg.Guests.DefaultCapabilities) && old.grants == guests.grants {
			next.policy, next.loaded, next.grants, next.since = old.policy, old.loaded, old.grants, old.since
		} else {
			gone = old.policy
		}
	}
	s.table[id] = next
	s.mu.Unlock()
	s.publish(gone)
	switch {
	case err == nil:
		s.log(slog.LevelInfo, "policy is in service", "policy", id, "mode", declared.mode())
		for _, warning := range admission.Describe(policy).MatchWarnings {
			s.log(slog.LevelWarn, "policy is odd", "policy", id, "warning", warning)
		}
	case next.policy != nil:
		s.log(slog.LevelError, "policy cannot be loaded: the version before it serves", "policy", id, "err", err)
	default:
		s.log(slog.LevelError, "policy cannot be loaded: its requests are rejected", "policy", id, "err", err)
	}
	if s.cfg.Observer != nil {
		s.cfg.Observer.Loaded(id, err)
	}
}

// retry loads the policies again whose modules could not be fetched, if it is time for that.
func (s *Server) retry(ctx context.Context) {
	const longest = 5 * time.Minute
	s.changing.Lock()
	defer s.changing.Unlock()
	var ids []string
	for id, p := range s.serving.Load() {
		if _, ok := errors.AsType[*fetchError](p.err); !ok {
			continue
		}
		wait := s.cfg.Interval
		for range min(p.attempts-1, 10) {
			wait *= 2
		}
		if time.Since(p.tried) >= min(wait, max(longest, s.cfg.Interval)) {
			ids = append(ids, id)
		}
	}
	if slices.Sort(ids); len(ids) != 0 {
		_ = s.load(ctx, s.file, ids) // It is logged, and in the table.
	}
}

// fetches are the modules that one change of policies.yml needs, each fetched once: many
// policies are the same module with other settings.
type fetches struct {
	source  func(module string) (host.Source, error)
	mu      sync.Mutex
	modules map[string]*fetched
}

type fetched struct {
	once sync.Once
	// got is guarded by fetches.mu for those who have not waited for once.
	got got
}

type got struct {
	source host.Source
	module []byte
	digest string
	err    error
}

func (f *fetches) fetch(ctx context.Context, url string) ([]byte, error) {
	f.mu.Lock()
	m := f.modules[url]
	if m == nil {
		m = new(fetched)
		f.modules[url] = m
	}
	f.mu.Unlock()
	m.once.Do(func() {
		got := f.look(ctx, url)
		f.mu.Lock()
		defer f.mu.Unlock()
		m.got = got
	})
	return m.got.module, m.got.err
}

// look fetches a module.
func (f *fetches) look(ctx context.Context, url string) got {
	source, err := f.source(url)
	if err != nil {
		return got{err: fmt.Errorf("module %.300q: %w", url, err)}
	}
	module, err := source.Fetch(ctx)
	if err != nil {
		return got{source: source, err: &fetchError{fmt.Errorf("fetch module: %w", err)}}
	}
	return got{source, module, digestOf(module), nil}
}

// sources returns the sources of a policy's modules. Those of one that was loaded are told so.
func (f *fetches) sources(p *Policy, loaded bool) (sources []host.Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, member := range p.members() {
		m := f.modules[member.Module]
		if m == nil || m.got.source == nil {
			continue // It is not called, or its URL is none.
		}
		sources = append(sources, m.got.source)
		if loaded && m.got.err == nil {
			host.Keep(m.got.source, m.got.digest)
		}
	}
	return sources
}

// build loads a policy or a group.
func (s *Server) build(ctx context.Context, id string, p *Policy, modules *fetches) (admission.Policy, error) {
	if len(p.Policies) == 0 {
		plugin, err := s.buildPlugin(ctx, id, id, p.namespaced(id), true, &p.Member, modules)
		if err != nil {
			return nil, err // And not a policy that is a nil plugin.
		}
		return plugin, nil
	}
	names := slices.Sorted(maps.Keys(p.Policies))
	called, err := boolexpr.Called(p.Expression, names)
	if err != nil {
		return nil, fmt.Errorf("group %q: expression: %w", id, err)
	}
	members := map[string]*admission.Plugin{}
	var errs []error
	for _, name := range called {
		m := p.Policies[name]
		plugin, err := s.buildPlugin(ctx, id, id+"/"+name, p.namespaced(id), false, &m, modules)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		members[name] = plugin
	}
	var group *admission.Group
	if err = errors.Join(errs...); err == nil {
		group, err = admission.NewGroup(admission.GroupConfig{Name: id, Members: members, Expression: p.Expression, Message: p.Message})
	}
	if err != nil {
		for _, plugin := range members {
			err = errors.Join(err, plugin.Close(context.WithoutCancel(ctx)))
		}
		return nil, err
	}
	if n := len(names) - len(called); n != 0 {
		s.log(slog.LevelWarn, "expression of a group does not call all members: the others are not loaded", "policy", id, "members", n)
	}
	return group, nil
}

// buildPlugin loads a module under a name. id is that of the policy or the group that it is for.
func (s *Server) buildPlugin(ctx context.Context, id, name string, namespaced, mutates bool, m *Member, modules *fetches) (*admission.Plugin, error) {
	scope := s.cfg.Guests.scope(id, m, namespaced)
	if err := scope.Check(); err != nil {
		return nil, fmt.Errorf("policy %q: %w", name, err)
	}
	if len(m.Unfit) != 0 {
		return nil, fmt.Errorf("policy %q: %s", name, strings.Join(m.Unfit, "; "))
	}
	module, err := modules.fetch(ctx, m.Module)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", name, err)
	}
	if m, err := host.Inspect(module); err == nil && !asks(admission.DialectOf(m)) {
		// The controller writes hostCapabilities for every policy. One in Rego calls nothing: it
		// has lists of objects as data, if it may list them.
		if scope.MayCall(capabilities.ListAll) != nil {
			scope.ContextAwareResources = nil
		}
		scope.HostCapabilities, scope.Repositories, scope.HostNames = nil, nil, nil
	}
	guest := s.cfg.Guests.of(id, m.timeout(s.cfg.Timeout))
	// The plugin keeps its source, and must not keep the module with it.
	once := &handover{url: m.Module, module: module}
	defer once.drop()
	cfg := admission.PluginConfig{
		Config: host.Config{
			Name: name, Module: host.ModuleConfig{Source: once}, Limits: guest.Limits, Grants: guest.Grants, Reset: guest.Reset, Confidential: guest.Confidential,
			Observer: s.cfg.HostObserver, Logger: s.cfg.Logger,
		},
		// What a policy changes is dropped or refused when it answers.
		AllowedToMutate: mutates,
	}
	if settings := bytes.TrimSpace(m.Settings); len(settings) != 0 && string(settings) != "null" {
		cfg.GuestConfig = host.GuestConfig(settings)
	}
	cfg.Scope, cfg.Cluster, cfg.Capabilities = scope, s.cfg.Cluster, s.cfg.Capabilities
	return admission.Load(ctx, s.cfg.Runtime, cfg)
}

// handover is the source of a module that is loaded once.
type handover struct {
	url    string
	mu     sync.Mutex
	module []byte
}

// String implements [host.Source].
func (h *handover) String() string { return h.url }

// Fetch implements [host.Source].
func (h *handover) Fetch(context.Context) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.module == nil {
		return nil, errors.New("the module was loaded before")
	}
	return h.module, nil
}

func (h *handover) drop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.module = nil
}

// asks reports whether guests of a dialect have a use for host capabilities.
func asks(dialect string) bool { return strings.HasPrefix(dialect, "kubewarden-") }

// FollowFile serves what a policies.yml declares until ctx ends: at once, and again whenever
// it changes, as kubelet changes a mounted ConfigMap too. It returns after the first time,
// with what ParseFile has against the file. A later version that ParseFile refuses is logged
// and leaves the policies as they are. Policies that cannot be loaded are logged, and
// those whose modules could not be fetched are tried again.
func (s *Server) FollowFile(ctx context.Context, path string) error {
	source := serving.NewFile(path)
	data, err := source.Fetch(ctx)
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	f, err := ParseFile(data)
	if err != nil {
		return err
	}
	s.told(s.Apply(ctx, f))
	s.background.Go(func() {
		err := host.Follow(ctx, source, host.FollowOptions{
			Interval: s.cfg.Interval, Applied: digestOf(data),
			Failed: func(err error) { s.log(slog.LevelError, "follow policies.yml", "err", err) },
		}, func(ctx context.Context, data []byte, _ string) error {
			f, err := ParseFile(data)
			if err != nil {
				s.log(slog.LevelError, "policies.yml is refused: nothing changes", "err", err)
			} else {
				s.told(s.Apply(ctx, f))
			}
			// Follow would not hand over the file before a refused one again, which may be
			// another than the one in service.
			return nil
		})
		if err != nil {
			s.log(slog.LevelError, "follow policies.yml", "err", err)
		}
	})
	s.background.Go(func() {
		tick := time.NewTicker(s.cfg.Interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.retry(ctx)
			}
		}
	})
	return nil
}

// FollowGuests has the guests of a file count until ctx ends, as [Server.SetGuests] does, whenever
// it changes. adjust, if it is not nil, changes what the file has before. A file that is empty,
// cannot be read or is malformed is logged and changes nothing; {} has nothing.
func (s *Server) FollowGuests(ctx context.Context, path string, adjust func(*Guests)) {
	s.background.Go(func() {
		err := host.Follow(ctx, serving.NewFile(path), host.FollowOptions{
			Interval: s.cfg.Interval, Failed: func(err error) { s.log(slog.LevelError, "follow guests", "err", err) },
		}, func(ctx context.Context, data []byte, _ string) error {
			g, err := ReadGuests(data)
			if err == nil && len(bytes.TrimSpace(data)) == 0 {
				err = errors.New("the file is empty")
			}
			if err != nil {
				s.log(slog.LevelError, "guests are refused: nothing changes", "err", err)
				return nil
			}
			if adjust != nil {
				adjust(&g)
			}
			if err := s.SetGuests(ctx, g); err != nil {
				s.log(slog.LevelError, "guests have changed, and some policies cannot be loaded", "err", err)
			}
			return nil
		})
		if err != nil {
			s.log(slog.LevelError, "follow guests", "err", err)
		}
	})
}

// SetGuests replaces Config.Guests, and loads the policies anew of which it says something else:
// until then they serve with what they had. One that cannot be loaded serves on if its grants are
// the same. Answers do not change. Errors are those of Guests.Check, and of policies that cannot
// be loaded, joined.
func (s *Server) SetGuests(ctx context.Context, g Guests) error {
	if err := g.Check(); err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	s.cfg.Guests = g
	if s.file == nil {
		return nil
	}
	return s.apply(ctx, s.file)
}

// told logs what became of a file. What is wrong with a policy is logged with it.
func (s *Server) told(err error) {
	if err != nil {
		s.log(slog.LevelWarn, "policies.yml is applied, and some policies cannot be loaded")
		return
	}
	s.log(slog.LevelInfo, "policies.yml is applied", "policies", len(s.serving.Load()))
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
