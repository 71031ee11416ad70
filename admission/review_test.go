package admission

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// envelope is an AdmissionReview without its answer, which is not looked at.
type envelope struct {
	metav1.TypeMeta `json:",inline"`
	Request         *admissionv1.AdmissionRequest `json:"request"`
}

// FuzzDecodeReview compares with the decoder of Kubernetes.
func FuzzDecodeReview(f *testing.F) {
	const start = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",`
	f.Add([]byte(start + `"kind":{"group":"g","version":"v","kind":"k"},"resource":null,"requestKind":null,"requestResource":{"resource":"r"}}}`))
	f.Add([]byte(start + `"userInfo":{"username":"\u00e4\ud800","groups":["a",null],"extra":{"k":["v"],"n":null,"e":[]}},"dryRun":true}}`))
	f.Add([]byte(start + `"object":{"a":[1.50e1]},"oldObject":null,"options": [ ] ,"Name":"x","name":null,"dryRun":null}}`))
	f.Add([]byte(start + `"userInfo":{"groups":{}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := DecodeReview(body)
		var want envelope
		wantErr := utiljson.Unmarshal(body, &want)
		if wantErr == nil && (want.APIVersion != reviewVersion || want.Kind != reviewKind || want.Request == nil || want.Request.UID == "") {
			if err == nil {
				t.Fatalf("DecodeReview takes %q", body)
			}
			return
		}
		switch {
		case err == nil && wantErr != nil:
			t.Fatalf("DecodeReview takes %q, Kubernetes does not: %v", body, wantErr)
		case err != nil && wantErr == nil && !strings.HasSuffix(err.Error(), "occurs twice"):
			t.Fatalf("DecodeReview does not take %q: %v", body, err)
		case err == nil:
			if diff := cmp.Diff(want.Request, got); diff != "" {
				t.Fatalf("request of %q (-kubernetes +got):\n%s", body, diff)
			}
		}
	})
}

// FuzzAppendReview compares with encoding/json.
func FuzzAppendReview(f *testing.F) {
	f.Add("u", "message", "warning", "key", "value", []byte(`[{"op":"remove"}]`), true, int32(403))
	f.Add("\xff<>&\u2028", "\x00", "", "", "", []byte{}, false, int32(0))
	f.Fuzz(func(t *testing.T, uid, message, warning, key, value string, patch []byte, allowed bool, code int32) {
		response := &admissionv1.AdmissionResponse{UID: "u", Allowed: allowed, Patch: patch}
		if len(patch) != 0 {
			patchType := admissionv1.PatchTypeJSONPatch
			response.PatchType = &patchType
		}
		if uid != "" {
			response.UID = "u" + response.UID
		}
		if message != "" {
			response.Result = &metav1.Status{Status: metav1.StatusFailure, Message: message, Code: code, Details: &metav1.StatusDetails{Name: key}}
		}
		if warning != "" {
			response.Warnings = []string{warning, uid}
		}
		if key != "" {
			response.AuditAnnotations = map[string]string{key: value, "k": uid}
		}
		out, err := appendReview(nil, response)
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: reviewVersion, Kind: reviewKind}, Response: response})
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := json.Unmarshal(encoded, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("answer (-encoding/json +got):\n%s", diff)
		}
	})
}

func BenchmarkDecodeReview(b *testing.B) {
	pod, err := os.ReadFile("testdata/pod.json")
	if err != nil {
		b.Fatal(err)
	}
	body := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"name":"web","namespace":"shop",` +
		`"operation":"CREATE","userInfo":{"username":"alice","groups":["dev"]},"object":` + string(pod) + `,"oldObject":null,"dryRun":false}}`)
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			if _, err := DecodeReview(body); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kubernetes", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			var r admissionv1.AdmissionReview
			if err := utiljson.Unmarshal(body, &r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
