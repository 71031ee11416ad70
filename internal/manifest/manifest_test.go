package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/manifest"
)

func TestRead(t *testing.T) {
	o, err := manifest.Read([]byte(`
# Only a comment.
---
{apiVersion: v1, kind: Pod, metadata: {name: web}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: n1}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range o.All {
		got = append(got, object.APIVersion+" "+object.Kind+" "+object.Namespace+"/"+object.Name)
	}
	if diff := cmp.Diff([]string{"v1 Pod default/web", "v1 Node /n1", "apps/v1 Deployment shop/web"}, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if err := o.Named(); err != nil {
		t.Error(err)
	}
	o, err = manifest.Read([]byte("{apiVersion: v1, kind: Service}\n---\n{apiVersion: v1, kind: Pod}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Named(); err == nil || err.Error() != "object 2: the Pod has no metadata.name" {
		t.Errorf("a Pod without a name: %v", err)
	}
	if o, err = manifest.Read([]byte("{apiVersion: v1, kind: PodList, items: [{apiVersion: v1, kind: Pod}, {apiVersion: v1, kind: Node}]}")); err != nil {
		t.Fatal(err)
	}
	if len(o.Pods) != 1 || len(o.Nodes) != 1 {
		t.Errorf("%d Pods and %d Nodes, want one of each", len(o.Pods), len(o.Nodes))
	}
}

// TestReadRequest holds that an admission request without its AdmissionReview, as tools of
// policies keep it, is read as one with it.
func TestReadRequest(t *testing.T) {
	o, err := manifest.Read([]byte(`{"uid": "u", "kind": {"version": "v1", "kind": "Pod"}, "operation": "CREATE"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := o.All[0]; len(o.All) != 1 || got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || !strings.Contains(string(got.JSON), `"request":{"uid":"u","kind":{"version":"v1","kind":"Pod"}`) {
		t.Errorf("got %s: %s", got.Kind, got.JSON)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "no objects in it",
		"hello: world":                     "document 1: it has no kind",
		"{kind: Pod, metadata: {name: p}}": "document 1: the Pod has no apiVersion",
		"{apiVersion: v1, kind: Service, metadata: {name: s}}\n---\nkind: [":                                                               "document 2: ",
		"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {container: []}}":                                                          `unknown field "spec.container"`,
		"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: no}}":                                                         "document 1: the Pod p: spec.containers is true or false, want a list",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"}}`:                 `document 1: something follows the document; a line "---" separates two`,
		"{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}\n":                                             `document 1: something follows the document`,
		"{apiVersion: v1, kind: Service}\n---\n{apiVersion: v1, kind: Service} x\n":                                                        `document 2: something follows the document`,
		"{apiVersion: v1, kind: Node, metadata: {name: node}, status: {capacity: {cpu: \"1e-2147483647\"}}}":                               "document 1: status.capacity.cpu: ",
		"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, resources: {limits: {cpu: \"1e-2147483647\"}}}]}}": `document 1: spec.containers[0].resources.limits.cpu: "1e-2147483647" is no quantity`,
		"{apiVersion: v1, kind: List, items: [{kind: Pod}]}":                                                                               "document 1: item 0: the Pod has no apiVersion",
	} {
		if _, err := manifest.Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Read(%q): %v, want %s", text, err, want)
		}
	}
}

// TestUnknownFieldsWarn holds that objects of a Kubernetes that is newer than k8s.io/api are
// read, with their fields.
func TestUnknownFieldsWarn(t *testing.T) {
	o, mistakes, err := manifest.ReadOn(t.Context(), []byte(`
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {schedulingGroup: {podGroupName: g}, containers: [{name: c, immge: i}]}}
---
{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Node, metadata: {name: b}, spec: {podPreemptionPolicy: {}}}]}
`), nil)
	if mistakes != nil || err != nil {
		t.Fatal(mistakes, err)
	}
	want := []string{
		`document 1: the Pod a: unknown field "spec.containers[0].immge", did you mean "image"?`, `document 1: the Pod a: unknown field "spec.schedulingGroup", did you mean "schedulingGates"?`,
		`document 2: the Node b: unknown field "spec.podPreemptionPolicy"`,
	}
	if diff := cmp.Diff(want, o.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if len(o.Pods) != 1 || len(o.Nodes) != 1 || !strings.Contains(string(o.All[0].JSON), `"schedulingGroup":{"podGroupName":"g"}`) {
		t.Errorf("got %d Pods, %d Nodes, %s", len(o.Pods), len(o.Nodes), o.All[0].JSON)
	}
}

// TestReadOn holds that what is no object takes nothing from the others.
func TestReadOn(t *testing.T) {
	o, mistakes, err := manifest.ReadOn(t.Context(), []byte("replicas: 2\n---\n{apiVersion: v1, kind: Service, metadata: {name: a}}\n---\nkind: [\n---\n{{ template }}\n---\n{apiVersion: v1, kind: List, items: [{kind: Pod}, {apiVersion: v1, kind: Node, metadata: {name: b}}, {}]}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names, texts []string
	for _, object := range o.All {
		names = append(names, object.Name)
	}
	for _, mistake := range mistakes {
		texts = append(texts, strings.Join(strings.SplitAfterN(mistake.Error(), ": ", 3)[:2], ""))
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"document 1: it has no kind", "document 3: yaml: ", "document 4: yaml: ", "document 5: item 0: ", "document 5: item 2: "}, texts); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
}
