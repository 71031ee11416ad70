package meta_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/view"
)

func TestGroupVersionsAreReadAsKubernetesWritesThem(t *testing.T) {
	for _, want := range []metav1.GroupVersion{{}, {Version: "v1"}, {Group: "apps", Version: "v1"}} {
		raw, err := want.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		text, err := want.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []view.Value{{Raw: raw}, {Raw: text, JSON: true}} {
			if diff := cmp.Diff(meta.GroupVersion{Group: want.Group, Version: want.Version}, meta.ReadGroupVersion(v)); diff != "" {
				t.Errorf("%s, JSON %v (-want +got):\n%s", want, v.JSON, diff)
			}
		}
	}
}
