package manage

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/management"
)

// standIns makes the policies that represent others.
var standIns = policy.StandInsOf[admission.Policy, admission.PolicyRules]()

// Manager manages the policies of an engine. It is safe for use by several goroutines.
//
// The policies in service, and their order, are a function of the declared ones: those of the
// configuration file in the order of the file, and then those of the API in the order of their
// names. Each policy is loaded by itself: a slow source delays no other policy.
type Manager struct {
	cfg   Config
	store *store // nil without a directory.

	// ctx ends with Close.
	ctx  context.Context
	stop context.CancelFunc
	// working counts policies that are out of service but not closed yet, loads and followers.
	working sync.WaitGroup
	// slots bounds the simultaneous loads.
	slots chan struct{}
	// unpacking is held while a module of the API is decompressed: it may be many times longer.
	unpacking sync.Mutex

	// publishing is held while the engine gets the policies, and is locked before mu.
	publishing sync.Mutex
	// storing is held while the directory is written, and is locked before mu.
	storing sync.Mutex

	mu      sync.Mutex
	closed  bool
	entries map[string]*entry
	// overrides are those of policies in the file, by name, also before the file was read.
	overrides map[string]override
	// newest is the declaration of the newest file, and newestOfCluster that of the cluster's objects,
	// nil before.
	newest, newestOfCluster *declaration
	// cluster are the policies of the cluster's objects. wantsCluster reports whether there are such
	// objects, and clusterApplied whether they have been applied.
	cluster                      []ClusterPolicy
	wantsCluster, clusterApplied bool
	// refusedOfCluster are the errors of those that were refused.
	refusedOfCluster map[string]error
	// wantsFile reports whether there is a configuration file, and fileErr is the reason that its
	// policies are not in service. applied is set once a file has been applied.
	wantsFile, applied bool
	fileErr            error
	// waiting is a file that was refused because the management API's policies have some of its
	// names.
	waiting *File
	// glasses let the policies only monitor, by the origin that says so.
	glasses map[string]*glass
	// logLevel is the level of the log without a configuration file.
	logLevel slog.Level

	// readiness bounds the wait for policies, and soon that for those of namespaces; ready is set once
	// Ready has returned nil.
	readiness, soon host.Readiness
	ready           atomic.Bool
}

// namespaceTimeout is the longest time for which the policies of namespaces that are being loaded keep
// a server from being ready.
const namespaceTimeout = 30 * time.Second

// The origins of policies.
const (
	fromFile    = "file"
	fromCluster = "cluster"
	fromAPI     = "api"
)

// entry is a declared or loaded policy. Manager.mu guards it.
type entry struct {
	name, origin string
	// place is the position of a declared policy among those of its origin.
	place int
	// declared is the declaration of the file or the cluster, and key identifies it. They are not set
	// for a policy of the API.
	declared *wanted
	key      string
	override *override
	// wanted is the version that should serve, and serving the one that does, or would if it were
	// not disabled: nil if none ever did.
	wanted, serving *wanted
	// loading are the versions being loaded by Manager.Load, the newest last, and restored is the
	// wanted version before them.
	loading  []*wanted
	restored *wanted
	// policy is the policy in the engine: serving, or a replacement of wanted. It is nil while the
	// first version is being loaded.
	policy   admission.Policy
	members  []*admission.Plugin // Of a group.
	disabled bool
	// unknown reports whether the rules of a policy that could not be loaded are unknown.
	unknown bool
	// gap guards the requests that policy does not guard and the version that could not be loaded
	// would. It is nil if there are none.
	gap admission.Policy
	// digest is the digest of the module in service, empty for a group.
	digest   string
	loadedAt time.Time
	// versions are the versions that were in service, the newest last.
	versions []Version
	// err is the reason that wanted is not in service, and passing is set if that may pass: a
	// module could not be loaded.
	err     error
	passing bool

	// turn has a value while a version of the policy is being loaded.
	turn chan struct{}
	// cancel ends the work on wanted.
	cancel context.CancelFunc
	// tried is closed when the first attempt to load wanted has ended.
	tried chan struct{}
	// removed is set once the policy is gone.
	removed bool
}

// wanted is a version of a policy.
type wanted struct {
	// plugin or group is the configuration.
	plugin *PluginSpec
	group  *GroupSpec
	// pinned is the module of a plugin that was chosen by the API; nil for the one that the
	// configuration names.
	pinned *pinned
	// mistake is the reason that an object's policy cannot be loaded, nil if it may be.
	mistake error
	// enabled is set if the configuration enables the policy.
	enabled bool
}

// Version is a version of a plugin.
type Version struct {
	// Version is the name given by the client that loaded it.
	Version string `json:"version,omitempty"`
	// Digest is the SHA-256 of the module, in hexadecimal.
	Digest   string     `json:"digest"`
	LoadedAt time.Time  `json:"loadedAt"`
	Spec     PluginSpec `json:"spec"`
	// pinned is the module if it was not that of the source of Spec.
	pinned *pinned
}

var (
	// ErrNotFound is returned if a policy or version does not exist.
	ErrNotFound = management.ErrNotFound
	// ErrDeclared is returned if a policy is declared by the configuration file, or by an object of the
	// cluster, and so cannot be changed here.
	ErrDeclared = errors.New("is declared in the configuration file")
)

// errSuperseded ends the work on a version that is no longer wanted.
var errSuperseded = errors.New("another version is wanted by now")

// New returns a manager with the policies in its directory, if it has one. A policy that cannot be
// loaded is unavailable, which is not an error. If its rules are also unknown, it guards every
// request, and [Manager.Ready] returns an error, until the policy is loaded again or removed.
func New(ctx context.Context, cfg Config) (*Manager, error) {
	if cfg.Runtime == nil || cfg.Engine == nil {
		return nil, errors.New("manage policies: runtime or engine is missing")
	}
	if cfg.Versions == 0 {
		cfg.Versions = defaultVersions
	}
	if cfg.Interval == 0 {
		cfg.Interval = host.DefaultFollowInterval
	}
	m := &Manager{
		cfg: cfg, entries: map[string]*entry{}, overrides: map[string]override{}, glasses: map[string]*glass{}, slots: make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		readiness: host.Readiness{Timeout: cfg.ReadyTimeout}, soon: host.Readiness{Timeout: namespaceTimeout},
	}
	if cfg.LogLevel != nil {
		m.logLevel = cfg.LogLevel.Level()
	}
	m.ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	if cfg.Directory == "" {
		return m, nil
	}
	var err error
	if m.store, err = openStore(cfg.Directory); err != nil {
		return nil, fmt.Errorf("manage policies: state directory %s: %w", cfg.Directory, err)
	}
	kept, broken, err := m.store.read()
	if err != nil {
		m.store.close()
		return nil, fmt.Errorf("manage policies: state directory %s: %w", cfg.Directory, err)
	}
	if m.overrides, err = m.store.readOverrides(); err != nil {
		m.log(slog.LevelError, "changes of declared policies by the API are lost", "err", err)
		m.overrides = map[string]override{}
	}
	if err := m.restoreBreakGlass(); err != nil {
		m.log(slog.LevelError, "policies are enforced: break glass is lost", "err", err)
	}
	for _, k := range kept {
		m.restore(ctx, k)
	}
	for _, name := range slices.Sorted(maps.Keys(broken)) {
		m.refuse(m.entry(name, fromAPI), &wanted{}, &built{}, broken[name])
	}
	m.publish()
	return m, nil
}

// entry adds an entry without a version. mu must be held, unless the Manager is not shared yet.
func (m *Manager) entry(name, origin string) *entry {
	e := &entry{name: name, origin: origin, turn: make(chan struct{}, 1), cancel: func() {}, loadedAt: time.Now()}
	m.entries[name] = e
	return e
}

// restore restores a policy from the store.
func (m *Manager) restore(ctx context.Context, k kept) {
	e := m.entry(k.Spec.Name, fromAPI)
	w := &wanted{plugin: &k.Spec, pinned: m.pin(k.Digest, nil, nil), enabled: !k.Disabled}
	e.wanted, e.disabled, e.digest, e.versions = w, k.Disabled, k.Digest, k.Versions
	for i := range e.versions {
		e.versions[i].pinned = m.pin(e.versions[i].Digest, nil, nil)
	}
	b, err := m.build(ctx, w)
	if err != nil {
		m.refuse(e, w, &b, err)
		return
	}
	m.warn(b.policy)
	m.mu.Lock()
	defer m.mu.Unlock()
	e.policy, e.serving = b.policy, w
}

func (m *Manager) log(level slog.Level, msg string, args ...any) {
	if m.cfg.Logger != nil {
		m.cfg.Logger.Log(context.Background(), level, msg, args...)
	}
}

// Ready returns the reason that requests should not reach the engine yet: the configuration file is
// not in service, the rules of a policy, which it names, are unknown, or policies have not been
// loaded, for which it waits for Config.ReadyTimeout. Policies of namespaces that cannot be loaded do
// not count: their owners would decide about the server. A server that cannot load its policies must
// not replace one that serves them. Once Ready has returned nil, it always does: a policy that is
// unavailable fails only its own requests.
func (m *Manager) Ready() error {
	if m.ready.Load() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var never, yet, soon []error
	switch {
	case !m.wantsFile || m.applied:
	case m.fileErr != nil:
		never = append(never, fmt.Errorf("policies are not in service: %w", m.fileErr))
	default:
		yet = append(yet, errors.New("policies are being loaded"))
	}
	if m.wantsCluster && m.newestOfCluster == nil {
		never = append(never, errors.New("the policies of the cluster are not known"))
	}
	for _, e := range m.sorted() {
		switch ofNamespace := e.origin == fromCluster && namespaceOf(e.name) != ""; {
		case e.disabled:
		case e.unknown:
			never = append(never, fmt.Errorf("policy %q guards every request, because its rules are not known: %w", e.name, e.err))
		case e.policy == nil && ofNamespace:
			soon = append(soon, fmt.Errorf("policy %q is being loaded", e.name))
		case e.policy == nil:
			yet = append(yet, fmt.Errorf("policy %q is being loaded", e.name))
		case e.serving == nil && e.passing && !ofNamespace:
			yet = append(yet, fmt.Errorf("policy %q is not available: %w", e.name, e.err))
		}
	}
	if len(never) != 0 {
		// What is to be loaded is not known, so that nothing that is waited for tells that all is.
		return errors.Join(slices.Concat(never, yet, soon)...)
	}
	// The first attempt to load the policies of namespaces may take long, as their owners decide.
	if err := m.soon.Ready(errors.Join(soon...)); err != nil {
		yet = append(yet, err)
	}
	err := m.readiness.Ready(errors.Join(yet...))
	if err == nil {
		m.ready.Store(true)
	}
	return err
}

// ConfigErr returns an error if the configuration file is not in service as it was read last: it is
// being loaded, could not be read, or was refused, and an earlier one may be in service. It returns
// nil for a file in service, also if some of its policies cannot be loaded, and without a file.
func (m *Manager) ConfigErr() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fileErr == nil && m.wantsFile && !m.applied {
		return errors.New("policies are being loaded")
	}
	return m.fileErr
}

// unavailable returns the replacement for a policy that cannot be loaded. unknown reports whether
// its rules are unknown, so that the replacement guards every request.
func (m *Manager) unavailable(name string, w *wanted, reason error) (policy admission.Policy, unknown bool) {
	rules, mutates, err := m.rulesOf(w)
	if converts := w.converts(); err == nil && len(converts) != 0 {
		return standIns.UnavailableConverter(name, converts, rules, reason), false
	}
	if err == nil {
		policy, err = standIns.Unavailable(name, rules, mutates, reason)
	}
	if err != nil {
		// The zero rules are always valid.
		policy, _ = standIns.Unavailable(name, m.complete(admission.PolicyRules{}), true, reason)
	}
	return policy, err != nil
}

// uncovered returns a policy for the requests that w guards and the version in service does not, nil
// if there are none.
func (m *Manager) uncovered(e *entry, w *wanted, reason error) admission.Policy {
	rules, mutates, err := m.rulesOf(w)
	if converts := w.converts(); err == nil && len(converts) != 0 {
		missing := slices.DeleteFunc(slices.Clone(converts), func(kind metav1.GroupKind) bool { return slices.Contains(e.serving.converts(), kind) })
		if len(missing) == 0 {
			return nil
		}
		return standIns.UnavailableConverter(e.name, missing, rules, reason)
	}
	old, mutated, oldErr := m.rulesOf(e.serving)
	if err != nil || oldErr == nil && len(e.serving.converts()) == 0 && mutates == mutated && keyOf(old.Match) == keyOf(rules.Match) && old.Mode == rules.Mode && old.FailurePolicy == rules.FailurePolicy {
		return nil // A file with wrong rules is refused as a whole.
	}
	policy, err := standIns.Uncovered(e.policy, rules, mutates, reason)
	if err != nil {
		return nil
	}
	return policy
}

// converts returns the kinds that a plugin converts, none if it decides.
func (w *wanted) converts() []metav1.GroupKind {
	if w == nil || w.plugin == nil {
		return nil
	}
	return w.plugin.Converts
}

// rulesOf returns the rules of a version, and reports whether it may mutate.
func (m *Manager) rulesOf(w *wanted) (rules admission.PolicyRules, mutates bool, err error) {
	switch {
	case w.plugin != nil:
		rules, mutates = w.plugin.PolicyRules, w.plugin.AllowedToMutate
	case w.group != nil:
		rules = w.group.PolicyRules
	default:
		err = errors.New("there are no rules")
	}
	return m.complete(rules), mutates, err
}

// keyOf returns a text that is the same for equal values, without the bytes of long ones.
func keyOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return digestOf(data)
}

func digestOf(module []byte) string {
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}

// sorted returns the entries in the order in which they are asked. mu must be held.
func (m *Manager) sorted() []*entry {
	return slices.SortedFunc(maps.Values(m.entries), func(a, b *entry) int {
		// The words are in this order: file, cluster, api.
		return cmp.Or(-cmp.Compare(a.origin, b.origin), cmp.Compare(a.place, b.place), cmp.Compare(a.name, b.name))
	})
}

// publish gives the engine the current policies, and closes the policies in gone after the last
// request that uses them.
func (m *Manager) publish(gone ...admission.Policy) {
	m.publishing.Lock()
	defer m.publishing.Unlock()
	var policies []admission.Policy
	m.mu.Lock()
	for _, e := range m.sorted() {
		switch {
		case e.policy == nil:
		case e.disabled:
			policies = append(policies, standIns.Disabled(e.policy))
		default:
			policies = append(policies, e.policy)
			if e.gap != nil {
				policies = append(policies, e.gap)
			}
		}
	}
	if len(m.glasses) != 0 {
		for i, p := range policies {
			policies[i] = standIns.Monitored(p)
		}
	}
	m.mu.Unlock()
	drained := m.cfg.Engine.Replace(policies...)
	for _, policy := range gone {
		if policy != nil {
			m.working.Go(func() {
				<-drained
				m.close(policy)
			})
		}
	}
}

// close closes a policy that no request uses.
func (m *Manager) close(policy admission.Policy) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := policy.Close(ctx); err != nil {
		m.log(slog.LevelError, "close policy", "policy", policy.Name(), "err", err)
	}
}

// drop removes an entry, and returns its policy. mu must be held.
func (m *Manager) drop(e *entry) (gone admission.Policy) {
	e.cancel()
	e.removed = true
	delete(m.entries, e.name)
	m.log(slog.LevelInfo, "policy is removed", "policy", e.name)
	if m.cfg.Forget != nil {
		m.cfg.Forget(e.name)
	}
	return e.policy
}

// closedErr returns an error after Close, since nothing would close policies loaded then. mu must be
// held.
func (m *Manager) closedErr() error {
	if m.closed {
		return fmt.Errorf("manage policies: %w", host.ErrClosed)
	}
	return nil
}

// Close removes all policies from the engine and closes them, and waits for that until ctx ends. It
// ends loads, and the following of files.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	first := !m.closed
	m.waiting, m.closed = nil, true
	var gone []admission.Policy
	for _, e := range m.entries {
		e.cancel()
		e.removed = true
		gone = append(gone, e.policy)
	}
	clear(m.entries)
	for _, g := range m.glasses {
		g.end.Stop()
	}
	clear(m.glasses)
	m.mu.Unlock()
	m.stop()
	if first {
		m.publish(gone...)
	}
	closed := make(chan struct{})
	go func() {
		m.working.Wait()
		m.storing.Lock()
		m.store.close()
		m.storing.Unlock()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close policies: %w", ctx.Err())
	}
}
