package audit

import (
	"crypto/sha256"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/internal/json"
)

// object is an object under review.
type object struct {
	namespace, name, uid string
	// version is its resource version.
	version string
	// json is the object as policies see it, and sum its digest.
	json []byte
	sum  [16]byte
}

// read fills o with an object of an API server, whose bytes are valid JSON. It discards the
// previous contents of o, and reuses the memory of o.json.
//
// Policies see the object as if it were created now. Fields about its storage that only the API
// server writes are left out. So is status if it is a subresource, which an API server drops from
// created objects. Two versions of an object with the same members are the same object to every
// policy.
func (o *object) read(raw json.Value, kind schema.GroupVersionKind, dropStatus bool) {
	*o = object{json: o.json[:0]}
	out := append(o.json, `{"apiVersion":`...)
	out = json.AppendString(out, kind.GroupVersion().String())
	out = append(out, `,"kind":`...)
	out = json.AppendString(out, kind.Kind)
	for m := json.Object(raw); m.Next(); {
		switch key := m.Key(); {
		case key == "apiVersion" || key == "kind" || key == "status" && dropStatus:
		case key == "metadata":
			out = o.readMetadata(append(out, `,"metadata":{`...), m.Value())
		default:
			out = appendMember(append(out, ','), key, m.Value())
		}
	}
	o.json = append(out, '}')
}

func (o *object) readMetadata(out []byte, raw json.Value) []byte {
	first := true
	for m := json.Object(raw); m.Next(); {
		key := m.Key()
		switch key {
		case "managedFields", "generation":
			continue
		case "resourceVersion":
			o.version = clone(m.Value())
			continue
		case "name":
			o.name = clone(m.Value())
		case "namespace":
			o.namespace = clone(m.Value())
		case "uid":
			o.uid = clone(m.Value())
		}
		if !first {
			out = append(out, ',')
		}
		first = false
		out = appendMember(out, key, m.Value())
	}
	return append(out, '}')
}

// clone returns a text that shares no memory with the document.
func clone(v json.Value) string { return string([]byte(v.String())) }

func appendMember(out []byte, key string, value json.Value) []byte {
	out = json.AppendString(out, key)
	return append(append(out, ':'), value...)
}

// digest sets o.sum.
func (o *object) digest() {
	sum := sha256.Sum256(o.json)
	o.sum = [16]byte(sum[:16])
}

// createOptions are the options of the requests.
var createOptions = []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)

var yes = true

// request returns the review of the object: its creation by user as a dry run. It has the
// same bytes each time.
func (o *object) request(t *target, user authenticationv1.UserInfo) *admissionv1.AdmissionRequest {
	uid := types.UID(o.uid)
	if uid == "" {
		uid = "00000000-0000-0000-0000-000000000000" // In a file objects have none.
	}
	kind := metav1.GroupVersionKind{Group: t.resource.Group, Version: t.resource.Version, Kind: t.kind}
	resource := metav1.GroupVersionResource{Group: t.resource.Group, Version: t.resource.Version, Resource: t.resource.Resource}
	namespace := o.namespace
	if t.resource.Group == "" && t.resource.Resource == "namespaces" {
		namespace = o.name // An API server does the same.
	}
	return &admissionv1.AdmissionRequest{
		UID: uid, Operation: admissionv1.Create, Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		Namespace: namespace, Name: o.name, UserInfo: user, Object: runtime.RawExtension{Raw: o.json},
		DryRun: &yes, Options: runtime.RawExtension{Raw: createOptions},
	}
}
