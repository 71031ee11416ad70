package admission_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission"
)

// The reader of reviews takes memory in proportion to a body, whatever is in it.
func TestHostileReviews(t *testing.T) {
	const begin, end = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"`, `}}`
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	tests := []struct{ name, body, want string }{
		{"lists in lists", strings.Repeat("[", 7<<20), "exceeded max depth"},
		{"objects in objects", strings.Repeat(`{"a":`, 7<<20/5), "exceeded max depth"},
		{"objects in objects, as an object", begin + `,"object":` + strings.Repeat(`{"a":`, 1<<20) + strings.Repeat("}", 1<<20) + end, "exceeded max depth"},
		{"as deep as may be, and wide at the bottom", begin + `,"object":` + strings.Repeat(`{"a":`, 9990) + `[` + strings.Repeat("0,", 1<<20) + `0]` + strings.Repeat("}", 9990) + end, ""},
		{"lists of lists side by side", begin + `,"object":{"a":[` + strings.Repeat("[[[[]]]],", 500_000) + `0]}` + end, ""},
		{"a text without end", begin + `,"name":"` + strings.Repeat(`\"`, 3<<20), "unexpected end of JSON input"},
		{"escapes of surrogates", begin + `,"name":"` + strings.Repeat(`\ud800`, 1<<20) + `"` + end, ""},
		{"very many members", begin + "," + many(200_000, `"m%d":0,`) + end, ""},
		{"very many extras", begin + `,"userInfo":{"extra":{` + many(100_000, `"m%d":[],`) + `}}` + end, ""},
		{"very many groups", begin + `,"userInfo":{"groups":[` + strings.Repeat(`"",`, 1<<20) + `""]}` + end, ""},
		{"a number without end", begin + `,"object":` + strings.Repeat("9", 7<<20) + end, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			body := []byte(test.body)
			var err error
			n := allocated(func() { _, err = admission.DecodeReview(body) })
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 200) {
				t.Errorf("error is %.300v, want %s", err, test.want)
			}
			if limit := 10*len(body) + 1<<20; n > limit {
				t.Errorf("%d bytes were allocated for %d", n, len(body))
			}
		})
	}
}

// An object of three megabytes may be gigabytes as Go's structs, which is what it is
// on its way to protobuf.
func TestHostileObjectsAsProtobuf(t *testing.T) {
	e := admission.NewEngine(script(t, "p", "", nil))
	pod := func(containers, text string) *admissionv1.AdmissionRequest {
		return requestOf(`{"metadata":{"name":"web","annotations":{"proto":"1","text":"` + text + `"}},"spec":{"containers":[` + containers + `]}}`)
	}
	tests := []struct {
		name string
		r    *admissionv1.AdmissionRequest
		want string // Of the denial.
	}{
		{"very many containers", pod(strings.Repeat("{},", 1_000_000)+"{}", ""), "the objects have 1000008 values, more than the 131072 that are made protobuf"},
		{"very many that are null", pod(strings.Repeat("null,", 600_000)+"null", ""), "more than the 131072 that are made protobuf"},
		{"a text that looks like them", pod("{}", strings.Repeat(`{},[\"\\`, 300_000)), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got *admissionv1.AdmissionResponse
			n := allocated(func() { got = e.Mutate(t.Context(), test.r) })
			if test.want == "" {
				if !got.Allowed {
					t.Errorf("answer is %.300s", got.Result.Message)
				}
			} else if got.Allowed || !strings.Contains(got.Result.Message, test.want) {
				t.Errorf("answer is %t: %.300v\nwant %s", got.Allowed, got.Result, test.want)
			}
			if limit := 128 << 20; n > limit {
				t.Errorf("%d bytes were allocated for %d", n, len(test.r.Object.Raw))
			}
		})
	}
}

// A verdict of field errors is short.
func TestHostileStellarPlugin(t *testing.T) {
	cfg := config(t, "stellar", "testdata/hostile/stellar.wasm")
	cfg.Limits.Fuel = 1 << 30
	compare(t, denied(403, "Forbidden", "Plugin returned error code: -1"), admission.NewEngine(load(t, cfg)).Validate(t.Context(), requestOf(`{}`)))
}
