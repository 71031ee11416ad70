package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// TestDocumentedObjects has the API server validate the objects of the documents, whose readers paste
// them.
func TestDocumentedObjects(t *testing.T) {
	w := newWorld(t)
	strict := client.WithFieldValidation(w.admin, "Strict")
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml[^\n]*\n(.*?)^```")
	kinds := map[string]int{}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range blocks.FindAllStringSubmatch(string(text), -1) {
			for document := range strings.SplitSeq(block[1], "\n---\n") {
				object := &unstructured.Unstructured{}
				if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil || object.GetAPIVersion() != v1alpha1.GroupVersion.String() {
					continue
				}
				if kinds[object.GetKind()]++; object.GetNamespace() != "" {
					object.SetNamespace("team")
				}
				if err := strict.Create(t.Context(), object, client.DryRunAll); err != nil {
					t.Errorf("%s: %s %s: %v", page, object.GetKind(), object.GetName(), err)
				}
			}
		}
	}
	for _, kind := range []string{"ClusterAdmissionPolicy", "AdmissionPolicy", "NodeHook", "SchedulerPlugin", "ModuleTrust"} {
		if kinds[kind] == 0 {
			t.Errorf("no document has a %s", kind)
		}
	}
}
