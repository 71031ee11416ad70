package main

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// owners is a file of policies: the example required-labels, which wants the label owner.
func owners(t *testing.T, more string) string {
	return file(t, "policies.yaml", `
plugins:
- name: owners
  module: {file: `+built(t, "../../examples/admission/required-labels")+`, follow: true}
  guestConfig: {labels: [owner]}
  match:
    rules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
`+more)
}

func TestAuditOfFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"good.yaml": "{apiVersion: v1, kind: Pod, metadata: {name: good, namespace: shop, labels: {owner: ann}}}\n---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}\n",
		"bad.json":  `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}}`,
		"notes.txt": "no manifest",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	policies := owners(t, "")
	code, out, stderr := kubewasm(t, "audit", "--policies", policies, "-f", dir)
	want := `NAMESPACE  KIND  NAME  POLICY  RESULT  MESSAGE
default    Pod   bad   owners  fail    metadata.labels[owner]: Required value: every Pod must have it

POLICY  MODE     PASS  FAIL  WARN  ERROR  NOTE
owners  Enforce  1     1     0     0      
`
	if diff := cmp.Diff(want, out); diff != "" || code != 2 {
		t.Errorf("exit code %d, %s, printed (-want +got):\n%s", code, stderr, diff)
	}
	if code, out, stderr := kubewasm(t, "audit", "--policies", policies, "-f", filepath.Join(dir, "good.yaml")); code != 0 {
		t.Errorf("exit code %d for what is right: %s%s", code, out, stderr)
	}
	code, out, _ = kubewasm(t, "audit", "--policies", policies, "-f", dir, "-o", "reports")
	if code != 2 || !strings.HasPrefix(out, "---\napiVersion: openreports.io/v1alpha1\n") || !strings.Contains(out, "kind: Report\n") {
		t.Errorf("exit code %d, printed %s", code, out)
	}
}

// TestAuditGoesOnAfterWhatIsNoObject holds that files that are no objects, fields of a newer
// Kubernetes, and objects without a name take nothing from the audit of the others.
func TestAuditGoesOnAfterWhatIsNoObject(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.yaml":        "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: d}, spec: {schedulingGroup: {podGroupName: g}}}\n",
		"b.yaml":        "# only a comment\n",
		"generate.yaml": "{apiVersion: v1, kind: Pod, metadata: {generateName: job-, labels: {owner: ann}}}\n",
		"mixed.yaml":    "replicas: 2\n---\n{apiVersion: v1, kind: Pod, metadata: {name: m, labels: {owner: ann}}}\n",
		"template.yml":  "kind: {{ .Values.kind }}\n",
		"labels.yaml":   "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: [a]}}\n",
		"values.json":   `{"image": {"tag": "1"}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, out, stderr := kubewasm(t, "audit", "--policies", owners(t, ""), "-f", dir, "-o", "json")
	var result audit.Result
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatalf("%v: %s%s", err, out, stderr)
	}
	want := []string{"labels.yaml: ", "mixed.yaml: document 1: it has no kind", "template.yml: document 1: ", "values.json: document 1: it has no kind"}
	if len(result.Errors) != len(want) {
		t.Fatalf("errors are %q", result.Errors)
	}
	for i, text := range result.Errors {
		if !strings.HasPrefix(text, filepath.Join(dir, want[i])) {
			t.Errorf("error %d is %q, want %s", i, text, want[i])
		}
		if !strings.Contains(stderr, text) {
			t.Errorf("printed %s, without %s", stderr, text)
		}
	}
	if p := result.Policies[0]; code != 1 || p.Passed != 2 || p.Denied != 1 {
		t.Errorf("exit code %d, %+v: want 1, two that pass and one that is denied", code, p)
	}
	if warning := `a.yaml: document 1: the Pod a: unknown field "spec.schedulingGroup"`; !strings.Contains(stderr, warning) {
		t.Errorf("printed %s, without %s", stderr, warning)
	}
}

// TestAuditMistakes holds that all mistakes are told at once.
func TestAuditMistakes(t *testing.T) {
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"-f", "x", "--write", "--qps", "0"}, []string{"--policies", "--write is for a cluster", "--qps is 0"}},
		{
			[]string{"--policies", file(t, "p.yaml", "plugins: [{name: A}]\n"), "-f", file(t, "o.yaml", "kind: Pod\n"), "-f", file(t, "second.yaml", "x: [\n")},
			[]string{`plugin "A": a name is`, "module is missing", "o.yaml: document 1", "second.yaml: document 1"},
		},
		{[]string{"--policies", file(t, "p.yaml", "plugins: [{name: a, module: {file: /nowhere/a.wasm, follow: true}}, {name: b, module: {file: /nowhere/b.wasm, follow: true}}]\n"), "-f", file(t, "o.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n")}, []string{"/nowhere/a.wasm", "/nowhere/b.wasm"}},
	} {
		code, out, stderr := kubewasm(t, append([]string{"audit"}, test.args...)...)
		if code != 1 || out != "" {
			t.Errorf("%v: exit code %d, printed %s", test.args, code, out)
		}
		for _, want := range test.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%v: error is %s, without %q", test.args, stderr, want)
			}
		}
	}
}

func TestAuditOfACluster(t *testing.T) {
	pods := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespaced: true, Status: true, N: 20, Object: func(dst []byte, i, changes int) []byte {
		label := "owner"
		if i%10 == 0 && changes == 0 {
			label = "team"
		}
		return fmt.Appendf(dst, `{"metadata":{%%s,"name":"pod-%d","namespace":"ns-%d","uid":"u%d","labels":{%q:"ann"}},"spec":{}}`, i, i%2, i, label)
	}}
	namespaces := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace", N: 2, Object: func(dst []byte, i, _ int) []byte {
		return fmt.Appendf(dst, `{"metadata":{%%s,"name":"ns-%d"}}`, i)
	}}
	reports := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "stand-in"}, Kind: "Report"}
	s := listserver.New(pods, namespaces, reports)
	server := httptest.NewServer(s)
	defer server.Close()
	kubeconfig := file(t, "kubeconfig", `
apiVersion: v1
kind: Config
current-context: a
clusters: [{name: a, cluster: {server: "`+server.URL+`"}}]
contexts: [{name: a, context: {cluster: a}}]
`)
	policies, state := owners(t, ""), filepath.Join(t.TempDir(), "state")
	audited := func(more ...string) (int, *audit.Result, string) {
		t.Helper()
		code, out, stderr := kubewasm(t, append([]string{"audit", "--policies", policies, "--kubeconfig", kubeconfig, "--state", state, "-o", "json", "--qps", "1000", "--burst", "1000"}, more...)...)
		result := new(audit.Result)
		if err := json.Unmarshal([]byte(out), result); err != nil {
			t.Fatalf("exit code %d: %v: %s%s", code, err, out, stderr)
		}
		return code, result, stderr
	}
	code, result, stderr := audited("--write")
	if code != 2 || result.Asked != 20 || len(result.Findings) != 2 || stderr != "kubewasm: 1 reports written, 0 unchanged, 0 deleted\n" {
		t.Errorf("exit code %d, %+v, %s", code, result, stderr)
	}
	if len(s.Stored()) != 1 {
		t.Errorf("there are the reports %v", s.Stored())
	}
	s.Change("pods", 0)
	s.Change("pods", 10)
	if code, result, stderr = audited("--write"); code != 0 || result.Asked != 2 || len(result.Findings) != 0 || stderr != "kubewasm: 0 reports written, 0 unchanged, 1 deleted\n" {
		t.Errorf("exit code %d, %+v, %s", code, result, stderr)
	}
}

// TestRunWarnsOfFieldsOfNewerKubernetes holds that a field that k8s.io/api does not know keeps
// no object from the plugin, whether it is a Pod or only looked up.
func TestRunWarnsOfFieldsOfNewerKubernetes(t *testing.T) {
	cluster, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := file(t, "cluster.yaml", string(cluster)+`
---
{apiVersion: v1, kind: Node, metadata: {name: newer}, spec: {podPreemptionPolicy: {}}}
---
{apiVersion: v1, kind: Service, metadata: {name: newer, namespace: default}, spec: {futureField: 1}}
`)
	_, want, _ := kubewasm(t, "run", "-f", "testdata/cluster.yaml", "testdata/zone")
	code, out, stderr := kubewasm(t, "run", "-f", objects, "testdata/zone")
	if code == 1 || out == "" || want == "" {
		t.Errorf("exit code %d, printed %s%s", code, out, stderr)
	}
	for _, warning := range []string{`the Node newer: unknown field "spec.podPreemptionPolicy"`, `the Service newer: unknown field "spec.futureField"`} {
		if !strings.Contains(stderr, "kubewasm: warning: "+objects) || !strings.Contains(stderr, warning) {
			t.Errorf("printed %s, without %s", stderr, warning)
		}
	}
}

// TestAnAuditThatAsksNothingSaysSo holds that rules which match nothing are no success.
func TestAnAuditThatAsksNothingSaysSo(t *testing.T) {
	objects := file(t, "o.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {owner: ann}}}\n---\n{apiVersion: v1, kind: Service, metadata: {name: a}}\n")
	policy := func(rules string) string {
		return file(t, "p.yaml", "plugins: [{name: owners, module: {file: "+built(t, "../../examples/admission/required-labels")+", follow: true}, guestConfig: {labels: [owner]}, match: {rules: ["+rules+"]}}]\n")
	}
	for name, test := range map[string]struct {
		rules string
		code  int
		want  string
	}{
		"the singular of a resource": {"{operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pod]}", exitUnasked, `the policy owners was asked about nothing: its rules name the resource of no object: "pod" in resources; did you mean "pods"?`},
		"a version as group":         {"{operations: [CREATE], apiGroups: [v1], apiVersions: [v1], resources: [pods]}", exitUnasked, `"v1" in apiGroups is a version; the core group is ""`},
		"another resource":           {"{operations: [CREATE], apiGroups: [networking.k8s.io], apiVersions: [v1], resources: [ingresses]}", exitUnasked, "its rules name the resource of no object\n"},
		"a resource that there is":   {"{operations: [CREATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}", 0, ""},
		"updates alone":              {"{operations: [UPDATE], apiGroups: [\"\"], apiVersions: [v1], resources: [pods]}", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, stderr := kubewasm(t, "audit", "--policies", policy(test.rules), "-f", objects)
			if code != test.code || !strings.Contains(stderr, test.want) || test.want == "" && stderr != "" {
				t.Errorf("exit code %d, want %d: %s%s", code, test.code, out, stderr)
			}
		})
	}
}
