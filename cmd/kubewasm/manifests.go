package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// component is a program that runs plugins of a kind, in the installation of the examples.
type component struct {
	kind abi.Kind
	// namespace and modules are the defaults of the flags.
	namespace, modules string
	account, role      string
	// configMap and key are the place of its configuration file.
	configMap, key string
	// verbs are its rights to objects that plugins look up.
	verbs []string
	parts func(m *manifesting, ctx context.Context) (config any, objects []any, err error)
}

var components = []component{
	{abi.KindAdmission, "kubewasm-webhook", "/plugins", "kubewasm-webhook", "kubewasm-webhook", "kubewasm-webhook-policies", "policies.yaml", []string{"list", "watch"}, (*manifesting).webhook},
	{abi.KindScheduler, "kubewasm-scheduler", "/plugins", "kubewasm-scheduler", "kubewasm-scheduler", "kubewasm-scheduler", "scheduler.yaml", []string{"get", "list", "watch"}, (*manifesting).scheduler},
	{abi.KindHook, "kube-system", "/plugins", "kubewasm-agent", "kubewasm-agent", "kubewasm-agent", "agent.yaml", []string{"list", "watch"}, (*manifesting).agent},
}

// The parts of manifests that can be written alone.
const (
	partConfig  = "config"
	partWebhook = "webhook"
	partRBAC    = "rbac"
)

// manifestsFlags are the flags of manifests.
type manifestsFlags struct {
	config, namespace, modules, only string
	gatekeeper                       bool
	matches, objects                 []string
	printed                          *output
	from                             *pullFlags
}

func writeManifests(t *tool, flags *pflag.FlagSet) action {
	f := &manifestsFlags{from: t.pullFlags(flags)}
	flags.StringVar(&f.config, "config", "", "")
	flags.BoolVar(&f.gatekeeper, "gatekeeper", false, "")
	flags.StringArrayVar(&f.matches, "match", nil, "")
	flags.StringVar(&f.modules, "modules", "", "")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "")
	flags.StringArrayVar(&f.objects, "objects", nil, "")
	flags.StringVar(&f.only, "only", "", "")
	oneOf(flags, "only", partConfig, partWebhook, partRBAC)
	f.printed = outputFlags(flags)
	f.printed.formats, f.printed.format = []string{"yaml", "json"}, "yaml"
	oneOf(flags, "output", f.printed.formats...)
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return &usageError{errors.New("manifests: an argument is missing: name a module")}
		}
		if f.only != "" && !slices.Contains([]string{partConfig, partWebhook, partRBAC}, f.only) {
			return &usageError{fmt.Errorf("manifests: --only is %q, want config, webhook or rbac", f.only)}
		}
		if f.config != "" && len(args) > 1 {
			return &usageError{errors.New("manifests: --config is for one module")}
		}
		documents, err := t.manifests(ctx, f, args)
		if err != nil {
			return fmt.Errorf("manifests: %w", err)
		}
		return f.printed.documents(t, documents, f.only == partConfig)
	}
}

// manifesting is a run of manifests.
type manifesting struct {
	*manifestsFlags
	component
	rt      *host.Runtime
	modules []*placed
	// rules are those of the flag.
	rules []metadata.Rule
	// seen are the resources that plugins look up.
	seen []schema.GroupVersionResource
}

// placed is a module, and the place where the component finds it.
type placed struct {
	*examination
	try       trying
	name      string
	file, oci string
	config    host.GuestConfig
	// grants are the grants beside the one for objects, whose need is held by looks.
	grants []string
	looks  bool
	// validates is set for a policy that is asked to validate.
	validates bool
}

// manifests returns the documents for modules, which are of one kind.
func (t *tool) manifests(ctx context.Context, f *manifestsFlags, args []string) (documents []any, err error) {
	m := &manifesting{manifestsFlags: f}
	for _, text := range f.matches {
		rules, err := guestbuild.ParseRules(text)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--match: %w", err)}
		}
		m.rules = append(m.rules, rules...)
	}
	for _, text := range f.objects {
		resource, err := lookup.ParseResource(text)
		if err != nil {
			return nil, &usageError{fmt.Errorf("--objects: %w", err)}
		}
		m.seen = append(m.seen, resource)
	}
	config, err := readConfig(f.config)
	if err != nil {
		return nil, err
	}
	for _, arg := range args {
		name, module, err := t.module(ctx, arg, f.from)
		if err != nil {
			return nil, err
		}
		p := &placed{try: trying{module: module, config: config, gatekeeper: f.gatekeeper}, config: config}
		if p.examination, err = t.examine(ctx, p.try); err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
		if err := m.place(p, arg, name); err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	if m.rt, err = t.newRuntime(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.rt.Close(context.WithoutCancel(ctx))) }()
	file, objects, err := m.parts(m, ctx)
	if err != nil {
		return nil, err
	}
	return m.chosen(file, objects)
}

// place adds a module.
func (m *manifesting) place(p *placed, arg, name string) error {
	switch {
	case p.Settings != "":
		return fmt.Errorf("the plugin does not start without its configuration: %s (--config names a file with it)", p.Settings)
	case len(p.Problems) != 0:
		return errors.New(strings.Join(p.Problems, "; "))
	case onlyConverts(p.mask):
		return errors.New("the module only converts: docs/operating.md has the policy and the CustomResourceDefinition, which name the kinds")
	}
	i := slices.IndexFunc(components, func(c component) bool { return slices.Equal(p.Kinds, []string{c.kind.String()}) })
	if i < 0 {
		return fmt.Errorf("it is a plugin of kind %s, and manifests are for those of kind admission, scheduler and hook", strings.Join(p.Kinds, " and "))
	}
	if len(m.modules) == 0 {
		m.component = components[i]
	} else if m.kind != components[i].kind {
		return fmt.Errorf("it is a plugin of kind %s, and %s is one of kind %s: write their manifests one by one", components[i].kind, m.modules[0].name, m.kind)
	}
	p.name, _, _ = strings.Cut(strings.TrimSuffix(filepath.Base(name), ".wasm"), "@")
	if p.Metadata != nil && p.Metadata.Name != "" {
		p.name = p.Metadata.Name
	}
	if _, err := os.Stat(arg); errors.Is(err, fs.ErrNotExist) {
		ref, err := oci.ParseReference(arg)
		if err != nil {
			return err
		}
		p.oci = ref.String()
	} else {
		p.file = path.Join(cmp.Or(m.manifestsFlags.modules, m.component.modules), p.name+".wasm")
	}
	for _, grant := range p.Grants {
		if grant == host.GrantObjects {
			p.looks = true
			continue
		}
		p.grants = append(p.grants, grant)
	}
	p.looks = p.looks || len(p.EventsOf) != 0
	m.modules = append(m.modules, p)
	return nil
}

// check returns every mistake of the flags with respect to the modules.
func (m *manifesting) check() error {
	var errs []error
	looks, names := false, map[string]bool{}
	for _, p := range m.modules {
		looks = looks || p.looks
		for _, of := range p.EventsOf {
			if !slices.Contains(m.objects, of) {
				errs = append(errs, fmt.Errorf("the plugin %s registers for events of %s: --objects %s", p.name, of, of))
			}
		}
		if p.looks && len(p.EventsOf) == 0 && len(m.objects) == 0 {
			errs = append(errs, fmt.Errorf("the plugin %s looks objects up: name their resources with --objects, as in networking.k8s.io/v1/ingresses", p.name))
		}
		if names[p.name] {
			errs = append(errs, fmt.Errorf("there are two plugins %s", p.name))
		}
		names[p.name] = true
	}
	if !looks && len(m.objects) != 0 {
		errs = append(errs, errors.New("--objects: no plugin looks objects up by the ABI"))
	}
	if len(m.matches) != 0 && m.kind != abi.KindAdmission {
		errs = append(errs, errors.New("--match is for admission plugins"))
	}
	if m.only == partWebhook && m.kind != abi.KindAdmission {
		errs = append(errs, errors.New("--only webhook is for admission plugins"))
	}
	return errors.Join(errs...)
}

func (m *manifesting) inNamespace() string {
	return cmp.Or(m.manifestsFlags.namespace, m.component.namespace)
}

// chosen returns the documents selected by the flag: the configuration file by itself, or the
// objects, among them a ConfigMap with the file.
func (m *manifesting) chosen(file any, objects []any) ([]any, error) {
	access := m.access(rights(m.seen, m.verbs))
	switch m.only {
	case partConfig:
		return []any{file}, nil
	case partWebhook:
		return objects, nil
	case partRBAC:
		return access, nil
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, err
	}
	held := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: m.inNamespace(), Name: m.configMap},
		Data:       map[string]string{m.key: string(text)},
	}
	return slices.Concat([]any{held}, access, objects), nil
}

// rights are the rules for resources, one for each group.
func rights(resources []schema.GroupVersionResource, verbs []string) (rules []rbacv1.PolicyRule) {
	for _, r := range resources {
		i := slices.IndexFunc(rules, func(rule rbacv1.PolicyRule) bool { return rule.APIGroups[0] == r.Group })
		if i < 0 {
			i = len(rules)
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Verbs: verbs})
		}
		if !slices.Contains(rules[i].Resources, r.Resource) {
			rules[i].Resources = append(rules[i].Resources, r.Resource)
		}
	}
	return rules
}

// access returns the role with the rules, and its binding to the component; nothing without any.
func (m *manifesting) access(rules []rbacv1.PolicyRule) []any {
	if len(rules) == 0 {
		return nil
	}
	name := m.role + ":objects"
	meta := metav1.ObjectMeta{Name: name}
	return []any{
		&rbacv1.ClusterRole{TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}, ObjectMeta: meta, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"}, ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: m.account, Namespace: m.inNamespace()}},
		},
	}
}

// documents prints documents in the format. plain prints a single one alone, where JSON otherwise
// has a List.
func (o *output) documents(t *tool, documents []any, plain bool) error {
	var b bytes.Buffer
	if o.String() == "json" {
		var value any = map[string]any{"apiVersion": "v1", "kind": "List", "items": append([]any{}, documents...)}
		if plain {
			value = documents[0]
		}
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		if err := e.Encode(value); err != nil {
			return err
		}
	} else {
		for i, document := range documents {
			text, err := yaml.Marshal(document)
			if err != nil {
				return err
			}
			if i != 0 {
				b.WriteString("---\n")
			}
			b.Write(text)
		}
	}
	if o.file == "" {
		_, err := t.out.Write(b.Bytes())
		return err
	}
	if err := writeWhole(o.file, b.Bytes()); err != nil {
		return err
	}
	_, err := foreign.Fprintf(t.out, "%s: %d documents\n", o.file, len(documents))
	return err
}
