package manage

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/capabilities"
	"github.com/kubewasm/kubewasm/admission/internal/boolexpr"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// File is a configuration file.
type File struct {
	// Plugins and Groups are the policies. Their names are unique. What [ParseFile]
	// reads has an empty list of plugins if there are to be none: without one, it is
	// taken for a file that lost its policies, and refused.
	Plugins []PluginSpec `json:"plugins,omitempty"`
	Groups  []GroupSpec  `json:"groups,omitempty"`
}

// PluginSpec says which module a plugin is, what it is allowed and when it is
// asked. Its name is lower-case letters, digits, '-' and '.', at most 63.
type PluginSpec struct {
	// Version and Description are for people.
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
	// Enabled says whether the plugin is asked. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// PluginConfig is the rest: module, guestConfig, grants, limits, when the plugin is asked,
	// what it may change and look up. What is sent to the management API names no module.
	admission.PluginConfig `json:",inline"`
}

// GroupSpec is a group of plugins under an expression.
type GroupSpec struct {
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled,omitempty"`
	// Members are the plugins by their names in the expression; they have no
	// rules of their own.
	Members    map[string]PluginSpec `json:"members"`
	Expression string                `json:"expression"`
	Message    string                `json:"message"`
	// PolicyRules say when the group is asked and what its verdict counts for.
	admission.PolicyRules `json:",inline"`
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

func checkName(what, name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%s %.80q: a name is at most 63 lower-case letters, digits, '-' and '.'", what, name)
	}
	return nil
}

// check returns everything that is wrong with a file, but for what only the modules
// can tell. namespaces is what the server knows of namespaces.
func (f *File) check(namespaces admission.NamespaceLabels) (errs []error) {
	names := map[string]bool{}
	name := func(name string) {
		if names[name] {
			errs = append(errs, fmt.Errorf("there are two policies %q", name))
		}
		names[name] = true
	}
	converters := map[metav1.GroupKind]string{}
	for i := range f.Plugins {
		p := &f.Plugins[i]
		name(p.Name)
		errs = append(errs, p.check("plugin", namespaces)...)
		if !enabled(p.Enabled) {
			continue
		}
		for _, kind := range p.Converts {
			if other, ok := converters[kind]; ok && other != p.Name {
				errs = append(errs, convertsToo(p.Name, other, kind))
			}
			converters[kind] = p.Name
		}
	}
	for i := range f.Groups {
		name(f.Groups[i].Name)
		errs = append(errs, f.Groups[i].check(namespaces)...)
	}
	return errs
}

// convertsToo is the error of a plugin that converts a kind which another one converts: a
// conversion would have no answer. One of them may be disabled.
func convertsToo(name, other string, kind metav1.GroupKind) error {
	return fmt.Errorf("plugin %q: converts: %s.%s is converted by the plugin %q already", name, kind.Kind, kind.Group, other)
}

func (s *PluginSpec) check(what string, namespaces admission.NamespaceLabels) (errs []error) {
	if err := checkName(what, s.Name); err != nil {
		errs = append(errs, err)
	}
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s %q: %s", what, s.Name, fmt.Sprintf(format, args...)))
	}
	for _, err := range s.Module.Check("module") {
		fail("%v", err)
	}
	if err := checkRules(s.PolicyRules, namespaces); err != nil {
		fail("%v", err)
	}
	for _, err := range s.PluginConfig.Check() {
		fail("%v", err)
	}
	if s.Record != nil {
		for _, err := range s.Record.Check() {
			fail("%v", err)
		}
	}
	return errs
}

func (g *GroupSpec) check(namespaces admission.NamespaceLabels) (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("group %q: "+format, append([]any{g.Name}, args...)...))
	}
	if err := checkName("group", g.Name); err != nil {
		errs = append(errs, err)
	}
	aliases := slices.Sorted(maps.Keys(g.Members))
	for _, alias := range aliases {
		member := g.Members[alias]
		errs = append(errs, member.check("group "+g.Name+": member "+alias, namespaces)...)
		// They would be ignored.
		if !reflect.ValueOf(member.PolicyRules).IsZero() || member.Enabled != nil {
			fail("member %s has match, order, mode, failurePolicy or enabled, which are the group's", alias)
		}
	}
	if len(aliases) == 0 {
		fail("has no members")
	} else {
		if _, err := boolexpr.Parse(g.Expression, aliases); err != nil {
			fail("expression: %w", err)
		}
		if g.Message == "" {
			fail("message is empty")
		}
	}
	if err := checkRules(g.PolicyRules, namespaces); err != nil {
		fail("%w", err)
	}
	return errs
}

// checkRules returns everything that is wrong with the rules.
func checkRules(rules admission.PolicyRules, namespaces admission.NamespaceLabels) error {
	rules.Namespaces = namespaces
	return rules.Check()
}

// pluginConfig returns what a plugin is loaded with.
func (m *Manager) pluginConfig(s *PluginSpec, module []byte) admission.PluginConfig {
	cfg := s.PluginConfig
	cfg.Logger, cfg.Config.Observer = m.cfg.Logger, m.cfg.HostObserver
	// The manager fetches and follows: the plugin has what it has fetched.
	cfg.Module = host.ModuleConfig{Source: host.Fetched(host.Bytes(module), module), SHA256: s.Module.SHA256, Compiled: s.Module.Compiled}
	if source, err := m.cfg.Runtime.Source(s.Module, "module"); err == nil {
		cfg.Module.Source = host.Fetched(source, module)
		if from, ok := source.(host.CompiledSource); ok {
			cfg.Module.Source = withForms{cfg.Module.Source, from}
		}
	}
	cfg.PolicyRules, cfg.Cluster, cfg.Capabilities = m.complete(s.PolicyRules), m.cfg.Cluster, m.cfg.Capabilities
	cfg.Promote = func(ctx context.Context, p *shadow.Promotion) error { return m.promote(ctx, s.Name, p) }
	return cfg
}

// withForms is a module that was fetched, with the compiled forms of where it is from.
type withForms struct {
	host.Source
	from host.CompiledSource
}

// FetchCompiled implements [host.CompiledSource].
func (f withForms) FetchCompiled(ctx context.Context, platform string, sha256 []string) ([]byte, error) {
	return f.from.FetchCompiled(ctx, platform, sha256)
}

// complete adds what all policies of a manager have.
func (m *Manager) complete(rules admission.PolicyRules) admission.PolicyRules {
	rules.Namespaces = m.cfg.Namespaces
	rules.Mode, rules.FailurePolicy = cmp.Or(rules.Mode, host.Enforce), cmp.Or(rules.FailurePolicy, host.Fail)
	if m.cfg.Observer != nil {
		rules.Observer = m.cfg.Observer
	}
	return rules
}

func enabled(b *bool) bool { return b == nil || *b }

// Config says what a Manager has.
type Config struct {
	// Runtime loads the modules, from its Sources, and Engine gets the policies; both are
	// required, and the Manager is alone in changing the engine.
	Runtime *host.Runtime
	Engine  *admission.Engine
	// Cluster and Namespaces are for all policies, see package admission.
	Cluster    admission.Cluster
	Namespaces admission.NamespaceLabels
	// Capabilities answer what Kubewarden policies ask by their grants; nil answers nothing
	// but what the cluster has.
	Capabilities *capabilities.Provider
	// Directory, if it is there, keeps what was loaded by the API.
	Directory string
	// Versions is how many versions of a plugin are kept to roll back to. Default
	// 5.
	Versions int
	// Interval is how often sources and the configuration file are looked at
	// that do not tell of changes. Default 30 s.
	Interval time.Duration
	// Observer and HostObserver are told what policies and guests do.
	Observer     admission.Observer
	HostObserver host.Observer
	// Forget is called with the name of a policy that is gone, for metrics; nil is
	// not called.
	Forget func(policy string)
	// Bodies bounds the memory of requests to the management API. nil is as much as
	// two of the largest, apart from what others have.
	Bodies *admission.Bodies
	// Logger takes what happens, and what guests say; nil drops it.
	Logger *slog.Logger
}

const (
	defaultVersions = 5
	closeTimeout    = time.Minute
)

// fetch returns what the source of a plugin holds, with the source, which is to be told if that
// could be loaded.
func (m *Manager) fetch(ctx context.Context, s *PluginSpec) (data []byte, source host.Source, err error) {
	if source, err = m.cfg.Runtime.Source(s.Module, "module"); err != nil {
		return nil, nil, fmt.Errorf("plugin %q: %w", s.Name, err)
	}
	if data, err = source.Fetch(ctx); err != nil {
		return nil, nil, fmt.Errorf("plugin %q: fetch module: %w", s.Name, err)
	}
	return data, source, nil
}

// checkSources returns every mistake of the modules of a file that passed check: there may be no
// access to where they come from.
func (m *Manager) checkSources(f *File) (errs []error) {
	check := func(s *PluginSpec) {
		if _, err := m.cfg.Runtime.Source(s.Module, "module"); err != nil {
			errs = append(errs, fmt.Errorf("plugin %q: %w", s.Name, err))
		}
	}
	for i := range f.Plugins {
		check(&f.Plugins[i])
	}
	for i := range f.Groups {
		for _, alias := range slices.Sorted(maps.Keys(f.Groups[i].Members)) {
			member := f.Groups[i].Members[alias]
			check(&member)
		}
	}
	return errs
}
