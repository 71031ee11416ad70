package manage

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/admission"
)

// ClusterPolicy is a policy that an object of the cluster declares.
type ClusterPolicy struct {
	// Spec is the policy. Its name is that of the object, or "namespace/name".
	Spec PluginSpec
	// Err is the reason that the policy cannot be loaded, such as a mistake in the object; nil if
	// there is none. An earlier version stays in service. Without one, the failure policy decides
	// about the requests of Spec's rules.
	Err error
	// Unknown reports whether its rules are unknown. Without an earlier version it is out of service.
	Unknown bool
	// Withdrawn reports whether an earlier version may not serve either.
	Withdrawn bool
}

// errWithdrawn is the reason that no version of a policy serves.
var errWithdrawn = errors.New("the version that served was withdrawn, and the declared one is being loaded")

// ApplyCluster declares the policies of the cluster's objects, beside those of a configuration file
// and of the API. Unchanged policies are not touched, and one whose module cannot be loaded is loaded
// again after Config.Interval. Policies that are not in the list leave once the others of their
// namespace, or those of none, were loaded or refused.
//
// It returns the errors of the policies that are refused, by their names, at once: those with wrong
// or unknown rules, or with the name of a policy of the file, which takes precedence, or of the API.
// An earlier version of such a policy stays in service, unless it is withdrawn.
//
// ApplyCluster keeps the policies, which must not change. [Manager.List] has their states.
func (m *Manager) ApplyCluster(policies []ClusterPolicy) (refused map[string]error) {
	all := make([]*wanted, 0, len(policies))
	refused = map[string]error{}
	withdrawn := map[string]bool{}
	for i := range policies {
		p := &policies[i]
		withdrawn[p.Spec.Name] = p.Withdrawn
		all = append(all, &wanted{plugin: &p.Spec, mistake: p.Err, enabled: enabled(p.Spec.Enabled)})
		if p.Unknown {
			refused[p.Spec.Name] = p.Err
		}
	}
	slices.SortFunc(all, func(a, b *wanted) int { return cmp.Compare(a.name(), b.name()) })
	for _, w := range all {
		if refused[w.name()] != nil {
			continue
		}
		errs := []error{checkRules(w.plugin.PolicyRules, m.cfg.Namespaces)}
		if namespace, name, ok := strings.Cut(w.name(), "/"); ok {
			errs = append(errs, checkName("namespace", namespace), checkName("policy", name))
		} else {
			errs = append(errs, checkName("policy", namespace))
		}
		if err := errors.Join(errs...); err != nil {
			refused[w.name()] = fmt.Errorf("policy %q: %w", w.name(), err)
		}
	}
	m.mu.Lock()
	if err := m.closedErr(); err != nil {
		m.mu.Unlock()
		for _, w := range all {
			refused[w.name()] = err
		}
		return refused
	}
	m.cluster = policies
	d := &declaration{origin: fromCluster, names: map[string]bool{}, settled: make(chan struct{})}
	m.newestOfCluster = d
	var tried []<-chan struct{}
	var gone []admission.Policy
	triedOf := map[string][]<-chan struct{}{}
	for place, w := range all {
		name := w.name()
		e := m.entries[name]
		if e != nil && e.origin == fromCluster && withdrawn[name] && e.serving != nil {
			gone = append(gone, m.drop(e))
			e = nil
		}
		if e != nil && e.origin == fromCluster {
			d.names[name], e.place = true, place
		}
		if refused[name] == nil {
			refused[name] = m.clusterTaken(w)
		}
		if refused[name] != nil {
			continue
		}
		delete(refused, name)
		before := e != nil
		e = m.declarePolicy(w, fromCluster, place)
		if !before && withdrawn[name] {
			// Requests wait for no module: the failure policy decides at once.
			e.policy, e.unknown = m.unavailable(name, w, cmp.Or(w.mistake, errWithdrawn))
		}
		d.names[name] = true
		tried = append(tried, e.tried)
		triedOf[namespaceOf(name)] = append(triedOf[namespaceOf(name)], e.tried)
	}
	m.refusedOfCluster = maps.Clone(refused)
	left := map[string]bool{}
	for name, e := range m.entries {
		if e.origin == fromCluster && !d.names[name] {
			left[namespaceOf(name)] = true
		}
	}
	for namespace := range left {
		m.working.Go(func() { m.leave(d, namespace, triedOf[namespace]) })
	}
	m.working.Go(func() { m.settle(d, tried) })
	m.mu.Unlock()
	m.publish(gone...)
	return refused
}

// namespaceOf returns the namespace of a policy, empty for one of the whole cluster.
func namespaceOf(name string) string {
	namespace, _, ok := strings.Cut(name, "/")
	if !ok {
		return ""
	}
	return namespace
}

// leave removes the policies of a namespace that a declaration does not have, once the others of the
// namespace were tried: a slow module of another namespace keeps none in service.
func (m *Manager) leave(d *declaration, namespace string, tried []<-chan struct{}) {
	for _, done := range tried {
		select {
		case <-done:
		case <-m.ctx.Done():
			return
		}
	}
	var gone []admission.Policy
	m.mu.Lock()
	if m.newestOfCluster == d && !m.closed {
		for name, e := range m.entries {
			if e.origin == fromCluster && !d.names[name] && namespaceOf(name) == namespace {
				gone = append(gone, m.drop(e))
			}
		}
	}
	m.mu.Unlock()
	if len(gone) != 0 {
		m.publish(gone...)
	}
}

// Refused returns the errors of the cluster's policies that are refused now, by their names. They
// change when a policy of another origin comes or goes, too.
func (m *Manager) Refused() map[string]error {
	m.mu.Lock()
	defer m.mu.Unlock()
	refused := maps.Clone(m.refusedOfCluster)
	for i := range m.cluster {
		name := m.cluster[i].Spec.Name
		if e := m.entries[name]; e != nil && e.origin == fromFile && refused[name] == nil {
			refused[name] = m.clusterTaken(&wanted{plugin: &m.cluster[i].Spec})
		}
	}
	return refused
}

// clusterTaken returns an error if a policy of the cluster has the name of one of the file or of the
// API, or converts a kind that another policy converts. mu must be held.
func (m *Manager) clusterTaken(w *wanted) error {
	switch e := m.entries[w.name()]; {
	case e == nil:
	case e.origin == fromFile:
		return fmt.Errorf("policy %q: the configuration file has a policy of this name, which takes precedence", w.name())
	case e.origin == fromAPI:
		return fmt.Errorf("policy %q: was loaded by the management API already, which can remove it", w.name())
	}
	return m.checkConverts(w.plugin)
}

// retryCluster declares the policies of the cluster again, after a policy of another origin has gone
// whose name or kinds one of them may have.
func (m *Manager) retryCluster() {
	m.mu.Lock()
	policies := m.cluster
	m.mu.Unlock()
	if policies == nil {
		return
	}
	for name, err := range m.ApplyCluster(policies) {
		m.log(slog.LevelError, "policy is refused", "policy", name, "err", err)
	}
}

// takeOver lets an object of the cluster declare the policy of a name that the file has no more, and
// reports whether there is one. mu must be held.
func (m *Manager) takeOver(e *entry) bool {
	i := slices.IndexFunc(m.cluster, func(p ClusterPolicy) bool { return p.Spec.Name == e.name })
	if i < 0 {
		return false
	}
	// retryCluster declares it, and refuses it if it is wrong: then the file's stays until the object
	// is right or gone.
	e.origin = fromCluster
	m.newestOfCluster.names[e.name] = true
	return true
}

// declaredByObject is ErrDeclared for a policy of the cluster.
type declaredByObject struct{}

func (declaredByObject) Error() string        { return "is declared by an object of the cluster" }
func (declaredByObject) Is(target error) bool { return target == ErrDeclared }

// declaredErr returns the error of changing a declared policy.
func (e *entry) declaredErr() error {
	if e.origin == fromCluster {
		return declaredByObject{}
	}
	return ErrDeclared
}

// ExpectCluster makes [Manager.Ready] wait for the first call of ApplyCluster.
func (m *Manager) ExpectCluster() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wantsCluster = true
}
