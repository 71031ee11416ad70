package kube137_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewasm/kubewasm/internal/framework"
)

// TestInformersOfTheTestKit holds that authors can test with objects of all kinds of which a
// scheduler has informers, and of no others.
func TestInformersOfTheTestKit(t *testing.T) {
	factory := informers.NewSharedInformerFactory(nil, 0)
	var want, got []string
	for gvk := range scheme.Scheme.AllKnownTypes() {
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		if _, err := factory.ForResource(gvr); err == nil {
			want = append(want, gvr.String())
		}
	}
	for gvr := range framework.NewInformers() {
		got = append(got, gvr.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-client-go +test kit):\n%s", diff)
	}
}
