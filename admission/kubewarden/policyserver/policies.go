package policyserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/boolexpr"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// served is a policy as seen by requests. It is immutable.
type served struct {
	id string
	// declared is the current policy in policies.yml: its mode, message and allowedToMutate apply.
	declared Policy
	// policy is the policy that is asked, built from loaded. It is nil if there is none.
	policy admission.Policy
	loaded Policy
	// guests is the part of Guests for the declared policy, and grants the grants of the policy
	// that is asked.
	guests guestsOf
	grants string
	since  time.Time
	// monitors is used while the mode is monitor.
	monitors *serving.Monitor
	// err is the reason that the declared policy could not be loaded, nil if it was.
	err error
	// sources are the sources of the declared modules. They are kept because a client of registries
	// reports only the sources in use.
	sources []host.Source
	// attempts is the number of attempts to load the declared policy, and tried the time of the
	// last one.
	attempts int
	tried    time.Time
}

// errLoading is the error of a policy whose first version is being loaded.
var errLoading = errors.New("the policy is being loaded")

// state compares the policy that is asked with the declared one.
func (p *served) state() host.State {
	switch {
	case p.err == nil:
		return host.Serving
	case p.policy != nil:
		return host.Stale
	case errors.Is(p.err, errLoading):
		return host.Loading
	}
	return host.Unavailable
}

// fetchError is the error of a module that may be available later.
type fetchError struct{ error }

func (e *fetchError) Unwrap() error { return e.error }

// Status describes a policy.
type Status struct {
	ID string
	// Group reports whether it is a group.
	Group bool
	// Module is the URL of the declared module, empty for a group.
	Module string
	// Digest is the SHA-256 of the serving module, in hexadecimal. It is empty for a group, and if
	// no module serves.
	Digest string
	// State compares the serving version with the one declared by policies.yml.
	State host.State
	// Mode is Monitor if verdicts have no effect, otherwise Enforce.
	Mode host.Mode
	// Since is the time at which the serving version came into service.
	Since time.Time
	// Err is the reason that the policy declared by policies.yml is not in service, nil if it is.
	Err error
}

// Policies returns the policies, sorted by their ids.
func (s *Server) Policies() []Status {
	s.mu.Lock()
	table := maps.Clone(s.table)
	for id, l := range s.loads {
		if table[id] == nil {
			table[id] = &served{id: id, declared: l.declared, since: time.Now(), err: errLoading}
		}
	}
	s.mu.Unlock()
	list := make([]Status, 0, len(table))
	for _, id := range slices.Sorted(maps.Keys(table)) {
		p := table[id]
		status := Status{ID: id, Group: len(p.declared.Policies) != 0, State: p.state(), Mode: host.Enforce, Module: p.declared.Module, Since: p.since, Err: p.err}
		if p.declared.mode() == monitor {
			status.Mode = host.Monitor
		}
		if plugin, ok := p.policy.(*admission.Plugin); ok {
			status.Digest = plugin.Digest()
		}
		list = append(list, status)
	}
	return list
}

// publish makes the current table visible to requests, and closes the policies in gone after the
// last request that uses them.
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
	// parallelLoads is the number of policies that are fetched and loaded at a time.
	parallelLoads = 8
)

// load is a policy that is being loaded.
type load struct {
	id string
	// declared is the policy. Server.mu guards it: settings of answers may change meanwhile.
	declared Policy
	guests   *Guests
	cancel   context.CancelFunc
	// done is closed when the load has ended, with err.
	done chan struct{}
	err  error
	took time.Duration
}

// Apply serves the policies of the file. Unchanged policies are not touched. Each of the others is
// in service as soon as it is loaded: a slow module delays neither other policies nor a later Apply,
// which replaces loads of policies that it changes. The error joins those of policies that cannot be
// loaded; the others are in service.
//
// Apply waits for the policies until ctx ends; they are loaded nevertheless.
func (s *Server) Apply(ctx context.Context, f *File) error {
	loads, err := s.declare(f)
	if err != nil {
		return err
	}
	return s.wait(ctx, loads)
}

// declare begins to serve the policies of the file.
func (s *Server) declare(f *File) ([]*load, error) {
	for _, warning := range f.Warnings {
		s.log(slog.LevelWarn, "policies.yml has a field that is ignored", "warning", warning)
	}
	s.mu.Lock()
	s.file = f
	return s.apply()
}

// wait waits for loads.
func (s *Server) wait(ctx context.Context, loads []*load) error {
	errs := make([]error, len(loads))
	for i, l := range loads {
		select {
		case <-l.done:
			errs[i] = l.err
		case <-ctx.Done():
			return fmt.Errorf("wait for policies: %w", context.Cause(ctx))
		}
	}
	s.mu.Lock()
	s.applied = true
	s.mu.Unlock()
	_ = s.Ready() // Later loads must not take back that it is ready now.
	return errors.Join(errs...)
}

// apply begins to serve the policies of the file with the guests, and returns the loads that this
// takes. It unlocks mu, which must be held.
func (s *Server) apply() ([]*load, error) {
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("policy server: %w", host.ErrClosed)
	}
	f := s.file
	// Quick changes apply at once: removed policies, and settings of answers.
	var gone []admission.Policy
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
	for id, l := range s.loads {
		if _, ok := f.Policies[id]; !ok {
			l.cancel()
			delete(s.loads, id)
		}
	}
	fetched := &fetches{source: s.cfg.Source, modules: map[string]*fetched{}}
	var loads []*load
	for _, id := range slices.Sorted(maps.Keys(f.Policies)) {
		declared := f.Policies[id]
		about := s.guests.about(id, &declared)
		if l := s.loads[id]; l != nil {
			if l.declared.built() == declared.built() && l.guests.about(id, &declared) == about {
				l.declared = declared
				loads = append(loads, l)
				continue
			}
			l.cancel()
			delete(s.loads, id)
		}
		old := s.table[id]
		if old == nil || old.declared.built() != declared.built() || old.guests != about {
			loads = append(loads, s.begin(id, declared, fetched))
			continue
		}
		next := *old
		next.declared = declared
		s.table[id] = &next
	}
	s.mu.Unlock()
	s.publish(gone...)
	return loads, nil
}

// begin begins to load a policy. mu must be held.
func (s *Server) begin(id string, declared Policy, modules *fetches) *load {
	ctx, cancel := context.WithCancel(s.ctx)
	l := &load{id: id, declared: declared, guests: s.guests, cancel: cancel, done: make(chan struct{})}
	s.loads[id] = l
	s.background.Go(func() {
		defer close(l.done)
		defer cancel()
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return // Another version is wanted, or none.
		}
		// A slow load gives its slot to others.
		free := sync.OnceFunc(func() { <-s.slots })
		defer free()
		defer time.AfterFunc(slow, free).Stop()
		begun := time.Now()
		policy, err := s.build(ctx, l, &declared, modules)
		l.err, l.took = err, time.Since(begun)
		s.install(l, policy, modules)
	})
	return l
}

// slow is the time after which a load no longer counts among those that may run at the same time.
const slow = 2 * time.Second

// install puts the result of loading a policy into service, unless another version is wanted.
func (s *Server) install(l *load, policy admission.Policy, modules *fetches) {
	id := l.id
	s.mu.Lock()
	if s.loads[id] != l || s.closed {
		s.mu.Unlock()
		if policy != nil {
			s.publish(policy)
		}
		return
	}
	delete(s.loads, id)
	declared, err := l.declared, l.err
	guests := l.guests.about(id, &declared)
	next := &served{
		id: id, monitors: new(serving.Monitor), declared: declared, policy: policy, loaded: declared, guests: guests, grants: guests.grants,
		since: time.Now(), err: err, sources: modules.sources(&declared, err == nil), attempts: 1, tried: time.Now(),
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
		if old.policy != nil && !old.loaded.takesAway(&declared, l.guests.DefaultCapabilities) && old.grants == guests.grants {
			next.policy, next.loaded, next.grants, next.since = old.policy, old.loaded, old.grants, old.since
		} else {
			gone = old.policy
		}
	}
	s.table[id] = next
	s.mu.Unlock()
	s.publish(gone)
	attrs := []any{"policy", id, "reference", declared.Module, "duration", l.took.Round(time.Millisecond), "mode", declared.mode()}
	if load, ok := errors.AsType[*host.LoadError](err); ok {
		attrs = append(attrs, "digest", load.SHA256)
	}
	switch {
	case err == nil:
		level := slog.LevelInfo
		if len(declared.Policies) == 0 {
			level = slog.LevelDebug // The host has logged its module.
		}
		s.log(level, "policy is in service", attrs...)
		for _, warning := range admission.Describe(policy).MatchWarnings {
			s.log(slog.LevelWarn, "policy is odd", "policy", id, "warning", warning)
		}
	case next.policy != nil:
		s.log(slog.LevelError, "policy cannot be loaded: the version before it serves", append(attrs, "err", err)...)
	default:
		s.log(slog.LevelError, "policy cannot be loaded: its requests are rejected", append(attrs, "err", err)...)
	}
	if s.cfg.Observer != nil {
		s.cfg.Observer.Loaded(id, err)
	}
}

// retry loads policies again if their modules could not be fetched and their waiting time is over.
func (s *Server) retry() {
	const longest = 5 * time.Minute
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	fetched := &fetches{source: s.cfg.Source, modules: map[string]*fetched{}}
	for _, id := range slices.Sorted(maps.Keys(s.table)) {
		p := s.table[id]
		if _, ok := errors.AsType[*fetchError](p.err); !ok || s.loads[id] != nil {
			continue
		}
		wait := s.cfg.Interval
		for range min(p.attempts-1, 10) {
			wait *= 2
		}
		if time.Since(p.tried) >= min(wait, max(longest, s.cfg.Interval)) {
			s.begin(id, p.declared, fetched)
		}
	}
}

// fetches holds the modules needed by one change of policies.yml. Each is fetched once, since many
// policies use the same module with different settings.
type fetches struct {
	source  func(module string) (host.Source, error)
	mu      sync.Mutex
	modules map[string]*fetched
}

type fetched struct {
	// turn has a value while a load fetches the module.
	turn chan struct{}
	// got is the result once done is set. fetches.mu guards both.
	done bool
	got  got
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
		m = &fetched{turn: make(chan struct{}, 1)}
		f.modules[url] = m
	}
	f.mu.Unlock()
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for module: %w", context.Cause(ctx))
	}
	defer func() { <-m.turn }()
	f.mu.Lock()
	done, found := m.done, m.got
	f.mu.Unlock()
	if !done {
		found = f.look(ctx, url)
		if found.err != nil && ctx.Err() != nil {
			return nil, found.err // Other policies may still need the module.
		}
		f.mu.Lock()
		m.done, m.got = true, found
		f.mu.Unlock()
	}
	return found.module, found.err
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

// sources returns the sources of a policy's modules. If the policy was loaded, it reports that to
// the sources.
func (f *fetches) sources(p *Policy, loaded bool) (sources []host.Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, member := range p.members() {
		m := f.modules[member.Module]
		if m == nil || m.got.source == nil {
			continue // The module is not fetched, or its URL is invalid.
		}
		sources = append(sources, m.got.source)
		if loaded && m.got.err == nil {
			host.Keep(m.got.source, m.got.digest)
		}
	}
	return sources
}

// build loads a policy or a group.
func (s *Server) build(ctx context.Context, l *load, p *Policy, modules *fetches) (admission.Policy, error) {
	id := l.id
	settings := loading.Of(ctx)
	settings.Domain = p.domain(id)
	ctx = loading.With(ctx, settings)
	if len(p.Policies) == 0 {
		plugin, err := s.buildPlugin(ctx, l, id, p.namespaced(id), true, &p.Member, modules)
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
		plugin, err := s.buildPlugin(ctx, l, id+"/"+name, p.namespaced(id), false, &m, modules)
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

// buildPlugin loads a module of a policy or group under a name.
func (s *Server) buildPlugin(ctx context.Context, l *load, name string, namespaced, mutates bool, m *Member, modules *fetches) (*admission.Plugin, error) {
	scope := l.guests.scope(l.id, m, namespaced)
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
	config, err := s.dialectOf(module, scope)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", name, err)
	}
	guest := l.guests.of(l.id, m.timeout(s.cfg.Timeout))
	// The plugin keeps its source, which must not retain the module.
	once := &handover{url: m.Module, module: module}
	defer once.drop()
	cfg := admission.PluginConfig{
		Config: host.Config{
			Name: name, Module: host.ModuleConfig{Source: once}, Limits: guest.Limits, Grants: guest.Grants, Reset: guest.Reset, Isolation: guest.Isolation, Confidential: guest.Confidential,
			Observer: s.cfg.HostObserver, Logger: s.cfg.Logger,
		},
		// Changes of a policy are dropped or refused when it answers.
		AllowedToMutate: mutates,
	}
	if settings := bytes.TrimSpace(m.Settings); len(settings) != 0 && string(settings) != "null" {
		cfg.GuestConfig = host.GuestConfig(settings)
	}
	cfg.Dialects, cfg.Dialect, cfg.Cluster = s.dialects, config, s.cfg.Cluster
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

// dialectOf returns the configuration of the dialect of a module that grants what scope does.
func (s *Server) dialectOf(module []byte, scope capabilities.Scope) (dialect.Config, error) {
	m, err := host.Inspect(module)
	if err != nil {
		return nil, nil // Load reports it.
	}
	member := ""
	if d := dialect.Of(m, s.dialects); d != nil {
		member = d.Member
	}
	var config any = scope
	if member != kubewarden.Member {
		// The controller writes hostCapabilities for every policy. A policy in Rego makes no calls:
		// it gets lists of objects as data, if it may list them.
		kinds := scope.ContextAwareResources
		if scope.MayCall(capabilities.ListAll) != nil || len(kinds) == 0 {
			return nil, nil
		}
		if member != rego.Member {
			return nil, errors.New("contextAwareResources are for policies of Kubewarden and in Rego, and the module is none")
		}
		config = rego.Config{ContextAwareResources: kinds}
	}
	text, err := json.Marshal(config)
	return dialect.Config{member: text}, err
}

// FollowFile serves the policies of a policies.yml until ctx ends. It applies the file at once, and
// again after each change, including the kubelet's updates of a mounted ConfigMap. It returns after
// the first time, with the error of ParseFile. A later version refused by ParseFile is logged and
// changes nothing. Policies that cannot be loaded are logged, and those whose modules could not be
// fetched are tried again.
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
	loads, err := s.declare(f)
	// Changes are followed at once: a slow module must not delay a newer file.
	s.background.Go(func() {
		err := host.Follow(ctx, source, host.FollowOptions{
			Interval: s.cfg.Interval, Applied: digestOf(data),
			Failed: func(err error) { s.log(slog.LevelError, "follow policies.yml", "err", err) },
		}, func(ctx context.Context, data []byte, _ string) error {
			f, err := ParseFile(data)
			s.refused(&s.fileErr, err)
			if err != nil {
				s.log(slog.LevelError, "policies.yml is refused: nothing changes", "err", err)
			} else if loads, err := s.declare(f); err == nil {
				s.background.Go(func() { s.told(s.wait(ctx, loads)) })
			}
			// Follow would not return to the file before a refused one, which may differ from the
			// one in service.
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
				s.retry()
			}
		}
	})
	if err == nil {
		err = s.wait(ctx, loads)
	}
	s.told(err)
	return nil
}

// FollowGuests applies a file of guests until ctx ends, by [Server.SetGuests], whenever the file
// changes. adjust, if not nil, may change the contents first. A file that is empty, unreadable or
// malformed is logged and changes nothing; {} is the zero value.
func (s *Server) FollowGuests(ctx context.Context, path string, adjust func(*Guests)) {
	s.background.Go(func() {
		err := host.Follow(ctx, serving.NewFile(path), host.FollowOptions{
			Interval: s.cfg.Interval, Failed: func(err error) { s.log(slog.LevelError, "follow guests", "err", err) },
		}, func(ctx context.Context, data []byte, _ string) error {
			g, err := ReadGuests(data)
			if err == nil && len(bytes.TrimSpace(data)) == 0 {
				err = errors.New("the file is empty")
			}
			if err == nil {
				err = g.Check()
			}
			s.refused(&s.guestsErr, err)
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

// SetGuests replaces Config.Guests, and loads the affected policies again; until then they serve
// with the old settings. A policy that cannot be loaded continues to serve if its grants are
// unchanged. Guests.Answers has no effect here. The error is that of Guests.Check, or joins those
// of policies that cannot be loaded.
func (s *Server) SetGuests(ctx context.Context, g Guests) error {
	if err := g.Check(); err != nil {
		return err
	}
	s.mu.Lock()
	s.guests = &g
	if s.file == nil {
		s.mu.Unlock()
		return nil
	}
	loads, err := s.apply()
	if err != nil {
		return err
	}
	return s.wait(ctx, loads)
}

// ConfigErr returns an error if the version of policies.yml or of the file of guests that was read
// last is not in service because it was refused, or because no version of policies.yml was applied
// yet. It returns nil if some of the policies cannot be loaded.
func (s *Server) ConfigErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return errors.New("policies.yml is being loaded")
	}
	return errors.Join(s.fileErr, s.guestsErr)
}

// refused sets the error of a file that was read.
func (s *Server) refused(to *error, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = err
}

// told logs the result of applying a file. Errors of single policies are logged with the policies.
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
