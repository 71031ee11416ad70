package v1alpha1_test

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// The spec is the configuration of a plugin.
func Example() {
	policy := v1alpha1.ClusterAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "zone"},
		Spec:       runtime.RawExtension{Raw: []byte(`{"module":{"oci":"ghcr.io/acme/zone:1.2"},"guestConfig":{"zones":["a","b"]},"mode":"Monitor"}`)},
	}
	text, err := json.Marshal(policy.Spec)
	fmt.Println(string(text), err)
	// Output: {"module":{"oci":"ghcr.io/acme/zone:1.2"},"guestConfig":{"zones":["a","b"]},"mode":"Monitor"} <nil>
}
