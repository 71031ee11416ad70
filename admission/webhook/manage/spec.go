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
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/boolexpr"
)

// File is a configuration file.
type File struct {
	// Plugins and Groups are the policies. Their names are unique. For a file without policies,
	// [ParseFile] requires an empty list of plugins; otherwise it refuses the file, which may have
	// lost its policies.
	Plugins []PluginSpec `json:"plugins,omitempty"`
	Groups  []GroupSpec  `json:"groups,omitempty"`
	// BreakGlass, until its time, lets all policies only monitor, those of the management API too.
	BreakGlass *BreakGlass `json:"breakGlass,omitempty"`
	// LogLevel is the level of the log as long as the file is in service: debug, info, warn or
	// error. By default it is that of the program's flag.
	LogLevel *slog.Level `json:"logLevel,omitempty"`
}

// PluginSpec configures a plugin: its module, its permissions, and when it is asked. Its name
// consists of at most 63 lower-case letters, digits, '-' and '.'.
type PluginSpec struct {
	// Version and Description are informational.
	Version     string `json:"version,omitempty"`
	Description string `json:"description,omitempty"`
	// Enabled determines whether the plugin is asked. Default true.
	Enabled *bool `json:"enabled,omitempty"`
	// PluginConfig holds the other settings: module, guestConfig, grants, limits, rules, and the
	// permissions to change and look up objects. A request to the management API does not set
	// module.
	admission.PluginConfig `json:",inline"`
}

// GroupSpec is a group of plugins under an expression.
type GroupSpec struct {
	Name    string `json:"name"`
	Enabled *bool  `json:"enabled,omitempty"`
	// Members are the plugins by their names in the expression; they have no rules.
	Members    map[string]PluginSpec `json:"members"`
	Expression string                `json:"expression"`
	Message    string                `json:"message"`
	// PolicyRules determine when the group is asked and how its verdict counts.
	admission.PolicyRules `json:",inline"`
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

func checkName(what, name string) error {
	if !nameRE.MatchString(name) {
		return fmt.Errorf("%s %.80q: a name is at most 63 lower-case letters, digits, '-' and '.'", what, name)
	}
	return nil
}

// check returns all mistakes in a file that can be found without the modules. namespaces returns
// the labels of namespaces on the server. dialects are those of the server; nil if it is unknown.
func (f *File) check(namespaces admission.NamespaceLabels, dialects []*dialect.Dialect) (errs []error) {
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
		errs = append(errs, p.check("plugin", namespaces, dialects)...)
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
		errs = append(errs, f.Groups[i].check(namespaces, dialects)...)
	}
	return errs
}

// convertsToo returns the error of a plugin that converts a kind which another plugin converts: a
// conversion would be ambiguous. One of them may be disabled.
func convertsToo(name, other string, kind metav1.GroupKind) error {
	return fmt.Errorf("plugin %q: converts: %s.%s is converted by the plugin %q already", name, kind.Kind, kind.Group, other)
}

func (s *PluginSpec) check(what string, namespaces admission.NamespaceLabels, dialects []*dialect.Dialect) (errs []error) {
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
	of := s.PluginConfig
	of.Dialects = dialects
	for _, err := range of.Check() {
		fail("%v", err)
	}
	if s.Record != nil {
		for _, err := range s.Record.Check() {
			fail("%v", err)
		}
	}
	return errs
}

func (g *GroupSpec) check(namespaces admission.NamespaceLabels, dialects []*dialect.Dialect) (errs []error) {
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("group %q: "+format, append([]any{g.Name}, args...)...))
	}
	if err := checkName("group", g.Name); err != nil {
		errs = append(errs, err)
	}
	aliases := slices.Sorted(maps.Keys(g.Members))
	for _, alias := range aliases {
		member := g.Members[alias]
		errs = append(errs, member.check("group "+g.Name+": member "+alias, namespaces, dialects)...)
		// Rules and enabled of a member would be ignored.
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

// checkRules returns all mistakes in the rules.
func checkRules(rules admission.PolicyRules, namespaces admission.NamespaceLabels) error {
	rules.Namespaces = namespaces
	return rules.Check()
}

// pluginConfig returns the configuration for loading a plugin. module is the one that was chosen by
// the API, nil for that of the configuration.
func (m *Manager) pluginConfig(s *PluginSpec, module *pinned) admission.PluginConfig {
	cfg := s.PluginConfig
	cfg.Logger, cfg.Config.Observer = m.cfg.Logger, m.cfg.HostObserver
	if module != nil {
		cfg.Module = host.ModuleConfig{Source: module, SHA256: module.digest, Compiled: s.Module.Compiled}
	}
	cfg.PolicyRules, cfg.Cluster, cfg.Dialects = m.complete(s.PolicyRules), m.cfg.Cluster, m.dialects()
	name := s.Name
	cfg.Promote = func(ctx context.Context, p *shadow.Promotion) error { return m.promote(ctx, name, p) }
	cfg.Swapped = func() { m.swapped(name) }
	return cfg
}

// dialects returns the dialects of the configuration, which are not nil.
func (m *Manager) dialects() []*dialect.Dialect {
	if m.cfg.Dialects == nil {
		return []*dialect.Dialect{}
	}
	return m.cfg.Dialects
}

// complete adds the settings common to all policies of a manager.
func (m *Manager) complete(rules admission.PolicyRules) admission.PolicyRules {
	rules.Namespaces = m.cfg.Namespaces
	rules.Mode, rules.FailurePolicy = cmp.Or(rules.Mode, host.Enforce), cmp.Or(rules.FailurePolicy, host.Fail)
	switch own := rules.Observer; {
	case m.cfg.Observer == nil:
	case own == nil:
		rules.Observer = m.cfg.Observer
	default:
		rules.Observer = observers{m.cfg.Observer, own}
	}
	return rules
}

// observers receive the same decisions.
type observers [2]admission.Observer

// Decided implements [admission.Observer].
func (o observers) Decided(ctx context.Context, d admission.Decision) {
	o[0].Decided(ctx, d)
	o[1].Decided(ctx, d)
}

func enabled(b *bool) bool { return b == nil || *b }

// Config configures a Manager.
type Config struct {
	// Runtime loads the modules, from its Sources, and Engine gets the policies. Both are required.
	// Only the Manager may change the engine.
	Runtime *host.Runtime
	Engine  *admission.Engine
	// Cluster and Namespaces are for all policies, see package admission.
	Cluster    admission.Cluster
	Namespaces admission.NamespaceLabels
	// Dialects are the ABIs of policies beside that of package abi.
	Dialects []*dialect.Dialect
	// Directory, if set, keeps the plugins loaded by the API.
	Directory string
	// Versions is the number of versions of a plugin kept for a rollback. Default 5.
	Versions int
	// Interval is the time between checks of the configuration file, and of sources whose modules
	// could not be loaded, if those do not report changes. Default 30 s. Followed modules are
	// checked as host.Sources say.
	Interval time.Duration
	// ReadyTimeout is the longest time for which policies that could not be loaded keep the server
	// from being ready, see [Manager.Ready]. Default 10 minutes.
	ReadyTimeout time.Duration
	// Observer and HostObserver receive the decisions of policies and the calls of guests. The Observer
	// of a PluginSpec receives those of its policy as well.
	Observer     admission.Observer
	HostObserver host.Observer
	// Forget is called with the name of a removed policy, for metrics. It may be nil.
	Forget func(policy string)
	// Bodies bounds the memory of requests to the management API. nil means a separate bound of two
	// of the largest requests.
	Bodies *admission.Bodies
	// Logger receives events and the messages of guests; nil drops them.
	Logger *slog.Logger
	// LogLevel is set to File.LogLevel, and to its value at New if a file has none; nil ignores it.
	LogLevel *slog.LevelVar
}

const (
	defaultVersions = 5
	closeTimeout    = time.Minute
)

// checkSources returns all mistakes in the modules of a file that has passed check, such as a
// missing access to their sources.
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
