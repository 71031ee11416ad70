package admission_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	arv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// objects are the objects of the cluster that declare policies.
type objects struct {
	*fixture
	client dynamic.Interface
}

// resource returns the client of a kind.
func (o *objects) resource(kind, namespace string) dynamic.ResourceInterface {
	plural := map[string]string{"ClusterAdmissionPolicy": "clusteradmissionpolicies", "AdmissionPolicy": "admissionpolicies", "NodeHook": "nodehooks", "PluginReport": "pluginreports"}[kind]
	of := o.client.Resource(v1alpha1.GroupVersion.WithResource(plural))
	if namespace != "" {
		return of.Namespace(namespace)
	}
	return of
}

// apply applies an object of a kind whose spec is in YAML, which unknown fields keep it from.
func (o *objects) apply(t *testing.T, kind, namespace, name, spec string) error {
	t.Helper()
	text := fmt.Sprintf("apiVersion: kubewasm.dev/v1alpha1\nkind: %s\nmetadata: {name: %s}\nspec: {%s}\n", kind, name, spec)
	object := new(unstructured.Unstructured)
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	as, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	_, err = o.resource(kind, namespace).Patch(t.Context(), name, "application/apply-patch+yaml", as, metav1.PatchOptions{FieldManager: "test", Force: new(true), FieldValidation: metav1.FieldValidationStrict})
	return err
}

// report returns the states of the policies in the only report: "kind name generation state: message".
func (o *objects) report(t *testing.T) map[string]string {
	t.Helper()
	list, err := o.resource("PluginReport", "").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for i := range list.Items {
		var report v1alpha1.PluginReport
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(list.Items[i].Object, &report, true); err != nil {
			t.Fatal(err)
		}
		if report.Component != "kubewasm-webhook" || report.Engine == "" || int(report.Serving+report.Others) != len(report.Plugins) {
			t.Errorf("the report is %+v", report)
		}
		for _, p := range report.Plugins {
			key := p.Kind + " " + strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
			states[key] = strings.TrimSuffix(fmt.Sprintf("%d %s: %s", p.Generation, p.State, p.Message), ": ")
			if p.State == "Serving" && (len(p.Digest) != 64 || p.Since == nil || p.Reference == "") {
				t.Errorf("%s: %+v", key, p)
			}
		}
	}
	return states
}

// wantReport waits until the report has states whose texts begin with those wanted.
func (o *objects) wantReport(t *testing.T, want map[string]string) {
	t.Helper()
	var got map[string]string
	defer func() {
		if t.Failed() {
			t.Logf("the report has %v", got)
		}
	}()
	eventually(t, fmt.Sprintf("a report of %v", want), func() bool {
		got = o.report(t)
		if len(got) != len(want) {
			return false
		}
		for key, state := range want {
			if !strings.HasPrefix(got[key], state) {
				return false
			}
		}
		return true
	})
}

// testObjects: policies that objects of the cluster declare, in the built program.
func (f *fixture) testObjects(t *testing.T) {
	client, err := dynamic.NewForConfig(f.Config)
	if err != nil {
		t.Fatal(err)
	}
	o := &objects{f, client}
	crds, err := filepath.Glob("../../../../charts/kubewasm/files/crds/*.yaml")
	if err != nil || len(crds) < 4 {
		t.Fatalf("there are %d CRDs, error %v", len(crds), err)
	}
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, file := range crds {
		for _, object := range documents(t, file) {
			if _, err := definitions.Create(t.Context(), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	says := func(word string) string {
		return "bytes: " + base64.StdEncoding.EncodeToString(denier(word))
	}
	eventually(t, "the resources", func() bool {
		err := o.apply(t, "ClusterAdmissionPolicy", "", "probe", "module: {"+says("prob")+"}")
		return err == nil && o.resource("ClusterAdmissionPolicy", "").Delete(t.Context(), "probe", metav1.DeleteOptions{}) == nil
	})
	for _, kind := range []string{"ClusterAdmissionPolicy", "AdmissionPolicy", "NodeHook"} {
		namespace := ""
		if kind == "AdmissionPolicy" {
			namespace = "shop"
		}
		for _, c := range []struct{ name, spec, want string }{
			{"a", "mode: Monitor", "spec.module: Required value"},
			{"a", "module: {}", "is to be set"},
			{"a", `module: {oci: "a:1", bytes: AA==}`, "is to be set"},
			{"a", `module: {oci: "a:1", follow: true, sha256: ` + strings.Repeat("a", 64) + "}", "follow and sha256 exclude each other"},
			{"a", `module: {oci: "a:1", sha256: abc}`, "spec.module.sha256"},
			{"a", `module: {oci: "a:1"}, mode: "Off"`, `Unsupported value: "Off"`},
			{"a", `module: {oci: "a:1"}, limits: {timeout: 5}`, "spec.limits.timeout"},
			{"a", `module: {oci: "a:1"}, limits: {memoryBytes: 64Mb}`, "spec.limits.memoryBytes"},
			{"a", `module: {oci: "a:1"}, moode: Monitor`, ".spec.moode: field not declared in schema"},
			{"a", `module: {oci: "a:1"}, name: b`, ".spec.name: field not declared in schema"},
			{"a", `module: {oci: "a:1"}, shadow: {module: {}}`, "spec.shadow.module"},
			{strings.Repeat("a", 64), `module: {oci: "a:1"}`, "a name has at most 63 characters"},
		} {
			if err := o.apply(t, kind, namespace, c.name, c.spec); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s {%s}: %v, want %s", kind, c.spec, err, c.want)
			}
		}
	}
	for _, spec := range []string{"module: {file: /a.wasm}", `module: {https: "https://a/b"}`, `module: {oci: "a:1"}, grants: [clock]`, `module: {oci: "a:1", compiled: [a]}`} {
		if err := o.apply(t, "AdmissionPolicy", "shop", "a", spec); err == nil || !strings.Contains(err.Error(), "field not declared in schema") {
			t.Errorf("an AdmissionPolicy {%s}: %v", spec, err)
		}
	}

	// The file has one of the names, and takes precedence.
	config := filepath.Join(f.dir, "beside.yaml")
	replace(t, config, fmt.Appendf(nil, "plugins: [{name: beside, module: {bytes: %s}, match: {objectSelector: {matchLabels: {ask: file}}}}]\n", base64.StdEncoding.EncodeToString(denier("file"))))
	t.Setenv("POD_NAMESPACE", "shop")
	t.Setenv("POD_NAME", "webhook-0")
	url := "https://" + f.programWith(t, "-config", config, "-cluster", "-kubeconfig", f.Kubeconfig, "-interval", "100ms") + "/validate"
	f.validating(t, "", func(w *arv1.ValidatingWebhook) {
		w.ClientConfig.URL, w.NamespaceSelector = &url, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "kubernetes.io/metadata.name", Operator: "In", Values: []string{"shop", "other"}}}}
	})
	if _, err := f.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create := func(namespace, ask string) string {
		p := pod("x")
		p.Namespace, p.Labels = namespace, map[string]string{"ask": ask}
		if _, err := f.Client.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			return strings.TrimPrefix(err.Error(), `admission webhook "validate.kubewasm.dev" denied the request: `)
		}
		return ""
	}
	want := func(namespace, ask, word string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%q for %s in %s", word, ask, namespace), func() bool { return create(namespace, ask) == word })
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const pods = `rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]`
	selects := func(ask string) string {
		return ", match: {" + pods + ", objectSelector: {matchLabels: {ask: " + ask + "}}}"
	}
	must(o.apply(t, "ClusterAdmissionPolicy", "", "beside", "module: {"+says("clus")+"}"+selects("file")))
	must(o.apply(t, "ClusterAdmissionPolicy", "", "everywhere", "module: {"+says("evry")+"}"+selects("all")))
	must(o.apply(t, "AdmissionPolicy", "shop", "everywhere", "module: {"+says("shop")+"}, failurePolicy: Fail"+selects("own")))
	want("shop", "file", "beside: file")
	want("shop", "all", "everywhere: evry")
	want("other", "all", "everywhere: evry")
	want("shop", "own", "shop/everywhere: shop")
	want("other", "own", "")
	states := map[string]string{
		"ClusterAdmissionPolicy beside":     "1 Refused: policy \"beside\": the configuration file has a policy of this name",
		"ClusterAdmissionPolicy everywhere": "1 Serving",
		"AdmissionPolicy shop/everywhere":   "1 Serving",
	}
	o.wantReport(t, states)

	// Change, break, repair, delete.
	must(o.apply(t, "ClusterAdmissionPolicy", "", "everywhere", "module: {"+says("next")+"}"+selects("all")))
	want("other", "all", "everywhere: next")
	must(o.apply(t, "ClusterAdmissionPolicy", "", "everywhere", "module: {oci: \"127.0.0.1:1/none:1\"}"+selects("all")))
	states["ClusterAdmissionPolicy everywhere"] = "3 Stale: "
	o.wantReport(t, states)
	want("other", "all", "everywhere: next")
	must(o.apply(t, "ClusterAdmissionPolicy", "", "everywhere", "module: {"+says("last")+"}"+selects("all")))
	states["ClusterAdmissionPolicy everywhere"] = "4 Serving"
	o.wantReport(t, states)
	want("other", "all", "everywhere: last")
	must(o.apply(t, "ClusterAdmissionPolicy", "", "everywhere", "enabled: false, module: {"+says("last")+"}"+selects("all")))
	states["ClusterAdmissionPolicy everywhere"] = "5 Disabled"
	o.wantReport(t, states)
	want("other", "all", "")
	must(o.resource("ClusterAdmissionPolicy", "").Delete(t.Context(), "everywhere", metav1.DeleteOptions{}))
	delete(states, "ClusterAdmissionPolicy everywhere")
	o.wantReport(t, states)
	replace(t, config, []byte("plugins: []\n"))
	states["ClusterAdmissionPolicy beside"] = "1 Serving"
	o.wantReport(t, states)
	want("shop", "file", "beside: clus")

	// What the owner of a namespace may not decide.
	for i, c := range []struct{ spec, want string }{
		{"module: {oci: \"oci-layout:/etc\"}, match: {" + pods + "}", "an image layout"},
		{"module: {configMap: {namespace: kube-system, name: a, key: b}}, match: {" + pods + "}", `module.configMap.namespace is "kube-system"`},
		{"module: {secret: {namespace: other, name: a, key: b}}, match: {" + pods + "}", `module.secret.namespace is "other"`},
		{"module: {" + says("tryy") + "}, shadow: {module: {secret: {name: a, key: b}}}, match: {" + pods + "}", "shadow is not for an AdmissionPolicy"},
		{"module: {" + says("tryy") + "}, limits: {timeout: 1m}, match: {" + pods + "}", "limits.timeout is more than the default"},
		{"module: {" + says("tryy") + "}, limits: {memoryBytes: 2Gi, fuel: 9000000000, instances: 1000}, match: {" + pods + "}", "limits.memoryBytes is more than the default"},
		{"module: {" + says("tryy") + "}, objects: [{resource: v1/pods, namespaces: [other]}], match: {" + pods + "}", "objects[0].namespaces has another namespace"},
		{"module: {" + says("tryy") + "}, objects: [{resource: v1/pods, namespaces: [shop, other]}], match: {" + pods + "}", "objects[0].namespaces has another namespace"},
		{"module: {" + says("tryy") + "}, objects: [{resource: v1/secrets}], match: {" + pods + "}", "objects[0].resource is v1/secrets"},
		{"module: {" + says("tryy") + "}, dialect: {kubewarden: {hostCapabilities: [\"*\"]}}, match: {" + pods + "}", "dialect.kubewarden has settings"},
		{"module: {" + says("tryy") + "}", "match.rules is missing"},
		{"module: {" + says("tryy") + `}, match: {rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]}`, `match.rules[0].resources has "*"`},
		{"module: {" + says("tryy") + `}, match: {rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [secrets]}]}`, `match.rules[0].resources has "secrets"`},
		{"module: {" + says("tryy") + `}, match: {rules: [{operations: [DELETE], apiGroups: [kubewasm.dev], apiVersions: ["*"], resources: [admissionpolicies]}]}`, `match.rules[0].resources has "admissionpolicies"`},
		{"module: {" + says("tryy") + `}, match: {rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: ["*/log"]}]}`, `match.rules[0].resources has "*/log"`},
		{"module: {" + says("tryy") + `}, match: {rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [nodes], scope: Cluster}]}`, "match.rules[0].scope is not Namespaced"},
	} {
		name := fmt.Sprintf("try-%02d", i)
		must(o.apply(t, "AdmissionPolicy", "shop", name, c.spec))
		var got string
		eventually(t, name+": "+c.want, func() bool {
			got = o.report(t)["AdmissionPolicy shop/"+name]
			return strings.Contains(got, c.want) && (strings.HasPrefix(got, "1 Refused: ") || strings.HasPrefix(got, "1 Unavailable: "))
		})
		must(o.resource("AdmissionPolicy", "shop").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	// Neither does it see, or stop, another namespace or what has none.
	must(o.apply(t, "AdmissionPolicy", "shop", "wide", "module: {"+says("wide")+`}, match: {namespaceSelector: {}, rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods, nodes, namespaces]}]}`))
	want("shop", "none", "shop/wide: wide")
	want("other", "none", "")
	// Nor more than its share of the server.
	for i := range 40 {
		must(o.apply(t, "AdmissionPolicy", "shop", fmt.Sprintf("many-%02d", i), "module: {"+says("many")+"}"+selects("many")))
	}
	eventually(t, "policies that are too many", func() bool {
		n := map[string]int{}
		for key, state := range o.report(t) {
			if strings.HasPrefix(key, "AdmissionPolicy shop/") {
				n[strings.Fields(state)[1]]++
			}
		}
		return maps.Equal(n, map[string]int{"Serving": 32, "Refused:": 10})
	})
	if got := slices.Sorted(maps.Keys(o.report(t))); len(got) != 43 {
		t.Errorf("the report has %v", got)
	}
}
