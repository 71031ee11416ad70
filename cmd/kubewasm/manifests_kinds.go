package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/sched"
)

// webhook returns the file of policies and the webhook configurations, whose rules are those of
// the policies.
func (m *manifesting) webhook(ctx context.Context) (any, []any, error) {
	file := &manage.File{}
	var validating, mutating []admissionregistrationv1.RuleWithOperations
	for _, p := range m.modules {
		spec, err := m.policy(ctx, p)
		if err != nil {
			return nil, nil, fmt.Errorf("plugin %q: %w", p.name, err)
		}
		file.Plugins = append(file.Plugins, *spec)
		if spec.AllowedToMutate {
			mutating = union(mutating, spec.Match.Rules)
		}
		if p.validates {
			validating = union(validating, spec.Match.Rules)
		}
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, nil, err
	}
	if _, err := manage.ParseFile(text); err != nil {
		return nil, nil, err
	}
	var objects []any
	if len(mutating) != 0 {
		w, again := m.asked("mutate", mutating), admissionregistrationv1.IfNeededReinvocationPolicy
		objects = append(objects, &admissionregistrationv1.MutatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"}, ObjectMeta: m.webhookMeta(),
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector,
				SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, ReinvocationPolicy: &again,
			}},
		})
	}
	if len(validating) != 0 {
		objects = append(objects, &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"}, ObjectMeta: m.webhookMeta(),
			Webhooks: []admissionregistrationv1.ValidatingWebhook{m.asked("validate", validating)},
		})
	}
	return file, objects, nil
}

// webhookMeta has cert-manager put its CA into a webhook configuration, by the name in
// charts/manifests/webhook/certificate.yaml.
func (m *manifesting) webhookMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "kubewasm-webhook", Annotations: map[string]string{"cert-manager.io/inject-ca-from": m.inNamespace() + "/kubewasm-webhook"}}
}

// union adds the missing rules.
func union(to, rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	for i := range rules {
		if !slices.ContainsFunc(to, func(r admissionregistrationv1.RuleWithOperations) bool { return r.String() == rules[i].String() }) {
			to = append(to, rules[i])
		}
	}
	return to
}

// asked returns the webhook for a path of the server. It excludes objects that must run without the
// server, by the names of namespaces, which no user can change.
func (m *manifesting) asked(verb string, rules []admissionregistrationv1.RuleWithOperations) admissionregistrationv1.ValidatingWebhook {
	path, seconds := "/"+verb, int32(5)
	fail, equivalent, none := admissionregistrationv1.Fail, admissionregistrationv1.Equivalent, admissionregistrationv1.SideEffectClassNone
	exempt := []string{metav1.NamespaceSystem}
	if n := m.inNamespace(); n != metav1.NamespaceSystem {
		exempt = append(exempt, n)
	}
	return admissionregistrationv1.ValidatingWebhook{
		Name:          verb + ".kubewasm.dev",
		ClientConfig:  admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: m.inNamespace(), Name: "kubewasm-webhook", Path: &path}},
		Rules:         rules,
		FailurePolicy: &fail, MatchPolicy: &equivalent, SideEffects: &none, TimeoutSeconds: &seconds,
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: exempt},
		}},
		AdmissionReviewVersions: []string{"v1"},
	}
}

// policy returns the entry of a module in the file of policies.
func (m *manifesting) policy(ctx context.Context, p *placed) (*manage.PluginSpec, error) {
	about, err := host.Inspect(p.try.module)
	if err != nil {
		return nil, err
	}
	theirs, err := kubewardenOf(about)
	if err != nil {
		return nil, err
	}
	plugin, err := p.try.policy(ctx, m.rt, host.Config{Name: pluginName, Module: host.ModuleConfig{Bytes: p.try.module}, GuestConfig: p.config, Grants: p.Grants, Limits: host.Limits{Instances: 1}}, nil, nil)
	if err != nil {
		return nil, err
	}
	described := admission.Describe(plugin)
	if err := plugin.Close(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	mutates := described.Mutates
	p.validates = described.Validates
	if p.foreign { // It is asked as the one or the other.
		mutates = mutates && theirs.Mutating
		p.validates = !mutates
	}
	spec := new(manage.PluginSpec)
	spec.Module = host.ModuleConfig{File: p.file, OCI: p.oci, Follow: true}
	spec.Name, spec.GuestConfig, spec.Grants = p.name, p.config, p.grants
	spec.AllowedToMutate = mutates
	spec.Match.MatchPolicy = admissionregistrationv1.Equivalent
	if spec.Match.Rules = described.Rules; len(m.rules) != 0 {
		spec.Match.Rules = rulesOf(m.rules)
	}
	if len(spec.Match.Rules) == 0 {
		return nil, errors.New(`the module does not declare which requests it is for: say it with --match, as in --match "CREATE,UPDATE pods deployments.apps"`)
	}
	if p.looks {
		spec.Objects = lookup.Grants(m.objects...)
	}
	var kinds []dialect.Kind
	var operations []string
	for _, kind := range theirs.kinds() {
		apiVersion, name := kind.ToAPIVersionAndKind()
		kinds = append(kinds, dialect.Kind{APIVersion: apiVersion, Kind: name})
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		m.seen = append(m.seen, resource)
		m.verbs = []string{"get", "list", "watch"}
	}
	if len(kinds) != 0 {
		operations = []string{capabilities.GetResource, capabilities.ListAll, capabilities.ListByNamespace}
	}
	spec.Dialect, err = dialectConfig(about, p.try.gatekeeper, kinds, operations...)
	return spec, err
}

// rulesOf returns rules in the form of a webhook configuration.
func rulesOf(rules []metadata.Rule) (all []admissionregistrationv1.RuleWithOperations) {
	for _, r := range rules {
		rule := admissionregistrationv1.RuleWithOperations{Rule: admissionregistrationv1.Rule{APIGroups: r.APIGroups, APIVersions: r.APIVersions, Resources: r.Resources}}
		for _, operation := range r.Operations {
			rule.Operations = append(rule.Operations, admissionregistrationv1.OperationType(operation))
		}
		all = append(all, rule)
	}
	return all
}

// scheduler returns the KubeSchedulerConfiguration with a profile that has the plugins.
func (m *manifesting) scheduler(context.Context) (any, []any, error) {
	var enabled, preempting, configs []any
	for _, p := range m.modules {
		args := sched.PluginConfig{}
		args.Module = host.ModuleConfig{File: p.file, OCI: p.oci}
		args.GuestConfig, args.Grants = p.config, p.grants
		if p.looks {
			args.Objects = lookup.Grants(m.objects...)
		}
		enabled = append(enabled, map[string]any{"name": p.name})
		if slices.Contains(p.Functions, abi.PotentialVictims.String()) {
			preempting = append(preempting, map[string]any{"name": p.name})
		}
		configs = append(configs, map[string]any{"name": p.name, "args": args})
	}
	plugins := map[string]any{"multiPoint": map[string]any{"enabled": enabled}}
	if len(preempting) != 0 { // In the place of DefaultPreemption.
		plugins["postFilter"] = map[string]any{"enabled": preempting, "disabled": []any{map[string]any{"name": "*"}}}
	}
	return map[string]any{
		"apiVersion":     "kubescheduler.config.k8s.io/v1",
		"kind":           "KubeSchedulerConfiguration",
		"leaderElection": map[string]any{"leaderElect": true, "resourceLock": "leases", "resourceName": m.account, "resourceNamespace": m.inNamespace()},
		"profiles": []any{map[string]any{
			"schedulerName": m.account,
			"plugins":       plugins,
			"pluginConfig":  configs,
		}},
	}, nil, nil
}

// agent returns the file of the node agent, with the plugins and the grants that their
// decisions need.
func (m *manifesting) agent(ctx context.Context) (any, []any, error) {
	file := map[string]any{
		"cacheDir": "/var/cache/kubewasm",
		"follow":   true,
		"nri":      map[string]any{"index": "50"},
		"standalone": map[string]any{"kubelet": map[string]any{
			"tokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
			"caFile":    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
		}},
	}
	var plugins, configs []hooks.PluginConfig
	for _, p := range m.modules {
		plugin := hooks.PluginConfig{Config: host.Config{Name: p.name, Module: host.ModuleConfig{File: p.file, OCI: p.oci, Follow: true}, GuestConfig: p.config, Grants: p.grants}}
		if p.looks {
			plugin.Objects = lookup.Grants(m.objects...)
		}
		cfg := plugin
		cfg.Module, cfg.Limits.Instances = host.ModuleConfig{Bytes: p.try.module}, 1
		needed, err := m.decisionGrants(ctx, cfg)
		if err != nil {
			return nil, nil, err
		}
		if p.Metadata != nil {
			cfg.Owns, plugin.Owns = p.Metadata.Decides, p.Metadata.Decides
		}
		cfg.DecisionGrants, plugin.DecisionGrants = needed, needed
		plugins, configs = append(plugins, plugin), append(configs, cfg)
	}
	node, err := m.loadsAs(ctx, configs)
	if err != nil {
		return nil, nil, err
	}
	if node {
		file["node"] = map[string]any{}
	}
	file["plugins"] = plugins
	return file, nil, nil
}

// decisionGrants returns the narrowest grants with which a hook may decide the fields that it
// declares.
func (m *manifesting) decisionGrants(ctx context.Context, cfg hooks.PluginConfig) (needed hooks.Grants, err error) {
	e, err := hooks.NewEngine(ctx, m.rt, hooks.Config{Plugins: []hooks.PluginConfig{cfg}, Node: true})
	if err == nil {
		return needed, e.Close(context.WithoutCancel(ctx))
	}
	missing := grantErrors(err)
	if len(missing) == 0 {
		return needed, err
	}
	for _, e := range missing {
		g := e.Grants
		if g == nil {
			return needed, fmt.Errorf("%w; the module does not tell which decisionGrants it needs: see cmd/kubewasm-agent/deploy/agent.yaml", err)
		}
		needed.Env, needed.Annotations, needed.Devices = append(needed.Env, g.Env...), append(needed.Annotations, g.Annotations...), append(needed.Devices, g.Devices...)
	}
	for _, list := range []*[]string{&needed.Env, &needed.Annotations, &needed.Devices} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return needed, nil
}

// grantErrors returns the missing grants in an error.
func grantErrors(err error) (all []*hooks.GrantError) {
	switch e := err.(type) { //nolint:errorlint // The tree of errors is walked.
	case *hooks.GrantError:
		return []*hooks.GrantError{e}
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			all = append(all, grantErrors(err)...)
		}
	case interface{ Unwrap() error }:
		return grantErrors(e.Unwrap())
	}
	return all
}

// loadsAs loads hooks side by side, and reports whether they need an agent that follows its
// node.
func (m *manifesting) loadsAs(ctx context.Context, configs []hooks.PluginConfig) (node bool, err error) {
	for _, cfg := range configs {
		node = node || len(cfg.Objects) != 0
	}
	e, err := hooks.NewEngine(ctx, m.rt, hooks.Config{Plugins: configs, Node: node})
	if err != nil && !node {
		node = true
		e, err = hooks.NewEngine(ctx, m.rt, hooks.Config{Plugins: configs, Node: node})
	}
	if err != nil {
		return false, err
	}
	return node, e.Close(context.WithoutCancel(ctx))
}
