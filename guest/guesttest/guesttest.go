//go:build !wasip1

package guesttest

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

// Pod returns a view of the Pod in manifest, YAML or JSON. The test fails if
// manifest is no Pod or has a field that Pods do not have.
func Pod(t testing.TB, manifest string) core.Pod {
	t.Helper()
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(manifest), &pod); err != nil {
		t.Fatalf("read Pod: %v", err)
	}
	raw, err := codec.Pod(&pod)
	if err != nil {
		t.Fatal(err)
	}
	return core.PodFromProto(raw)
}

// Node returns a view of the Node in manifest, YAML or JSON. The test fails if
// manifest is no Node or has a field that Nodes do not have.
func Node(t testing.TB, manifest string) core.Node {
	t.Helper()
	var node corev1.Node
	if err := yaml.UnmarshalStrict([]byte(manifest), &node); err != nil {
		t.Fatalf("read Node: %v", err)
	}
	raw, err := codec.Node(&node)
	if err != nil {
		t.Fatal(err)
	}
	return core.NodeFromProto(raw)
}

// Create returns the request that the API server sends to an admission webhook
// when the object in manifest, YAML or JSON with apiVersion and kind, is
// created. The object reaches the plugin as the JSON that manifest stands for.
func Create(t testing.TB, manifest string) *admission.Request {
	t.Helper()
	object, err := yaml.YAMLToJSONStrict([]byte(manifest))
	if err != nil {
		t.Fatalf("read object: %v", err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(object); err != nil {
		t.Fatalf("read object: %v", err)
	}
	gvk := u.GroupVersionKind()
	kind := metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
	review, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create,
			Kind: kind, RequestKind: &kind, Namespace: u.GetNamespace(), Name: u.GetName(),
			Object: runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := admission.RequestFromReview(review)
	if err != nil {
		t.Fatal(err)
	}
	return request
}
