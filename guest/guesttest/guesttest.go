//go:build !wasip1

package guesttest

import (
	stdjson "encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// Pod returns a view of the Pod in manifest, YAML or JSON. The test fails if
// manifest is no Pod or has a field that Pods do not have.
func Pod(t testing.TB, manifest string) core.Pod {
	t.Helper()
	return viewOf(t, readPod(t, manifest))
}

func viewOf(t testing.TB, pod *corev1.Pod) core.Pod {
	t.Helper()
	raw, err := codec.Pod(pod)
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
	if err := decode(manifest, &node); err != nil {
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
	request, err := admission.RequestFromReview(reviewOf(t, manifest))
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// reviewOf returns the AdmissionReview of the creation of an object.
func reviewOf(t testing.TB, text string) []byte {
	t.Helper()
	objects, err := manifest.Read([]byte(text))
	if err != nil {
		t.Fatalf("read object: %v", err)
	}
	if len(objects.All) != 1 {
		t.Fatalf("read object: %d objects, want one", len(objects.All))
	}
	review, err := stdjson.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  objects.All[0].Admission(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return review
}
