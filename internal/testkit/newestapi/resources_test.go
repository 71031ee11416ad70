package newestapi

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestResources holds that resources.txt of internal/manifest has the resources of which the
// newest client of Kubernetes knows a kind and its list.
func TestResources(t *testing.T) {
	resources, err := os.ReadFile("../../manifest/resources.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	types := scheme.Scheme.AllKnownTypes()
	for gvk := range types {
		list := gvk
		list.Kind += "List"
		if _, ok := types[list]; !ok || gvk.Version == "__internal" || gvk.Kind == "APIGroup" {
			continue
		}
		r, _ := meta.UnsafeGuessKindToResource(gvk)
		want = append(want, strings.TrimPrefix(r.GroupVersion().String()+"/"+r.Resource, "/"))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, strings.Fields(string(resources))); diff != "" {
		t.Errorf("resources.txt (-want +got):\n%s", diff)
	}
}
