package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// exportFlags are the flags of export.
type exportFlags struct {
	kind      string
	templates pairs
	resources pairs
	printed   *output
}

// configKinds are the kinds of the plugins in the files of programs.
var configKinds = []string{"ClusterAdmissionPolicy", "NodeHook"}

func exportObjects(t *tool, flags *pflag.FlagSet) action {
	f := &exportFlags{templates: pairs{}, resources: pairs{}}
	flags.StringVar(&f.kind, "kind", "", "")
	oneOf(flags, "kind", configKinds...)
	flags.Var(f.templates, "template", "")
	flags.Var(f.resources, "resource", "")
	f.printed = outputFlags(flags)
	f.printed.formats, f.printed.format = []string{"yaml", "json"}, "yaml"
	oneOf(flags, "output", f.printed.formats...)
	return func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			return &usageError{errors.New("export: name a file: the configuration of a program, or manifests of Kubewarden or Gatekeeper")}
		}
		if f.kind != "" && !slices.Contains(configKinds, f.kind) {
			return &usageError{fmt.Errorf("export: --kind is %q, want %s", f.kind, strings.Join(configKinds, " or "))}
		}
		e := &exporter{tool: t, templates: f.templates, resources: f.resources, kinds: configKinds, names: map[string]bool{}}
		if f.kind != "" {
			e.kinds = []string{f.kind}
		}
		for _, file := range args {
			if err := e.file(ctx, file); err != nil {
				e.errs = append(e.errs, fmt.Errorf("%s: %w", file, err))
			}
		}
		if err := errors.Join(e.errs...); err != nil {
			return fmt.Errorf("export: %w", err)
		}
		if len(e.objects) == 0 {
			return fmt.Errorf("export: there are no plugins in %s", strings.Join(args, ", "))
		}
		return f.printed.documents(t, e.objects, false)
	}
}

// exporter turns what other files declare into objects of the cluster. A setting without an
// equivalent that changes decisions is an error; others are warnings.
type exporter struct {
	tool      *tool
	templates pairs
	resources pairs
	kinds     []string
	objects   []any
	names     map[string]bool
	errs      []error
}

func (e *exporter) file(ctx context.Context, file string) error {
	text, err := readFile(ctx, file)
	if err != nil {
		return err
	}
	var first struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Data       map[string]string `json:"data"`
		Plugins    json.RawMessage   `json:"plugins"`
		Groups     json.RawMessage   `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &first); err == nil && first.APIVersion == "" && (first.Plugins != nil || first.Groups != nil) {
		return e.config(text)
	}
	objects, err := e.tool.readObjects(ctx, []string{file})
	if err != nil {
		return err
	}
	for _, o := range objects.All {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.JSON); err != nil {
			return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
		}
		if err := e.object(u); err != nil {
			e.errs = append(e.errs, fmt.Errorf("%s: %s %s: %w", file, u.GetKind(), u.GetName(), err))
		}
	}
	return nil
}

// config exports the plugins of a webhook's or an agent's configuration.
func (e *exporter) config(text []byte) error {
	var file struct {
		Plugins []map[string]any `json:"plugins"`
		Groups  []struct {
			Name string `json:"name"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return err
	}
	for _, g := range file.Groups {
		e.errs = append(e.errs, fmt.Errorf("the group %s stays in the file: there are no objects of groups", g.Name))
	}
	e.order(file.Plugins)
	for i, spec := range file.Plugins {
		name, _ := spec["name"].(string)
		delete(spec, "name")
		if name == "" {
			e.errs = append(e.errs, fmt.Errorf("plugins[%d] has no name", i))
			continue
		}
		if spec["record"] != nil {
			e.tool.warn(fmt.Sprintf("%s: record stays in the file: its path is one of the server", name))
			delete(spec, "record")
		}
		// A plugin's members tell its kind, if one kind alone has them.
		var of []*unstructured.Unstructured
		var mistakes []error
		for _, kind := range e.kinds {
			u := object(kind, "", name, spec)
			if texts := mistakesOf(u.DeepCopy()); len(texts) != 0 {
				mistakes = append(mistakes, fmt.Errorf("%s as a %s: %s", name, kind, strings.Join(texts, "; ")))
				continue
			}
			of = append(of, u)
		}
		switch len(of) {
		case 0:
			e.errs = append(e.errs, mistakes...)
		case 1:
			if err := e.add(of[0]); err != nil {
				e.errs = append(e.errs, err)
			}
		default:
			e.errs = append(e.errs, fmt.Errorf("%s may be a %s: choose one by --kind", name, strings.Join(e.kinds, " or a ")))
		}
	}
	return nil
}

// order sets the member order of plugins that a file asks in another order than that of their names,
// which is that of objects.
func (e *exporter) order(plugins []map[string]any) {
	order := func(spec map[string]any) float64 {
		n, _ := spec["order"].(float64)
		return n
	}
	asked := slices.Clone(plugins)
	slices.SortStableFunc(asked, func(a, b map[string]any) int { return cmp.Compare(order(a), order(b)) })
	if slices.IsSortedFunc(asked, func(a, b map[string]any) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), strings.Compare(fmt.Sprint(a["name"]), fmt.Sprint(b["name"])))
	}) {
		return
	}
	e.tool.warn("order is set in the place of the plugins in the file: objects of the same order are asked by their names")
	for i, spec := range asked {
		spec["order"] = int64(i + 1)
	}
}

// object returns an object with a spec.
func object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind(kind)
	u.SetName(name)
	if namespace != "" {
		u.SetNamespace(namespace)
	}
	return u
}

// object exports an object of another project.
func (e *exporter) object(u *unstructured.Unstructured) error {
	group := u.GroupVersionKind().Group
	switch {
	case group == "policies.kubewarden.io":
		return e.kubewarden(u)
	case group == "constraints.gatekeeper.sh":
		return e.gatekeeper(u)
	case group == "templates.gatekeeper.sh":
		return nil // The constraints of the template name its module.
	case group == "" && u.GetKind() == "ConfigMap":
		data, _, _ := unstructured.NestedStringMap(u.Object, "data")
		var errs []error
		for _, key := range slices.Sorted(maps.Keys(data)) {
			errs = append(errs, e.config([]byte(data[key])))
		}
		return errors.Join(errs...)
	case group == v1alpha1.GroupVersion.Group:
		return errors.New("it is an object of kubewasm already")
	}
	e.tool.warn(fmt.Sprintf("%s %s declares no plugin and is left out", u.GetKind(), u.GetName()))
	return nil
}

// take removes and returns a member.
func take(from map[string]any, name string) any {
	value := from[name]
	delete(from, name)
	return value
}

// kubewarden exports a policy of Kubewarden.
func (e *exporter) kubewarden(u *unstructured.Unstructured) error {
	kind := u.GetKind()
	if kind != "ClusterAdmissionPolicy" && kind != "AdmissionPolicy" {
		if kind == "PolicyServer" {
			e.tool.warn("PolicyServer " + u.GetName() + " is left out: its place takes kubewasm-webhook, or kubewasm-policy-server under Kubewarden's controller")
			return nil
		}
		return errors.New("there are no objects of groups: declare its members, or keep the group in the file of policies")
	}
	old, _, err := unstructured.NestedMap(u.Object, "spec")
	if err != nil {
		return err
	}
	source, _ := take(old, "module").(string)
	module := map[string]any{}
	if address, ok := strings.CutPrefix(source, "registry://"); ok || source != "" && !strings.Contains(source, "://") {
		module["oci"] = cmp.Or(address, source)
	} else {
		return fmt.Errorf("module %q: push it to a registry by kubewasm push, and name that", source)
	}
	spec := map[string]any{"module": module}
	match := map[string]any{}
	for _, name := range []string{"rules", "matchPolicy", "namespaceSelector", "objectSelector"} {
		if value := take(old, name); value != nil {
			match[name] = value
		}
	}
	spec["match"] = match
	if settings := take(old, "settings"); settings != nil {
		spec["guestConfig"] = settings
	}
	if value := take(old, "failurePolicy"); value != nil {
		spec["failurePolicy"] = value
	}
	if mutating, _ := take(old, "mutating").(bool); mutating {
		spec["allowedToMutate"] = true
	}
	if mode := take(old, "mode"); mode == "monitor" {
		spec["mode"] = "Monitor"
	}
	if seconds, _ := take(old, "timeoutEvalSeconds").(int64); seconds > 0 {
		spec["limits"] = map[string]any{"timeout": fmt.Sprintf("%ds", seconds)}
	}
	if seen, _ := take(old, "contextAwareResources").([]any); len(seen) != 0 {
		if kind == "AdmissionPolicy" {
			return errors.New("contextAwareResources are permissions, which the owner of a namespace does not have: make it a ClusterAdmissionPolicy with a namespaceSelector")
		}
		spec["dialect"] = map[string]any{"kubewarden": map[string]any{
			"contextAwareResources": seen,
			"hostCapabilities":      []any{"kubernetes/get_resource", "kubernetes/list_resources_all", "kubernetes/list_resources_by_namespace"},
		}}
	}
	if conditions, _ := take(old, "matchConditions").([]any); len(conditions) != 0 {
		return errors.New("matchConditions have no equivalent: without them the policy would be asked about more")
	}
	if message := take(old, "message"); message != nil {
		e.tool.warn(fmt.Sprintf("%s %s: message is left out: the policy's own is what users see", kind, u.GetName()))
	}
	for _, name := range []string{"policyServer", "backgroundAudit", "timeoutSeconds"} {
		delete(old, name) // Of Kubewarden's servers, its audit, and its webhooks.
	}
	if len(old) != 0 {
		return fmt.Errorf("%s have no equivalent", strings.Join(slices.Sorted(maps.Keys(old)), ", "))
	}
	return e.add(object(kind, u.GetNamespace(), u.GetName(), spec))
}

// gatekeeper exports a constraint of Gatekeeper, whose template is a module by then.
func (e *exporter) gatekeeper(u *unstructured.Unstructured) error {
	module, ok := e.templates[u.GetKind()]
	if !ok {
		return fmt.Errorf("name the module of its template: --template %s=REFERENCE. docs/kubewarden.md describes how Rego becomes a module", u.GetKind())
	}
	old, _, err := unstructured.NestedMap(u.Object, "spec")
	if err != nil {
		return err
	}
	spec := map[string]any{"module": map[string]any{"oci": module}}
	if parameters := take(old, "parameters"); parameters != nil {
		spec["guestConfig"] = parameters
	}
	switch action, _ := take(old, "enforcementAction").(string); action {
	case "", "deny":
	case "dryrun", "warn":
		spec["mode"] = "Monitor"
		if action == "warn" {
			e.tool.warn(fmt.Sprintf("%s %s: enforcementAction warn becomes Monitor, which logs and warns nobody", u.GetKind(), u.GetName()))
		}
	default:
		return fmt.Errorf("enforcementAction %s has no equivalent", action)
	}
	given, _ := take(old, "match").(map[string]any)
	match, err := gatekeeperMatch(given, e.resources)
	if err != nil {
		return err
	}
	spec["match"] = match
	spec["dialect"] = map[string]any{"rego": map[string]any{"gatekeeper": true}}
	if len(old) != 0 {
		return fmt.Errorf("%s have no equivalent", strings.Join(slices.Sorted(maps.Keys(old)), ", "))
	}
	return e.add(object("ClusterAdmissionPolicy", "", strings.ToLower(u.GetKind())+"-"+u.GetName(), spec))
}

// subresource are subresources about which Gatekeeper's webhook is asked, with objects of a kind that
// is not their resource's own. group is that of the resource.
type subresource struct{ kindGroup, kind, group, name string }

var gatekeeperSubresources = []subresource{
	{"", "Pod", "", "pods/ephemeralcontainers"},
	{"", "Binding", "", "pods/binding"},
	{"", "Service", "", "services/status"},
	{"policy", "Eviction", "", "pods/eviction"},
	{"autoscaling", "Scale", "", "replicationcontrollers/scale"},
	{"autoscaling", "Scale", "apps", "deployments/scale"},
	{"autoscaling", "Scale", "apps", "replicasets/scale"},
	{"autoscaling", "Scale", "apps", "statefulsets/scale"},
}

// resourceOf returns the plural name of a kind, empty for one that has subresources alone. given are
// those that the user names; others are known of Kubernetes' own kinds alone, since the plural of a
// custom resource is any word, and a wrong one matches nothing.
func resourceOf(kind string, groups []string, given pairs) (string, error) {
	if name, ok := given[kind]; ok {
		return name, nil
	}
	known := kind == "CustomResourceDefinition" && slices.Contains(groups, "apiextensions.k8s.io") || kind == "APIService" && slices.Contains(groups, "apiregistration.k8s.io")
	for of := range scheme.Scheme.AllKnownTypes() {
		known = known || of.Kind == kind && of.Version != runtime.APIVersionInternal && (slices.Contains(groups, "*") || slices.Contains(groups, of.Group))
	}
	if !known || strings.HasSuffix(kind, "Options") || strings.HasSuffix(kind, "List") {
		return "", fmt.Errorf("match.kinds has %s of %q, whose resource is not known: name it by --resource %s=PLURAL", kind, strings.Join(groups, ", "), kind)
	}
	if kind == "Scale" || kind == "Eviction" {
		return "", nil
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return plural.Resource, nil
}

// texts returns the strings of a list, which may be missing.
func texts(from map[string]any, name string) (list []string, err error) {
	switch value := take(from, name).(type) {
	case nil:
	case []any:
		for _, v := range value {
			text, ok := v.(string)
			if !ok {
				return nil, fmt.Errorf("match has %v in %s, want strings", v, name)
			}
			list = append(list, text)
		}
	default:
		return nil, fmt.Errorf("match.%s is no list", name)
	}
	return list, nil
}

// gatekeeperRules returns the rules of an entry of match.kinds. Gatekeeper's webhook gets CREATE and
// UPDATE of all resources and of some subresources, and asks the constraints by the kind of the object.
func gatekeeperRules(of map[string]any, operations []string, given pairs) (rules []any, err error) {
	groups, err := texts(of, "apiGroups")
	kinds, wrong := texts(of, "kinds")
	if err := errors.Join(err, wrong); err != nil {
		return nil, err
	}
	if len(of) != 0 {
		return nil, fmt.Errorf("match.kinds[].%s have no equivalent", strings.Join(slices.Sorted(maps.Keys(of)), ", match.kinds[]."))
	}
	if len(groups) == 0 || slices.Contains(groups, "*") {
		groups = []string{"*"}
	}
	if len(kinds) == 0 || slices.Contains(kinds, "*") {
		kinds = []string{"*"}
	}
	var resources []string
	for _, kind := range kinds {
		name := kind
		if kind != "*" {
			if name, err = resourceOf(kind, groups, given); err != nil {
				return nil, err
			}
		}
		if name != "" {
			resources = append(resources, name)
		}
	}
	below := map[string][]string{}
	for _, sub := range gatekeeperSubresources {
		if (kinds[0] == "*" || slices.Contains(kinds, sub.kind)) && (groups[0] == "*" || slices.Contains(groups, sub.kindGroup)) {
			below[sub.group] = append(below[sub.group], sub.name)
		}
	}
	add := func(groups, resources []string) {
		rules = append(rules, map[string]any{"apiGroups": list(groups), "apiVersions": []any{"*"}, "resources": list(resources), "operations": list(operations)})
	}
	if len(groups) == 1 && below[groups[0]] != nil && len(resources) != 0 {
		resources = append(resources, below[groups[0]]...)
		delete(below, groups[0])
	}
	if len(resources) != 0 {
		add(groups, resources)
	}
	for _, group := range slices.Sorted(maps.Keys(below)) {
		add([]string{group}, below[group])
	}
	return rules, nil
}

func list(of []string) (all []any) {
	for _, text := range of {
		all = append(all, text)
	}
	return all
}

// gatekeeperMatch returns the rules and selectors of a constraint's match. resources are the plural
// names of kinds.
func gatekeeperMatch(old map[string]any, resources pairs) (map[string]any, error) {
	operations, err := texts(old, "operations")
	if err != nil {
		return nil, err
	}
	if len(operations) == 0 {
		operations = []string{"CREATE", "UPDATE"}
	}
	kinds, _ := take(old, "kinds").([]any)
	if len(kinds) == 0 {
		kinds = []any{map[string]any{}}
	}
	var rules []any
	for _, entry := range kinds {
		of, _ := entry.(map[string]any)
		some, err := gatekeeperRules(of, operations, resources)
		if err != nil {
			return nil, err
		}
		rules = append(rules, some...)
	}
	if scope, _ := take(old, "scope").(string); scope != "" && scope != "*" {
		for _, r := range rules {
			r.(map[string]any)["scope"] = scope
		}
	}
	match := map[string]any{"rules": rules}
	selector, _ := take(old, "namespaceSelector").(map[string]any)
	for name, operator := range map[string]metav1.LabelSelectorOperator{"namespaces": metav1.LabelSelectorOpIn, "excludedNamespaces": metav1.LabelSelectorOpNotIn} {
		values, err := texts(old, name)
		if err != nil {
			return nil, err
		}
		if len(values) == 0 {
			continue
		}
		for _, text := range values {
			if strings.Contains(text, "*") {
				return nil, fmt.Errorf("match.%s has the pattern %q, and selectors have none: name the namespaces, or select them by a label", name, text)
			}
		}
		if selector == nil {
			selector = map[string]any{}
		}
		expressions, _ := selector["matchExpressions"].([]any)
		selector["matchExpressions"] = append(expressions, map[string]any{"key": "kubernetes.io/metadata.name", "operator": string(operator), "values": list(values)})
	}
	if selector != nil {
		match["namespaceSelector"] = selector
	}
	if labels := take(old, "labelSelector"); labels != nil {
		match["objectSelector"] = labels
	}
	if len(old) != 0 {
		return nil, fmt.Errorf("match.%s have no equivalent", strings.Join(slices.Sorted(maps.Keys(old)), ", match."))
	}
	return match, nil
}

// add adds an object without mistakes, whose name no other has.
func (e *exporter) add(u *unstructured.Unstructured) error {
	if mistakes := mistakesOf(u.DeepCopy()); len(mistakes) != 0 {
		return errors.New(strings.Join(mistakes, "; "))
	}
	name := u.GetKind() + " " + strings.TrimPrefix(u.GetNamespace()+"/"+u.GetName(), "/")
	if e.names[name] {
		return fmt.Errorf("there are two objects %s: one would take the place of the other", name)
	}
	e.names[name] = true
	e.objects = append(e.objects, u.Object)
	return nil
}

// moduleText returns the source of a module in a few words.
func moduleText(config json.RawMessage) string {
	var m struct {
		File, HTTPS, OCI string
		Bytes            string
		ConfigMap        *metav1.ObjectMeta
		Secret           *metav1.ObjectMeta
	}
	if json.Unmarshal(config, &m) != nil {
		return ""
	}
	switch {
	case m.ConfigMap != nil:
		return "ConfigMap " + strings.TrimPrefix(m.ConfigMap.Namespace+"/"+m.ConfigMap.Name, "/")
	case m.Secret != nil:
		return "Secret " + strings.TrimPrefix(m.Secret.Namespace+"/"+m.Secret.Name, "/")
	case m.Bytes != "":
		return "bytes"
	}
	return cmp.Or(m.OCI, m.HTTPS, m.File)
}
