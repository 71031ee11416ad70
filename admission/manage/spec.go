package manage

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
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
	// Source is where the module comes from. What is sent to the management API
	// has none.
	Source *Source `json:"source,omitempty"`
	// PluginConfig is the rest: guestConfig, grants, limits, when the plugin is asked, what
	// it may change and look up. SHA256 is the digest of the module, uncompressed, and
	// required for https. A module without one is followed: when the source changes, the
	// plugin does.
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

// Source is where a module comes from: one of these. It may be compressed by gzip,
// so that a guest in Go fits into a ConfigMap, which has 1 MiB at most.
type Source struct {
	// File is a path.
	File string `json:"file,omitempty"`
	// Bytes are the module itself, in base64.
	Bytes []byte `json:"bytes,omitempty"`
	// HTTPS is a URL, which needs a digest.
	HTTPS string `json:"https,omitempty"`
	// OCI is the reference of an artifact in a registry or an image layout, see package oci
	// of host.
	OCI string `json:"oci,omitempty"`
	// ConfigMap and Secret are keys of objects.
	ConfigMap *ObjectKey `json:"configMap,omitempty"`
	Secret    *ObjectKey `json:"secret,omitempty"`
}

// ObjectKey is a key of a ConfigMap or a Secret.
type ObjectKey struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key"`
}

var (
	nameRE   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)
	sha256RE = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)
)

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
	if s.Source == nil {
		fail("source is missing")
	} else if n := s.Source.count(); n != 1 {
		fail("source has %d of file, bytes, https, oci, configMap and secret, want one", n)
	} else if s.Source.HTTPS != "" && s.SHA256 == "" {
		fail("source https needs sha256")
	}
	if s.SHA256 != "" && !sha256RE.MatchString(s.SHA256) {
		fail("sha256 is %.80q, want 64 hexadecimal digits", s.SHA256)
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

func (s *Source) count() int {
	n := 0
	for _, set := range []bool{s.File != "", len(s.Bytes) != 0, s.HTTPS != "", s.OCI != "", s.ConfigMap != nil, s.Secret != nil} {
		if set {
			n++
		}
	}
	return n
}

// checkRules returns everything that is wrong with the rules.
func checkRules(rules admission.PolicyRules, namespaces admission.NamespaceLabels) error {
	rules.Namespaces = namespaces
	return rules.Check()
}

// source returns the source of a module.
func (m *Manager) source(s *Source) host.Source {
	switch {
	case len(s.Bytes) != 0:
		return host.Bytes(s.Bytes)
	case s.File != "":
		return host.File(s.File)
	case s.HTTPS != "":
		return host.HTTPS(s.HTTPS, m.cfg.HTTPS)
	case s.OCI != "":
		return m.cfg.OCI(s.OCI)
	case s.ConfigMap != nil:
		return host.ConfigMapKey(m.cfg.ConfigMaps, s.ConfigMap.Namespace, s.ConfigMap.Name, s.ConfigMap.Key)
	}
	return host.SecretKey(m.cfg.Secrets, s.Secret.Namespace, s.Secret.Name, s.Secret.Key)
}

// pluginConfig returns what a plugin is loaded with.
func (m *Manager) pluginConfig(s *PluginSpec, module []byte) admission.PluginConfig {
	cfg := s.PluginConfig
	cfg.Source, cfg.Logger, cfg.Config.Observer = host.Bytes(module), m.cfg.Logger, m.cfg.HostObserver
	if s.Source != nil {
		source := m.source(s.Source)
		cfg.Source = host.Fetched(source, module)
		if from, ok := source.(host.CompiledSource); ok {
			cfg.Source = withForms{cfg.Source, from}
		}
	}
	cfg.PolicyRules, cfg.Cluster, cfg.Capabilities = m.complete(s.PolicyRules), m.cfg.Cluster, m.cfg.Capabilities
	cfg.OpenOCI = m.cfg.OCI
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
	rules.Mode, rules.FailurePolicy = cmp.Or(rules.Mode, admission.Protect), cmp.Or(rules.FailurePolicy, host.Fail)
	if m.cfg.Observer != nil {
		rules.Observer = m.cfg.Observer
	}
	return rules
}

func enabled(b *bool) bool { return b == nil || *b }

// Config says what a Manager has.
type Config struct {
	// Runtime loads the modules, and Engine gets the policies; both are required,
	// and the Manager is alone in changing the engine.
	Runtime *host.Runtime
	Engine  *admission.Engine
	// ConfigMaps and Secrets read modules from objects; nil cannot.
	ConfigMaps, Secrets host.ObjectGetter
	// HTTPS bounds downloads.
	HTTPS host.HTTPSOptions
	// OCI returns the source of a reference, as the method Source of a client of package oci
	// of host does; nil cannot.
	OCI func(reference string) host.Source
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
	if err := m.checkSource(s); err != nil {
		return nil, nil, fmt.Errorf("plugin %q: %w", s.Name, err)
	}
	source = m.source(s.Source)
	if data, err = source.Fetch(ctx); err != nil {
		return nil, nil, fmt.Errorf("plugin %q: fetch module: %w", s.Name, err)
	}
	return data, source, nil
}

// checkSource returns every mistake of the source of a plugin, joined.
func (m *Manager) checkSource(s *PluginSpec) error {
	if s.Source.OCI != "" && m.cfg.OCI == nil {
		return errors.New("source oci: this server has no access to registries")
	}
	if checker, ok := m.source(s.Source).(host.Checker); ok {
		return checker.Check(s.SHA256)
	}
	return nil
}

// checkArtifacts returns every mistake of the references of a file that passed check.
func (m *Manager) checkArtifacts(f *File) (errs []error) {
	check := func(s *PluginSpec) {
		if s.Source.OCI == "" {
			return
		}
		if err := m.checkSource(s); err != nil {
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

// maxModuleBytes is how large a module may be that was compressed.
const maxModuleBytes = 64 << 20

// unpack returns the module that a source holds, as it is or compressed by gzip.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return data, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress module: %w", err)
	}
	module, err := io.ReadAll(io.LimitReader(r, maxModuleBytes+1))
	if err != nil {
		return nil, fmt.Errorf("decompress module: %w", err)
	}
	if len(module) > maxModuleBytes {
		return nil, fmt.Errorf("decompress module: it has more than %d bytes", maxModuleBytes)
	}
	return module, nil
}
