package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// namespace is that of the releases of these tests.
const namespace = "kubewasm"

// examples returns the names of the files in the chart's directory ci.
func examples(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "ci", "*-values.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("files with values are %q, error %v", files, err)
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), "-values.yaml"))
	}
	return names
}

// installed is a decoded rendering.
type installed struct {
	values  map[string]any
	objects []runtime.Object
	notes   string
}

// install renders a file of ci and decodes all of it.
func install(t *testing.T, name string) *installed {
	t.Helper()
	values, err := readValues(name)
	if err != nil {
		t.Fatal(err)
	}
	return installValues(t, values)
}

func installValues(t *testing.T, values map[string]any) *installed {
	t.Helper()
	c, err := load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := release{name: "kubewasm", namespace: namespace}.render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	i := &installed{values: values, notes: r.notes}
	for _, d := range r.documents {
		object, err := decode(d.text)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", d.file, err, d.text)
		}
		i.objects = append(i.objects, object)
	}
	return i
}

// types knows the types of Kubernetes, of cert-manager and of the Prometheus operator.
var types = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, certmanagerv1.AddToScheme, monitoringv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// policyServerFields are the fields of spec that the chart sets, of those that a PolicyServer of
// Kubewarden's controller has.
var policyServerFields = []string{
	"affinity", "env", "image", "imagePullSecret", "insecureSources", "limits", "maxUnavailable", "priorityClassName",
	"replicas", "requests", "securityContexts", "serviceAccountName", "tolerations",
}

// decode decodes an object. A field that its type lacks, or that occurs twice, is an error.
func decode(text string) (runtime.Object, error) {
	var of metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &of); err != nil {
		return nil, err
	}
	if of.Kind == "CustomResourceDefinition" {
		// Its text is that of a generated file, which control planes of tests take.
		object := &unstructured.Unstructured{}
		return object, yaml.UnmarshalStrict([]byte(text), &object.Object)
	}
	if of.Kind == "PolicyServer" {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
			return nil, err
		}
		spec, _, err := unstructured.NestedMap(object.Object, "spec")
		for field := range spec {
			if !slices.Contains(policyServerFields, field) {
				return nil, fmt.Errorf("a PolicyServer has no spec.%s", field)
			}
		}
		return object, err
	}
	decoder := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, types, types, serializer.SerializerOptions{Yaml: true, Strict: true})
	object, _, err := decoder.Decode([]byte(text), nil, nil)
	return object, err
}

// all returns the objects of a type.
func all[T runtime.Object](i *installed) (objects []T) {
	for _, o := range i.objects {
		if o, ok := o.(T); ok {
			objects = append(objects, o)
		}
	}
	return objects
}

// workload is what runs Pods.
type workload struct {
	metav1.Object
	kind      string
	component string
	selector  *metav1.LabelSelector
	template  corev1.PodTemplateSpec
}

func (w *workload) container() *corev1.Container { return &w.template.Spec.Containers[0] }

func (i *installed) workloads() (list []*workload) {
	for _, o := range i.objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			list = append(list, &workload{o, "Deployment", o.Labels["app.kubernetes.io/component"], o.Spec.Selector, o.Spec.Template})
		case *appsv1.DaemonSet:
			list = append(list, &workload{o, "DaemonSet", o.Labels["app.kubernetes.io/component"], o.Spec.Selector, o.Spec.Template})
		}
	}
	return list
}

func TestLint(t *testing.T) {
	version, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			values, err := readValues(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, message := range lint.RunAll(chartDir, values, namespace, lint.WithKubeVersion(version)).Messages {
				if message.Severity > 1 { // 1 is a recommendation, such as an icon.
					t.Error(message)
				}
			}
		})
	}
}

// TestManifestsAreCurrent compares charts/manifests with a rendering.
func TestManifestsAreCurrent(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	read := func(dir string) map[string]string {
		files := map[string]string{}
		names, err := filepath.Glob(filepath.Join(dir, "*", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[strings.TrimPrefix(name, dir)] = string(text)
		}
		return files
	}
	if diff := cmp.Diff(read(dir), read(manifestsDir)); diff != "" {
		t.Errorf("charts/manifests is out of date: run make generate (-want +got)\n%s", diff)
	}
}

// TestObjectsFitTogether holds for each file of values that Pods find what they mount, that
// selectors select, and that roles and accounts are bound.
func TestObjectsFitTogether(t *testing.T) {
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			i := install(t, name)
			if strings.TrimSpace(i.notes) == "" {
				t.Error("there are no notes")
			}
			i.checkNames(t)
			i.checkRights(t)
			for _, w := range i.workloads() {
				i.checkVolumes(t, w)
				i.checkSelectors(t, w)
				checkProbes(t, w)
			}
		})
	}
}

// checkNames finds objects that occur twice, and objects in wrong namespaces.
func (i *installed) checkNames(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range i.objects {
		m := o.(metav1.Object)
		kind := o.GetObjectKind().GroupVersionKind().Kind
		id := kind + " " + m.GetNamespace() + "/" + m.GetName()
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
		cluster := strings.HasPrefix(kind, "Cluster") || strings.HasPrefix(kind, "Validating") || strings.HasPrefix(kind, "Mutating") || kind == "PolicyServer" || kind == "CustomResourceDefinition"
		if cluster != (m.GetNamespace() == "") {
			t.Errorf("%s is in the wrong place", id)
		}
	}
}

// checkRights finds roles without bindings, bindings without roles, and rights that are too wide.
func (i *installed) checkRights(t *testing.T) {
	accounts, roles, bound := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, a := range all[*corev1.ServiceAccount](i) {
		accounts[a.Name] = true
	}
	mounted := map[string]bool{}
	for _, w := range i.workloads() {
		for _, v := range w.template.Spec.Volumes {
			if v.Secret != nil {
				mounted[v.Secret.SecretName] = true
			}
		}
		if !accounts[w.template.Spec.ServiceAccountName] {
			t.Errorf("%s runs as %s, which does not exist", w.GetName(), w.template.Spec.ServiceAccountName)
		}
	}
	check := func(of string, rules []rbacv1.PolicyRule) {
		for _, r := range rules {
			for _, resource := range r.Resources {
				if resource == "*" || strings.HasPrefix(resource, "nodes/") && resource != "nodes/pods" || resource == "secrets" && len(r.ResourceNames) == 0 {
					t.Errorf("%s has %s", of, resource)
				}
				for _, secret := range r.ResourceNames {
					if resource == "secrets" && (mounted[secret] || strings.HasSuffix(secret, "-ca")) {
						t.Errorf("%s reads the Secret %s", of, secret)
					}
				}
			}
			if slices.Contains(r.Verbs, "*") || slices.Contains(r.APIGroups, "*") {
				t.Errorf("%s has %v", of, r)
			}
		}
	}
	for _, r := range all[*rbacv1.ClusterRole](i) {
		roles["ClusterRole /"+r.Name] = true
		check(r.Name, r.Rules)
	}
	for _, r := range all[*rbacv1.Role](i) {
		roles["Role "+r.Namespace+"/"+r.Name] = true
		check(r.Name, r.Rules)
	}
	bind := func(name, namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		key := ref.Kind + " " + namespace + "/" + ref.Name
		bound[key] = true
		if !roles[key] && !strings.HasPrefix(ref.Name, "system:") && ref.Name != "extension-apiserver-authentication-reader" {
			t.Errorf("%s binds %s, which does not exist", name, key)
		}
		if len(subjects) != 1 || !accounts[subjects[0].Name] && !strings.HasSuffix(name, ":metrics") {
			t.Errorf("%s binds %v", name, subjects)
		}
	}
	for _, b := range all[*rbacv1.ClusterRoleBinding](i) {
		bind(b.Name, "", b.RoleRef, b.Subjects)
	}
	for _, b := range all[*rbacv1.RoleBinding](i) {
		bind(b.Name, b.Namespace, b.RoleRef, b.Subjects)
	}
	// These are for people: the cluster's own roles aggregate two, and whoever installs binds the third.
	people := []string{"ClusterRole /kubewasm-author", "ClusterRole /kubewasm-viewer", "ClusterRole /kubewasm-operator"}
	for role := range roles {
		if !bound[role] && !slices.Contains(people, role) {
			t.Errorf("%s is not bound", role)
		}
	}
}

// checkVolumes finds mounts without volumes, volumes without mounts, and ConfigMaps and Secrets that
// neither the chart nor its values name.
func (i *installed) checkVolumes(t *testing.T, w *workload) {
	values, err := json.Marshal(i.values)
	if err != nil {
		t.Fatal(err)
	}
	known := func(name string) bool {
		return slices.ContainsFunc(i.objects, func(o runtime.Object) bool {
			m := o.(metav1.Object)
			switch o := o.(type) {
			case *corev1.ConfigMap, *corev1.Secret:
				return m.GetName() == name
			case *certmanagerv1.Certificate:
				return o.Spec.SecretName == name
			}
			return false
		}) || bytes.Contains(values, fmt.Appendf(nil, "%q", name))
	}
	unmounted := map[string]bool{}
	for _, v := range w.template.Spec.Volumes {
		unmounted[v.Name] = true
		if v.ConfigMap != nil && !known(v.ConfigMap.Name) || v.Secret != nil && !known(v.Secret.SecretName) {
			t.Errorf("%s: nothing makes what the volume %s holds", w.GetName(), v.Name)
		}
	}
	paths := map[string]bool{}
	for _, m := range w.container().VolumeMounts {
		if _, ok := unmounted[m.Name]; !ok || paths[m.MountPath] {
			t.Errorf("%s mounts %s at %s, which is no volume, or was mounted", w.GetName(), m.Name, m.MountPath)
		}
		unmounted[m.Name], paths[m.MountPath] = false, true
	}
	for name, un := range unmounted {
		if un {
			t.Errorf("%s does not mount %s", w.GetName(), name)
		}
	}
}

// checkSelectors finds selectors that do not select the Pods.
func (i *installed) checkSelectors(t *testing.T, w *workload) {
	pod := labels.Set(w.template.Labels)
	selects := func(s *metav1.LabelSelector) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		return !selector.Empty() && selector.Matches(pod)
	}
	if !selects(w.selector) {
		t.Errorf("%s does not select its Pods", w.GetName())
	}
	for _, c := range w.template.Spec.TopologySpreadConstraints {
		if !selects(c.LabelSelector) {
			t.Errorf("%s: a constraint selects other Pods", w.GetName())
		}
	}
	if !w.template.Spec.HostNetwork && !slices.ContainsFunc(all[*networkingv1.NetworkPolicy](i), func(p *networkingv1.NetworkPolicy) bool {
		return selects(&p.Spec.PodSelector) && len(p.Spec.PolicyTypes) == 2
	}) {
		t.Errorf("no NetworkPolicy selects %s", w.GetName())
	}
	// The Pods of another program are not selected.
	for _, other := range i.workloads() {
		if other.component != w.component && selects(other.selector) {
			t.Errorf("%s selects the Pods of %s", other.GetName(), w.GetName())
		}
	}
	for _, s := range all[*corev1.Service](i) {
		if s.Name == w.GetName() && !selects(&metav1.LabelSelector{MatchLabels: s.Spec.Selector}) {
			t.Errorf("the Service %s selects other Pods", s.Name)
		}
	}
}

// checkProbes finds probes of ports that the container does not name.
func checkProbes(t *testing.T, w *workload) {
	c := w.container()
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if probe == nil {
			t.Errorf("%s has no %s probe", w.GetName(), name)
			continue
		}
		var port intstr.IntOrString
		if probe.HTTPGet != nil {
			port = probe.HTTPGet.Port
		} else {
			port = probe.TCPSocket.Port
		}
		if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal }) {
			t.Errorf("%s: the %s probe asks the port %s", w.GetName(), name, port.String())
		}
	}
	// Fifty modules in Go compile for a second of a processor each.
	if s := c.StartupProbe; s.PeriodSeconds*s.FailureThreshold < 300 {
		t.Errorf("%s has %d seconds to start", w.GetName(), s.PeriodSeconds*s.FailureThreshold)
	}
}

// TestAvailability holds what keeps the programs available, for the default values.
func TestAvailability(t *testing.T) {
	i := install(t, "all")
	for _, w := range i.workloads() {
		class := "system-cluster-critical"
		if w.component == "agent" {
			class = "system-node-critical"
		}
		if got := w.template.Spec.PriorityClassName; got != class {
			t.Errorf("%s has the priority class %s, want %s", w.GetName(), got, class)
		}
		if w.kind != "Deployment" {
			continue
		}
		zones := slices.ContainsFunc(w.template.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
			return c.TopologyKey == corev1.LabelTopologyZone
		})
		if !zones {
			t.Errorf("%s is not spread by zone", w.GetName())
		}
		budgets := slices.DeleteFunc(all[*policyv1.PodDisruptionBudget](i), func(b *policyv1.PodDisruptionBudget) bool { return b.Name != w.GetName() })
		if len(budgets) != 1 {
			t.Errorf("%s has %d PodDisruptionBudgets", w.GetName(), len(budgets))
		}
	}
	for _, d := range all[*appsv1.Deployment](i) {
		rolling := d.Spec.Strategy.RollingUpdate
		if *d.Spec.Replicas < 2 || rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() < 1 {
			t.Errorf("%s has %d replicas and rolls by %+v", d.Name, *d.Spec.Replicas, rolling)
		}
	}
	for _, d := range all[*appsv1.DaemonSet](i) {
		if m := d.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; m.Type != intstr.String || !strings.HasSuffix(m.StrVal, "%") {
			t.Errorf("%s rolls by %s", d.Name, m)
		}
	}
}

// TestWebhooksLeaveNoDoorOpen holds what the API server does not send.
func TestWebhooksLeaveNoDoorOpen(t *testing.T) {
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			i := install(t, name)
			for _, w := range i.webhooks() {
				if w.MatchPolicy == nil || *w.MatchPolicy != admissionregistrationv1.Equivalent {
					t.Errorf("%s has the matchPolicy %v", w.Name, w.MatchPolicy)
				}
				if w.ObjectSelector != nil {
					t.Errorf("%s selects objects by what their authors write: %v", w.Name, w.ObjectSelector)
				}
				if n := w.NamespaceSelector; len(n.MatchLabels) != 0 || len(n.MatchExpressions) == 0 {
					t.Errorf("%s selects namespaces by %v", w.Name, n)
				}
				for _, e := range w.NamespaceSelector.MatchExpressions {
					if e.Key != corev1.LabelMetadataName {
						t.Errorf("%s selects namespaces by the label %s, which their owners set", w.Name, e.Key)
					}
				}
				if e := w.NamespaceSelector.MatchExpressions[0]; e.Operator != metav1.LabelSelectorOpNotIn || !slices.Contains(e.Values, namespace) {
					t.Errorf("%s asks the program about its own namespace: %v", w.Name, e)
				}
				for _, c := range w.MatchConditions {
					// An object that is being deleted is asked about, unless finalizers alone go away.
					if strings.Contains(c.Expression, "deletionTimestamp") && !strings.Contains(c.Expression, "oldObject.all(k, k in object)") {
						t.Errorf("%s lets objects pass that are being deleted: %s", w.Name, c.Expression)
					}
				}
			}
		})
	}
}

// webhooks returns all webhooks as validating ones.
func (i *installed) webhooks() (list []admissionregistrationv1.ValidatingWebhook) {
	for _, c := range all[*admissionregistrationv1.ValidatingWebhookConfiguration](i) {
		list = append(list, c.Webhooks...)
	}
	for _, c := range all[*admissionregistrationv1.MutatingWebhookConfiguration](i) {
		for _, m := range c.Webhooks {
			list = append(list, admissionregistrationv1.ValidatingWebhook{
				Name: m.Name, ClientConfig: m.ClientConfig, Rules: m.Rules, FailurePolicy: m.FailurePolicy, MatchPolicy: m.MatchPolicy, NamespaceSelector: m.NamespaceSelector,
				ObjectSelector: m.ObjectSelector, MatchConditions: m.MatchConditions,
			})
		}
	}
	return list
}

// TestObservability holds that dashboards and alerts come from files, none of them from none.
func TestObservability(t *testing.T) {
	values, err := readValues("all")
	if err != nil {
		t.Fatal(err)
	}
	c, err := load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	count := func() (kinds [2]int) {
		r, err := release{name: "kubewasm", namespace: namespace}.render(c, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.documents {
			if d.file != "observability.yaml" {
				continue
			}
			object, err := decode(d.text)
			if err != nil {
				t.Fatal(err)
			}
			switch o := object.(type) {
			case *corev1.ConfigMap:
				kinds[0]++
				if o.Namespace != "monitoring" || o.Labels["grafana_dashboard"] != "1" {
					t.Errorf("%+v", o.ObjectMeta)
				}
				for name, text := range o.Data {
					if !json.Valid([]byte(text)) {
						t.Errorf("%s is no JSON", name)
					}
				}
			case *monitoringv1.PrometheusRule:
				kinds[1]++
			default:
				t.Errorf("a %T", o)
			}
		}
		return kinds
	}
	// Without the files of the chart, and with two of a test.
	c.Files = nil
	if got := count(); got != [2]int{} {
		t.Errorf("without files there are %d dashboards and %d rules", got[0], got[1])
	}
	for name, text := range map[string]string{
		"files/dashboards/webhook.json":       `{"title": "Webhook {{ $labels.plugin }}", "panels": []}`,
		"files/dashboards/policy_server.json": `{"title": "Policy server"}`,
		"files/alerts.yaml":                   "groups:\n- name: kubewasm\n  rules:\n  - alert: A\n    expr: up == 0\n    annotations: {summary: '{{ $labels.instance }} is away'}\n",
	} {
		c.Files = append(c.Files, &common.File{Name: name, Data: []byte(text)})
	}
	if got := count(); got != [2]int{2, 1} {
		t.Errorf("there are %d dashboards and %d rules, want 2 and 1", got[0], got[1])
	}
}

// TestDefaultsAreDescribed holds that each value has a type in values.schema.json, so that no value
// can be added without one.
func TestDefaultsAreDescribed(t *testing.T) {
	var schema map[string]any
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if text, err = os.ReadFile(filepath.Join(chartDir, "values.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	var compare func(at string, values map[string]any, schema map[string]any)
	compare = func(at string, values map[string]any, schema map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			schema = definition(t, text, ref)
		}
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			return // A map of the user's own.
		}
		var missing []string
		for name, value := range values {
			of, ok := properties[name].(map[string]any)
			if !ok {
				missing = append(missing, at+name)
				continue
			}
			if inner, ok := value.(map[string]any); ok {
				compare(at+name+".", inner, of)
			}
		}
		for name := range properties {
			if _, ok := values[name]; !ok && at+name != "global" && !reflect.DeepEqual(schema["additionalProperties"], true) && !optional(at) {
				missing = append(missing, at+name+" (no default)")
			}
		}
		slices.Sort(missing)
		if len(missing) != 0 {
			t.Errorf("values.yaml and values.schema.json differ in %s", strings.Join(missing, ", "))
		}
	}
	compare("", values, schema)
}

// optional reports whether the members of a value have no defaults.
func optional(at string) bool {
	return slices.Contains([]string{"registries.config.", "certificates.certManager.issuerRef."}, at)
}

// definition returns a definition of values.schema.json.
func definition(t *testing.T, _ []byte, ref string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	return schema.Defs[strings.TrimPrefix(ref, "#/$defs/")]
}
