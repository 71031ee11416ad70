package admission

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// conversionEnvelope is a ConversionReview of apiextensions.k8s.io/v1 without its answer.
type conversionEnvelope struct {
	metav1.TypeMeta `json:",inline"`
	Request         *struct {
		UID               string                 `json:"uid"`
		DesiredAPIVersion string                 `json:"desiredAPIVersion"`
		Objects           []runtime.RawExtension `json:"objects"`
	} `json:"request"`
}

// FuzzDecodeConversionReview compares with the decoder of Kubernetes: what is taken is what
// that reads, and what is not is something that no API server sends.
func FuzzDecodeConversionReview(f *testing.F) {
	const start = `{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":"u","desiredAPIVersion":"g/v1","objects":`
	f.Add([]byte(start + `[{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n"}}]}}`))
	f.Add([]byte(start + `[{"apiVersion":"g/v2","kind":"K","metadata":null}, {"kind":"K" ,"apiVersion":"g\/v3"}]}}`))
	f.Add([]byte(start + `null}}`))
	f.Add([]byte(start + `[null,1,"",{}]}}`))
	f.Add([]byte(start + `[{"apiVersion":"v2","kind":"K"}]},"request":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := DecodeConversionReview(body)
		if err != nil {
			return
		}
		var want conversionEnvelope
		if err := utiljson.Unmarshal(body, &want); err != nil {
			t.Fatalf("DecodeConversionReview takes %q, Kubernetes does not: %v", body, err)
		}
		r := want.Request
		if want.APIVersion != conversionVersion || want.Kind != conversionKind || r == nil {
			t.Fatalf("DecodeConversionReview takes %q", body)
		}
		if string(got.UID) != r.UID || got.Desired.String() != r.DesiredAPIVersion || len(got.Objects) != len(r.Objects) {
			t.Fatalf("request of %q is %+v, want %+v", body, got, r)
		}
		for i := range got.Objects {
			var object metav1.TypeMeta
			if err := utiljson.Unmarshal(got.Objects[i], &object); err != nil {
				t.Fatal(err)
			}
			if gv := object.GroupVersionKind(); !bytes.Equal(bytes.TrimSpace(got.Objects[i]), r.Objects[i].Raw) || gv.Kind != got.Kind || gv.Group != got.Desired.Group || gv.Version == "" {
				t.Fatalf("objects[%d] of %q is %s", i, body, got.Objects[i])
			}
		}
	})
}

// FuzzCheckConverted compares with what an API server does with a converted object: what
// the check takes, an API server takes, and the metadata that it keeps of the object that
// was to be converted are those that came.
func FuzzCheckConverted(f *testing.F) {
	const object = `{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","namespace":"s","uid":"u","generation":1,"labels":{"a":"b"}},"spec":{}}`
	f.Add([]byte(object), []byte(strings.Replace(object, "v1", "v2", 1)))
	f.Add([]byte(object), []byte(`{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","namespace":"s","uid":"u","generation":1.0,"annotations":{"k":"\u00e4"}}}`))
	f.Add([]byte(object), []byte(`{"apiVersion":"g/v2","kind":"K","metadata":{"name":"n","namespace":"s","uid":"u","generation":1,"labels":{"a":null}}}`))
	f.Add([]byte(`{"apiVersion":"g/v1","kind":"K","metadata":{"name":null,"finalizers":[]}}`), []byte(`{"apiVersion":"g/v2","kind":"K","metadata":{"finalizers":[]}}`))
	desired := schema.GroupVersion{Group: "g", Version: "v2"}
	f.Fuzz(func(t *testing.T, object, converted []byte) {
		var in, out unstructured.Unstructured
		if in.UnmarshalJSON(object) != nil || in.GetAPIVersion() != "g/v1" || checkConverted(t.Context(), object, converted, desired.String()) != nil {
			return
		}
		if _, ok := in.Object["items"]; ok {
			return // It is taken for a list.
		}
		metadata, ok := in.Object["metadata"].(map[string]any)
		if !ok || in.GetName() == "" {
			return // An API server has none such.
		}
		if err := out.UnmarshalJSON(converted); err != nil {
			if strings.Contains(string(converted), `"items"`) {
				return
			}
			t.Fatalf("an API server does not read %s: %v", converted, err)
		}
		if out.GroupVersionKind().GroupVersion() != desired || out.GetKind() != in.GetKind() || out.GetName() != in.GetName() || out.GetNamespace() != in.GetNamespace() || out.GetUID() != in.GetUID() {
			t.Fatalf("an API server refuses %s for %s", converted, object)
		}
		kept, ok := out.Object["metadata"].(map[string]any)
		if !ok {
			t.Fatalf("%s has no metadata", converted)
		}
		for _, key := range []string{"labels", "annotations"} {
			strings, _, err := unstructured.NestedStringMap(out.Object, "metadata", key)
			if value := kept[key]; err != nil && value != nil {
				t.Fatalf("metadata.%s of %s are %v: %v", key, converted, strings, err)
			}
			delete(kept, key)
			delete(metadata, key)
		}
		for _, meta := range []map[string]any{kept, metadata} {
			for key, value := range meta {
				if value == nil {
					delete(meta, key)
				}
			}
		}
		a, errA := json.Marshal(metadata)
		b, errB := json.Marshal(kept)
		var x, y any
		if errA != nil || errB != nil || json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
			t.Fatal(errA, errB)
		}
		if a, b := canonicalOf(t, x), canonicalOf(t, y); a != b {
			t.Fatalf("metadata are %s, and were %s", b, a)
		}
	})
}

// canonicalOf returns a value in JSON with the members in their order.
func canonicalOf(t *testing.T, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
