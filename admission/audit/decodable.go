package audit

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/quantities"
)

// Decodable returns an error for an object of a kind of the Kubernetes API that cannot be decoded.
// An API server refuses a request whose patch leads to such an object, with the patches of all
// webhooks.
func Decodable(kind metav1.GroupVersionKind, object []byte) error {
	typed, err := scheme.Scheme.New(schema.GroupVersionKind(kind))
	if err != nil {
		return nil // A custom resource has a schema in the cluster.
	}
	if err := quantities.Check(object, typed); err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(object, typed)
}

// undecodable returns an error if an API server could not decode an object with a patch.
func undecodable(request *admissionv1.AdmissionRequest, patch []byte) error {
	changed, err := jsonpatch.Apply(request.Object.Raw, patch)
	if err == nil {
		err = Decodable(request.Kind, changed)
	}
	if err != nil {
		return fmt.Errorf("the API server could not decode the object: %w", err)
	}
	return nil
}
