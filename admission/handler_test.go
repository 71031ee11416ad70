package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	upstream "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
)

// validatorFunc is a function as a Validator.
type validatorFunc func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

func (f validatorFunc) Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return f(ctx, request)
}

// allowAll admits every request.
var allowAll = validatorFunc(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
})

// review returns an AdmissionReview of the object, as an API server writes it.
func review(uid, object string) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"` + uid +
		`","kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice","groups":["dev"]},` +
		`"object":` + object + `,"oldObject":null,"dryRun":false,"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`
}

// post sends a body and returns the answer's status and body.
func post(t testing.TB, url, contentType string, body io.Reader) (int, string) {
	t.Helper()
	resp, err := http.Post(url, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(out)
}

// postReview sends a review and returns the response in the answer.
func postReview(t testing.TB, url, body string) *admissionv1.AdmissionResponse {
	t.Helper()
	code, out := post(t, url, "application/json", strings.NewReader(body))
	if code != http.StatusOK {
		t.Fatalf("status %d: %s", code, out)
	}
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if r.APIVersion != "admission.k8s.io/v1" || r.Kind != "AdmissionReview" || r.Request != nil || r.Response == nil {
		t.Fatalf("answer is %s", out)
	}
	return r.Response
}

func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func TestHandlerServesAGuest(t *testing.T) {
	cfg := config(t, "labels", requiredLabels)
	cfg.GuestConfig = []byte(`{"labels":["owner"],"registries":["registry.example.com/"]}`)
	url := serve(t, &admission.Handler{Validator: admission.NewEngine(load(t, cfg))})

	got := postReview(t, url+"/validate?timeout=5s", review("uid-1", `{"metadata":{"labels":{"owner":"shop"}},"spec":{"containers":[{"name":"web","image":"registry.example.com/web:latest"}]}}`))
	want := allowed()
	want.Warnings = []string{"container web: the tag latest may be another image tomorrow"}
	compare(t, want, got)

	got = postReview(t, url, review("uid-2", `{"metadata":{},"spec":{"containers":[{"image":"nginx"}]}}`))
	const label, image = "metadata.labels[owner]: Required value: every Pod must have it", `spec.containers[0].image: Invalid value: "nginx": must come from registry.example.com/`
	if got.UID != "uid-2" || got.Allowed || got.Result.Code != 422 || got.Result.Message != "labels: "+label+"; "+image || len(got.Result.Details.Causes) != 2 {
		t.Errorf("answer is %+v", got)
	}

	large := `{"metadata":{"labels":{"owner":"shop"}},"data":"` + strings.Repeat("x", 3<<20) + `"}`
	if got := postReview(t, url, review("uid-3", large)); !got.Allowed || got.UID != "uid-3" {
		t.Errorf("answer to an object of 3 MiB is %+v", got)
	}
}

func TestHandlerRefusesWhatIsNoReview(t *testing.T) {
	handler := &admission.Handler{Validator: allowAll}
	url := serve(t, handler)
	long := review("uid-1", `"`+strings.Repeat("x", admission.DefaultMaxBodyBytes)+`"`)
	const tooLong = "the review of Pod shop/web (CREATE) is too long: %s; make the object smaller, or raise the webhook's limits for reviews"
	tests := []struct {
		name        string
		contentType string
		body        io.Reader
		wantCode    int
		want        string
	}{
		{"other media type", "application/yaml", strings.NewReader("{}"), 415, `content type is "application/yaml", want application/json`},
		{"no media type", "", strings.NewReader("{}"), 415, `content type is "", want application/json`},
		{"malformed media type", "application/json;;", strings.NewReader("{}"), 415, `content type is "application/json;;", want application/json`},
		{"too long, announced", "application/json", strings.NewReader(long), 413, fmt.Sprintf(tooLong, fmt.Sprintf("body has %d bytes, more than 26214400", len(long)))},
		{"too long, in chunks", "application/json", io.MultiReader(strings.NewReader(long)), 413, fmt.Sprintf(tooLong, "body has more than 26214400 bytes")},
		{"nothing", "application/json", strings.NewReader(""), 400, "decode admission review: unexpected end of JSON input"},
		{"no JSON", "application/json", strings.NewReader("hello"), 400, "decode admission review: invalid character 'h' looking for beginning of value"},
		{"cut off", "application/json", strings.NewReader(review("u", "{}")[:50]), 400, "decode admission review: unexpected end of JSON input"},
		{"something behind it", "application/json", strings.NewReader(review("u", "{}") + "{}"), 400, "decode admission review: invalid character '{' after top-level value"},
		{"null", "application/json", strings.NewReader("null"), 400, "body is (none) (none), want admission.k8s.io/v1 AdmissionReview"},
		{"an array", "application/json", strings.NewReader("[]"), 400, "decode admission review: the body is array, want object"},
		{"other kind", "application/json", strings.NewReader(`{"apiVersion":"v1","kind":"Pod"}`), 400, `body is "v1" "Pod", want admission.k8s.io/v1 AdmissionReview`},
		{"other version", "application/json", strings.NewReader(strings.Replace(review("u", "{}"), "io/v1", "io/v1beta1", 1)), 400, `body is "admission.k8s.io/v1beta1" "AdmissionReview", want admission.k8s.io/v1 AdmissionReview`},
		{"names in another case", "application/json", strings.NewReader(strings.Replace(review("u", "{}"), `"request"`, `"Request"`, 1)), 400, "admission review has no request"},
		{"no request", "application/json", strings.NewReader(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`), 400, "admission review has no request"},
		{"a member that occurs twice", "application/json", strings.NewReader(strings.Replace(review("u", "{}"), `"name":"web"`, `"name":"web","name":"db"`, 1)), 400, "decode admission review: request.name occurs twice"},
		{"no uid", "application/json", strings.NewReader(review("", "{}")), 400, "request of the admission review has no uid"},
		{"wrong type", "application/json", strings.NewReader(strings.Replace(review("u", "{}"), `"CREATE"`, "7", 1)), 400, "decode admission review: request.operation is number, want string"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			code, out := post(t, url, test.contentType, test.body)
			if got := statusOf(t, code, out); code != test.wantCode || got != test.want {
				t.Errorf("answer is %d %q, want %d %q", code, got, test.wantCode, test.want)
			}
		})
	}
	t.Run("other method", func(t *testing.T) {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
			t.Errorf("answer is %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
		}
	})
	t.Run("encoded body", func(t *testing.T) {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("\x1f\x8b"))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Content-Encoding", "gzip")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := statusOf(t, w.Code, w.Body.String()); w.Code != 415 || got != `content encoding is "gzip", want none` || w.Header().Get("Accept-Encoding") != "identity" {
			t.Errorf("answer is %d %q, %v", w.Code, got, w.Header())
		}
	})
	t.Run("body that ends early", func(t *testing.T) {
		r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader("{"), &failingReader{}))
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = 9
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := statusOf(t, w.Code, w.Body.String()); w.Code != 400 || got != "body is cut off after 1 of 9 bytes" {
			t.Errorf("answer is %d %q", w.Code, got)
		}
	})
	t.Run("bad timeout", func(t *testing.T) {
		for _, timeout := range []string{"soon", "-1s", "0s", "10"} {
			code, out := post(t, url+"?timeout="+timeout, "application/json", strings.NewReader(review("u", "{}")))
			if want := fmt.Sprintf("timeout is %q, want a duration such as 10s", timeout); code != 400 || statusOf(t, code, out) != want {
				t.Errorf("answer is %d %q, want 400 %q", code, out, want)
			}
		}
	})
}

// statusOf returns the message of an answer that is a Status with its code.
func statusOf(t testing.TB, code int, answer string) string {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(answer), &s); err != nil || s.Kind != "Status" || s.APIVersion != "v1" || s.Status != "Failure" || int(s.Code) != code {
		t.Errorf("answer is no Status with code %d: %s", code, answer)
	}
	return s.Message
}

// failingReader is a connection that is gone.
type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestHandlerTakesMediaTypesWithParameters(t *testing.T) {
	url := serve(t, &admission.Handler{Validator: allowAll})
	code, out := post(t, url, "Application/JSON; charset=utf-8", strings.NewReader(review("uid-1", "{}")))
	if want := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"uid-1","allowed":true}}`; code != 200 || out != want {
		t.Errorf("answer is %d %s\nwant 200 %s", code, out, want)
	}
}

func TestHandlerHandsTheObjectOnAsItCameIn(t *testing.T) {
	object := `{ "a" : 1.50e+01, "b":"\u00e4\/", "c" : [ ] }`
	var got *admissionv1.AdmissionRequest
	url := serve(t, &admission.Handler{Validator: validatorFunc(func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		got = r
		return &admissionv1.AdmissionResponse{Allowed: true}
	})})
	postReview(t, url, review("uid-1", object))
	if string(got.Object.Raw) != object || got.OldObject.Raw != nil || string(got.Options.Raw) != `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}` {
		t.Errorf("object %s\noldObject %s\noptions %s", got.Object.Raw, got.OldObject.Raw, got.Options.Raw)
	}
}

func TestHandlerAnswersForAValidatorThatIsBroken(t *testing.T) {
	var log bytes.Buffer
	broken := func(message string) *admissionv1.AdmissionResponse { return denied(500, "InternalError", message) }
	patchType := admissionv1.PatchTypeJSONPatch
	tests := []struct {
		name      string
		validator admission.Validator
		want      *admissionv1.AdmissionResponse
	}{
		{"it panics", validatorFunc(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { panic("oops") }), broken("admission panicked")},
		{"it is missing", nil, broken("admission panicked")},
		{"it gives no answer", validatorFunc(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }), broken("admission returned no answer")},
		{"it patches, though it validates, and answers another request", validatorFunc(func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{UID: "other", Allowed: true, Patch: []byte("[]"), PatchType: &patchType}
		}), allowed()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			url := serve(t, &admission.Handler{Validator: test.validator, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			compare(t, test.want, postReview(t, url, review("uid-1", "{}")))
		})
	}
	if text := log.String(); !strings.Contains(text, "uid=uid-1 panic=oops stack=") {
		t.Errorf("log is %s", text)
	}
}

func TestHandlerKeepsItsDeadlineBelowTheTimeout(t *testing.T) {
	var left time.Duration
	url := serve(t, &admission.Handler{Validator: validatorFunc(func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		deadline, _ := ctx.Deadline()
		left = time.Until(deadline)
		return &admissionv1.AdmissionResponse{Allowed: true}
	})})
	for query, want := range map[string]time.Duration{
		"":              9500 * time.Millisecond,
		"?timeout=1s":   900 * time.Millisecond,
		"?timeout=10s":  9500 * time.Millisecond,
		"?timeout=1h":   29500 * time.Millisecond,
		"?timeout=20ms": 10 * time.Millisecond,
	} {
		postReview(t, url+query, review("uid-1", "{}"))
		if left > want || left < want-5*time.Second {
			t.Errorf("with %q %v are left, want at most %v", query, left, want)
		}
	}
}

func TestHandlerEndsWithTheClient(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	url := serve(t, &admission.Handler{Validator: validatorFunc(func(ctx context.Context, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil
	})})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"?timeout=30s", strings.NewReader(review("uid-1", "{}")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Fatal("the client did not give up")
	}
	if err := <-ended; err != context.Canceled {
		t.Errorf("context ended with %v", err)
	}
}

// Many clients at once get the answers to their own requests, while the guest
// traps on some of them.
func TestHandlerHammer(t *testing.T) {
	cfg := config(t, "scripted", scripted)
	cfg.Limits.Instances = 3
	other := config(t, "other", rulebreaker)
	url := serve(t, &admission.Handler{Validator: admission.NewEngine(load(t, cfg), load(t, other))})
	const requests = 60
	var wg sync.WaitGroup
	for client := range 16 {
		wg.Go(func() {
			for i := range requests {
				uid := fmt.Sprintf("uid-%d-%d", client, i)
				script, value := "deny", uid
				if i%20 == 7 {
					script, value = "panic", "at the disco"
				}
				got := postReview(t, url, review(uid, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, script, value)))
				want := "scripted: " + uid
				if string(got.UID) != uid || got.Allowed || script == "deny" && got.Result.Message != want || script == "panic" && got.Result.Code != 500 {
					t.Errorf("answer to %s is %+v, %+v", uid, got, got.Result)
				}
			}
		})
	}
	wg.Wait()
}

// FuzzHandler: whatever is sent, there is an answer, and one that a review can
// be read from says for which.
func FuzzHandler(f *testing.F) {
	f.Add([]byte(review("uid-1", `{"metadata":{"labels":{"a":"b"}}}`)), "application/json", "timeout=10s")
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"\u0000\ud800","userInfo":{"extra":{"a":["b",null]}}}}`), "application/json", "")
	f.Add([]byte(`{"request":{"uid":1}}`), "text/plain", "timeout=%zz")
	f.Add([]byte(strings.Repeat("[", 20000)), "application/json", "")
	handler := &admission.Handler{Validator: validatorFunc(func(_ context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if len(r.Object.Raw)%3 == 1 {
			panic("fuzz")
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	})}
	f.Fuzz(func(t *testing.T, body []byte, contentType, query string) {
		r := httptest.NewRequest(http.MethodPost, "/validate", bytes.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK:
			var sent, got admissionv1.AdmissionReview
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Response == nil {
				t.Fatalf("answer is %s: %v", w.Body, err)
			}
			if err := json.Unmarshal(body, &sent); err == nil && sent.Request != nil && got.Response.UID == "" {
				t.Fatalf("answer to %s has no uid: %s", body, w.Body)
			}
			if diff := cmp.Diff(metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, got.TypeMeta); diff != "" {
				t.Fatal(diff)
			}
		case http.StatusBadRequest, http.StatusUnsupportedMediaType, http.StatusRequestEntityTooLarge:
			if strings.Count(w.Body.String(), "\n") != 1 {
				t.Fatalf("answer is not one line: %q", w.Body)
			}
		default:
			t.Fatalf("status is %d: %s", w.Code, w.Body)
		}
	})
}

// FuzzWebhook: whatever reviews hold, guests that handlers ask do no harm, a
// validating webhook never patches, and what a mutating one answers is a patch
// that the API server can apply.
func FuzzWebhook(f *testing.F) {
	for _, object := range []string{
		`{"metadata":{"annotations":{"label":"a=b","trail":""}}}`, `{"metadata":{"annotations":{"set-object":"{\"a\":[1]}"}}}`,
		`{"metadata":{"annotations":{"deny":"\u0000\ud800","warn":"\n|\u2028","audit":"=\u0000"}}}`,
		`{"metadata":[]}`, `{"metadata":{"labels":null,"annotations":{"label":"x="}}}`, `[]`, `null`, `"x"`, `{"metadata":{"annotations":{"proto":""}}}`,
	} {
		f.Add(object, `{}`, "CREATE", "u")
	}
	f.Add(strings.Repeat("[", 9000)+strings.Repeat("]", 9000), `1`, "DELETE", "\x00")
	cfg := config(f, "scripted", scripted)
	cfg.AllowedToMutate = true
	cfg.GuestConfig = []byte(`{"mark":"m"}`)
	engine := admission.NewEngine(load(f, cfg))
	handlers := []*admission.Handler{{Validator: engine}, {Mutator: engine}}
	f.Fuzz(func(t *testing.T, object, old, operation, uid string) {
		body, err := json.Marshal(map[string]any{
			"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
			"request": map[string]any{"uid": "u" + uid, "operation": operation, "kind": map[string]string{"version": "v1", "kind": "Pod"},
				"object": json.RawMessage(object), "oldObject": json.RawMessage(old)},
		})
		if err != nil {
			return // No JSON: FuzzHandler has that.
		}
		var sent admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatal(err)
		}
		for _, h := range handlers {
			r := httptest.NewRequest(http.MethodPost, "/?timeout=10s", bytes.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			var got admissionv1.AdmissionReview
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || got.Response == nil || got.Response.UID != sent.Request.UID {
				t.Fatalf("answer to %s is %d %s", body, w.Code, w.Body)
			}
			patch := got.Response.Patch
			if (patch != nil) != (got.Response.PatchType != nil) || patch != nil && (h.Mutator == nil || !got.Response.Allowed) {
				t.Fatalf("answer to %s is %s", body, w.Body)
			}
			if patch == nil {
				continue
			}
			operations, err := upstream.DecodePatch(patch)
			if err != nil {
				t.Fatalf("patch %s: %v", patch, err)
			}
			if _, err := operations.Apply(sent.Request.Object.Raw); err != nil {
				t.Fatalf("patch %s of %s: %v", patch, object, err)
			}
		}
	})
}

func BenchmarkHandler(b *testing.B) {
	pod := string(podJSON(b))
	handler := &admission.Handler{Validator: allowAll}
	body := review("705ab4f5-6393-11e8-b7cc-42010a800002", pod)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		r := httptest.NewRequest(http.MethodPost, "/validate?timeout=10s", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}

// Many bodies at once are never more than the limit, and each that is read is right.
func TestBodiesAreBounded(t *testing.T) {
	const most = 1 << 20
	bodies := admission.NewBodies(admission.BodyLimits{Bytes: most, AddressBytes: most, Wait: time.Minute})
	url := serve(t, &admission.Handler{Validator: allowAll, Bodies: bodies})
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for range 5 {
				code, out := post(t, url, "application/json", strings.NewReader(review("u", `"`+strings.Repeat("x", 200<<10)+`"`)))
				if code != 200 {
					t.Errorf("answer is %d %s", code, out)
				}
				if held := bodies.Held(); held > most {
					t.Errorf("%d bytes are held", held)
				}
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(time.Minute); bodies.Held() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are held", bodies.Held())
		}
	}
}
