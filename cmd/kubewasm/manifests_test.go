package main

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/sched"
)

var update = flag.Bool("update", false, "write testdata/manifests")

// manifestsOf runs the command, and returns its documents, which the types of Kubernetes have
// decoded strictly.
func manifestsOf(t *testing.T, args ...string) []runtime.Object {
	t.Helper()
	code, out, stderr := kubewasm(t, append([]string{"manifests"}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for document := range strings.SplitSeq(out, "\n---\n") {
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects
}

// kept compares the output with a file, which tests of the components load as well.
func kept(t *testing.T, name string, args ...string) {
	t.Helper()
	_, out, _ := kubewasm(t, append([]string{"manifests"}, args...)...)
	path := filepath.Join("testdata", "manifests", name)
	if *update {
		if err := os.WriteFile(path, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out); diff != "" {
		t.Errorf("%s (-want +got), and -update writes it:\n%s", path, diff)
	}
}

// rulesAsText returns rules in an order that does not matter.
func rulesAsText(rules []admissionregistrationv1.RuleWithOperations) (texts []string) {
	for i := range rules {
		texts = append(texts, rules[i].String())
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

func TestManifestsOfPolicies(t *testing.T) {
	args := []string{"--objects", "networking.k8s.io/v1/ingresses", "../../examples/admission/required-labels", "../../examples/admission/resource-defaults", "../../examples/admission/unique-hosts"}
	objects := manifestsOf(t, args...)
	var file *manage.File
	var validating *admissionregistrationv1.ValidatingWebhookConfiguration
	var mutating *admissionregistrationv1.MutatingWebhookConfiguration
	var role *rbacv1.ClusterRole
	var binding *rbacv1.ClusterRoleBinding
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.ConfigMap:
			var err error
			if file, err = manage.ParseFile([]byte(o.Data["policies.yaml"])); err != nil {
				t.Fatal(err)
			}
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			validating = o
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			mutating = o
		case *rbacv1.ClusterRole:
			role = o
		case *rbacv1.ClusterRoleBinding:
			binding = o
		default:
			t.Errorf("got a %T", o)
		}
	}
	if file == nil || validating == nil || mutating == nil || role == nil || binding == nil {
		t.Fatalf("got %T", objects)
	}
	var asked, changed []admissionregistrationv1.RuleWithOperations
	var names []string
	for _, p := range file.Plugins {
		names = append(names, p.Name)
		if p.Match.MatchPolicy != admissionregistrationv1.Equivalent {
			t.Errorf("%s: matchPolicy is %s", p.Name, p.Match.MatchPolicy)
		}
		if p.AllowedToMutate {
			changed = append(changed, p.Match.Rules...)
		} else {
			asked = append(asked, p.Match.Rules...)
		}
		if looks := p.Name == "unique-hosts"; looks != (len(p.Objects) != 0) {
			t.Errorf("%s may look up %v", p.Name, p.Objects)
		}
	}
	if diff := cmp.Diff([]string{"required-labels", "resource-defaults", "unique-hosts"}, names); diff != "" {
		t.Errorf("policies (-want +got):\n%s", diff)
	}
	exempt := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"kube-system", "kubewasm-webhook"}},
	}}
	for what, got := range map[string]struct {
		rules, want []admissionregistrationv1.RuleWithOperations
		policy      *admissionregistrationv1.MatchPolicyType
		failure     *admissionregistrationv1.FailurePolicyType
		namespaces  *metav1.LabelSelector
		objects     *metav1.LabelSelector
		conditions  int
	}{
		"validating": {validating.Webhooks[0].Rules, asked, validating.Webhooks[0].MatchPolicy, validating.Webhooks[0].FailurePolicy, validating.Webhooks[0].NamespaceSelector, validating.Webhooks[0].ObjectSelector, len(validating.Webhooks[0].MatchConditions)},
		"mutating":   {mutating.Webhooks[0].Rules, changed, mutating.Webhooks[0].MatchPolicy, mutating.Webhooks[0].FailurePolicy, mutating.Webhooks[0].NamespaceSelector, mutating.Webhooks[0].ObjectSelector, len(mutating.Webhooks[0].MatchConditions)},
	} {
		if diff := cmp.Diff(rulesAsText(got.want), rulesAsText(got.rules)); diff != "" || len(got.rules) == 0 {
			t.Errorf("%s: rules (-policies +webhook):\n%s", what, diff)
		}
		if *got.policy != admissionregistrationv1.Equivalent || *got.failure != admissionregistrationv1.Fail || got.objects != nil || got.conditions != 0 {
			t.Errorf("%s: %+v", what, got)
		}
		if diff := cmp.Diff(exempt, got.namespaces); diff != "" {
			t.Errorf("%s: namespaces (-want +got):\n%s", what, diff)
		}
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses"}, Verbs: []string{"list", "watch"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" || binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != "kubewasm-webhook" || binding.Subjects[0].Namespace != "kubewasm-webhook" {
		t.Errorf("rights of %v (-want +got):\n%s", binding, diff)
	}
	kept(t, "policies.yaml", args...)

	t.Run("the policies load with what is written", func(t *testing.T) {
		engine := admission.NewEngine()
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer rt.Close(t.Context())
		for i, dir := range args[2:] {
			file.Plugins[i].Module = host.ModuleConfig{File: built(t, dir)}
		}
		_, cluster, err := clusterOf(&manifest.Objects{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := manage.New(t.Context(), manage.Config{Runtime: rt, Engine: engine, Cluster: cluster})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close(t.Context())
		if err := m.Apply(t.Context(), file); err != nil {
			t.Error(err)
		}
	})
	t.Run("JSON is a List, and a part stands alone", func(t *testing.T) {
		_, out, _ := kubewasm(t, append([]string{"manifests", "-o", "json"}, args...)...)
		var list struct {
			Kind  string
			Items []metav1.TypeMeta
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil || list.Kind != "List" || len(list.Items) != len(objects) {
			t.Errorf("%v: %s", err, out)
		}
		to := filepath.Join(t.TempDir(), "policies.yaml")
		if code, _, stderr := kubewasm(t, append([]string{"manifests", "--only", "config", "--output-file", to}, args...)...); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		if _, err := readPolicies(to); err != nil {
			t.Error(err)
		}
	})
}

func TestManifestsOfAKubewardenPolicy(t *testing.T) {
	module := policy(t, "kubewarden/policy.c", `{"mutating": true, "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}], "contextAwareResources": [{"apiVersion": "apps/v1", "kind": "Deployment"}]}`)
	objects := manifestsOf(t, "--config", file(t, "c.yaml", "labels: [team]"), "--namespace", "shop", module)
	file, err := manage.ParseFile([]byte(objects[0].(*corev1.ConfigMap).Data["policies.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	p := file.Plugins[0]
	_, own, err := p.Dialect.Decode(dialects(nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	scope, ok := own.(*capabilities.Scope)
	if !ok || !p.AllowedToMutate || string(p.GuestConfig) != `{"labels":["team"]}` || len(scope.HostCapabilities) != 3 {
		t.Fatalf("got %+v", p)
	}
	if diff := cmp.Diff([]capabilities.Kind{{APIVersion: "apps/v1", Kind: "Deployment"}}, scope.ContextAwareResources); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	want := []rbacv1.PolicyRule{{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get", "list", "watch"}}}
	if diff := cmp.Diff(want, objects[1].(*rbacv1.ClusterRole).Rules); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	w := objects[3].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks[0]
	if diff := cmp.Diff(p.Match.Rules, w.Rules); diff != "" || w.ClientConfig.Service.Namespace != "shop" || len(objects) != 4 {
		t.Errorf("%d documents, service %+v, rules (-policy +webhook):\n%s", len(objects), w.ClientConfig.Service, diff)
	}
}

// TestManifestsOfAPluginThatPreempts holds that it takes the place of DefaultPreemption.
func TestManifestsOfAPluginThatPreempts(t *testing.T) {
	objects := manifestsOf(t, "--objects", "v1/pods", "--objects", "scheduling.x-k8s.io/v1alpha1/elasticquotas", "../../examples/sched/capacity")
	var got struct {
		Profiles []struct {
			Plugins map[string]any `json:"plugins"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal([]byte(objects[0].(*corev1.ConfigMap).Data["scheduler.yaml"]), &got); err != nil {
		t.Fatal(err)
	}
	capacity := []any{map[string]any{"name": "capacity"}}
	want := map[string]any{
		"multiPoint": map[string]any{"enabled": capacity},
		"postFilter": map[string]any{"enabled": capacity, "disabled": []any{map[string]any{"name": "*"}}},
	}
	if diff := cmp.Diff(want, got.Profiles[0].Plugins); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
}

func TestManifestsOfASchedulerPlugin(t *testing.T) {
	args := []string{"--modules", "/plugins", "testdata/zone", "testdata/grants"}
	objects := manifestsOf(t, args...)
	var cfg struct {
		Profiles []struct {
			SchedulerName string `json:"schedulerName"`
			PluginConfig  []struct {
				Name string               `json:"name"`
				Args runtime.RawExtension `json:"args"`
			} `json:"pluginConfig"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal([]byte(objects[0].(*corev1.ConfigMap).Data["scheduler.yaml"]), &cfg); err != nil || len(objects) != 1 {
		t.Fatalf("%v: %v", err, objects)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	for i, p := range cfg.Profiles[0].PluginConfig {
		raw := strings.ReplaceAll(string(p.Args.Raw), "/plugins/"+p.Name+".wasm", built(t, args[2+i]))
		plugin, err := sched.LoadArgs(t.Context(), rt, p.Name, &runtime.Unknown{Raw: []byte(raw)}, framework.Of(&framework.Handle{Informers: framework.NewInformers()}))
		if err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		plugin.Close(t.Context())
	}
	kept(t, "scheduler.yaml", args...)
}

// TestManifestsOfAHook compares with a file that the agent's tests load.
func TestManifestsOfAHook(t *testing.T) {
	args := []string{"--objects", "slo.koordinator.sh/v1alpha1/nodeslos", "testdata/hook", "../../examples/hooks/share-pools"}
	objects := manifestsOf(t, args...)
	if len(objects) != 3 {
		t.Errorf("%d documents", len(objects))
	}
	kept(t, "hooks.yaml", args...)
}

func TestManifestsThatCannotBeWritten(t *testing.T) {
	zone, grants := built(t, "testdata/zone"), built(t, "testdata/hook")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no module":                                {nil, "manifests: an argument is missing: name a module"},
		"modules of two kinds":                     {[]string{zone, grants}, "it is a plugin of kind hook, and zone is one of kind scheduler: write their manifests one by one"},
		"a policy that declares no requests":       {[]string{"testdata/undeclared"}, `the module does not declare which requests it is for: say it with --match, as in --match "CREATE,UPDATE pods deployments.apps"`},
		"a policy that looks up what is not named": {[]string{"../../examples/admission/unique-hosts"}, "the plugin unique-hosts looks objects up: name their resources with --objects, as in networking.k8s.io/v1/ingresses"},
		"objects for a plugin that asks for none":  {[]string{"--objects", "v1/pods", zone}, "--objects: no plugin looks objects up by the ABI"},
		"objects that are none":                    {[]string{"--objects", "pods", zone}, `--objects: objects: "pods" is not version/resource`},
		"rules for a scheduler plugin":             {[]string{"--match", "CREATE pods", zone}, "--match is for admission plugins"},
		"rules without resources":                  {[]string{"--match", "CREATE", zone}, `--match: "CREATE" is not operations and resources, as in CREATE,UPDATE pods`},
		"rules with an operation that is none":     {[]string{"--match", "create pods", zone}, `operations has "create", want CREATE, UPDATE, DELETE, CONNECT or *`},
		"a part that is none":                      {[]string{"--only", "role", zone}, `--only is "role", want config, webhook or rbac`},
		"a configuration for two":                  {[]string{"--config", "c.yaml", zone, zone}, "--config is for one module"},
		"one plugin twice":                         {[]string{zone, zone}, "there are two plugins zone"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, out, stderr := kubewasm(t, append([]string{"manifests"}, test.args...)...); code != 1 || out != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("exit code %d: %s%s\nwant %s", code, out, stderr, test.want)
			}
		})
	}
}

// TestNamesAreThoseOfTheChart holds that what manifests writes fits the objects of charts/manifests.
func TestNamesAreThoseOfTheChart(t *testing.T) {
	for _, c := range components {
		program := map[abi.Kind]string{abi.KindAdmission: "webhook", abi.KindScheduler: "scheduler", abi.KindHook: "agent"}[c.kind]
		text, err := os.ReadFile("../../charts/manifests/" + program + "/" + program + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			var object struct {
				Kind     string
				Metadata metav1.ObjectMeta
				Data     map[string]string
			}
			if err := yaml.Unmarshal([]byte(document), &object); err != nil {
				t.Fatal(err)
			}
			if object.Kind == "ServiceAccount" && object.Metadata.Name == c.account || object.Kind == "ConfigMap" && object.Metadata.Name == c.configMap && object.Data[c.key] != "" {
				found[object.Kind] = object.Metadata.Namespace == c.namespace
			}
		}
		if !found["ServiceAccount"] || !found["ConfigMap"] || !strings.Contains(string(text), c.modules+"/") {
			t.Errorf("%s: the manifests have of its names %v", program, found)
		}
	}
}
