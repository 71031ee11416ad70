package policy

import (
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// builtin returns the scheme of the types that guests may get as protobuf: the generally available
// types of the Kubernetes API.
var builtin = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme, autoscalingv1.AddToScheme, autoscalingv2.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme, schedulingv1.AddToScheme,
		coordinationv1.AddToScheme, discoveryv1.AddToScheme, admissionregistrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Two types have the same name: a fault of the build.
		}
	}
	return scheme
})

// maxProtoValues is the maximum number of JSON values in an object for protobuf. A value of three
// bytes may become a struct of a kilobyte.
const maxProtoValues = 1 << 17

// protoObjects returns the objects of a request as protobuf, each nil if it is missing, is not of a
// built-in type, or cannot be decoded as one. It returns an error if they have more than
// maxProtoValues values, since a guest would read a missing object as one without fields.
func protoObjects(r *admissionv1.AdmissionRequest) (object, oldObject []byte, err error) {
	gvk := schema.GroupVersionKind{Group: r.Kind.Group, Version: r.Kind.Version, Kind: r.Kind.Kind}
	if !builtin().Recognizes(gvk) {
		return nil, nil, nil
	}
	if n := countValues(r.Object.Raw) + countValues(r.OldObject.Raw); n > maxProtoValues {
		return nil, nil, fmt.Errorf("the objects have %d values, more than the %d that are made protobuf", n, maxProtoValues)
	}
	return protoOfJSON(gvk, r.Object.Raw), protoOfJSON(gvk, r.OldObject.Raw), nil
}

// countValues returns the approximate number of values in valid JSON.
func countValues(raw []byte) int {
	n, inText := 0, false
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			inText = !inText
		case '\\':
			i++ // In a text, as everywhere in valid JSON.
		case ',':
			if !inText {
				n++
			}
		case '{', '[':
			if !inText && i+1 < len(raw) && raw[i+1] != raw[i]+2 { // Not empty: '}' is '{'+2.
				n++
			}
		}
	}
	return n
}

func protoOfJSON(gvk schema.GroupVersionKind, raw []byte) []byte {
	if raw == nil {
		return nil
	}
	object, err := builtin().New(gvk)
	if err != nil {
		return nil
	}
	message, ok := object.(interface{ Marshal() ([]byte, error) })
	if !ok || utiljson.Unmarshal(raw, object) != nil {
		return nil
	}
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	encoded, err := message.Marshal()
	if err != nil {
		return nil
	}
	return encoded
}
