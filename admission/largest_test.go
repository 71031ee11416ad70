package admission_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/kubewasm/kubewasm/admission"
)

// storedBytes is what an API server can send to etcd of an object with its key.
const storedBytes = 2<<20 - 512

// largestReview is the review of an update of the largest Pod that an API server can
// store, each byte of which becomes six of JSON: as an API server writes it.
func largestReview(t testing.TB) []byte {
	t.Helper()
	pod := func(name string) *corev1.Pod {
		p := &corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "big", Namespace: "shop", Labels: map[string]string{"owner": name}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example.com/web:1", Args: []string{""}}}},
		}
		p.Spec.Containers[0].Args[0] = strings.Repeat("<", storedBytes-p.Size()-8)
		if n := p.Size(); n > storedBytes || n < storedBytes-16 {
			t.Fatalf("%d bytes are stored, want %d", n, storedBytes)
		}
		return p
	}
	groups := make([]string, 20000)
	for i := range groups {
		groups[i] = fmt.Sprintf("https://id.example.com/groups/%010d", i) // 0.9 MB of headers.
	}
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "uid-1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Name: "big", Namespace: "shop", Operation: admissionv1.Update,
		Object: k8sruntime.RawExtension{Object: pod("new")}, OldObject: k8sruntime.RawExtension{Object: pod("old")},
	}}
	review.Request.UserInfo.Username, review.Request.UserInfo.Groups = "alice", groups
	scheme := k8sruntime.NewScheme()
	if err := admissionv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	var body bytes.Buffer
	if err := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme, jsonserializer.SerializerOptions{}).Encode(review, &body); err != nil {
		t.Fatal(err)
	}
	return body.Bytes()
}

// Whatever an API server can store, the defaults are enough for it: those of the
// handler, of all bodies together, and of a guest.
func TestAnyObjectThatCanBeStoredFits(t *testing.T) {
	cfg := config(t, "labels", requiredLabels)
	cfg.GuestConfig = []byte(`{"labels":["owner"],"registries":["registry.example.com/"]}`)
	engine := admission.NewEngine(load(t, cfg))
	body := largestReview(t)
	if n := len(body); n > admission.DefaultMaxBodyBytes || n < admission.DefaultMaxBodyBytes*95/100 {
		t.Fatalf("the review has %d bytes, and %d may come", n, admission.DefaultMaxBodyBytes)
	}
	url := serve(t, &admission.Handler{Validator: engine})
	got := postReview(t, url+"?timeout=30s", string(body))
	compare(t, allowed(), got)
	wrong := bytes.Replace(body, []byte("registry.example.com/web:1"), []byte("registry.example.org/web:1"), 1)
	if got := postReview(t, url+"?timeout=30s", string(wrong)); got.Allowed || got.Result.Code != 422 {
		t.Errorf("answer is %+v", got.Result)
	}
	// A mutator that hands the whole object back.
	cfg = config(t, "scripted", scripted)
	cfg.AllowedToMutate = true
	url = serve(t, &admission.Handler{Mutator: admission.NewEngine(load(t, cfg))})
	body = bytes.Replace(body, []byte(`"labels":{"owner":"new"}`), []byte(`"annotations":{"whole":"x"}`), 1)
	if got := postReview(t, url+"?timeout=30s", string(body)); !got.Allowed || len(got.Patch) == 0 {
		t.Errorf("answer is %+v", got)
	}
}

// Where a review is too long even so, it is said which.
func TestReviewThatIsTooLongIsNamed(t *testing.T) {
	const head = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"uid-1","kind":{"group":"","version":"v1","kind":"ConfigMap"},"resource":{"group":"","version":"v1","resource":"configmaps"},`
	rest := `"userInfo":{"username":"alice","groups":["dev"],"extra":{"name":["x"]}},"object":{"kind":"ConfigMap","metadata":{"generateName":"big-","labels":{"name":"no"}},"data":{"x":"` + strings.Repeat("x", 4096) + `"}}}}`
	for _, test := range []struct{ name, body, subject, log string }{
		{"an object", head + `"name":"big","namespace":"shop","operation":"UPDATE",` + rest, "ConfigMap shop/big (UPDATE)", "uid=uid-1 kind=ConfigMap namespace=shop name=big operation=UPDATE"},
		{"one without a namespace", head + `"name":"big","operation":"CREATE",` + rest, "ConfigMap big (CREATE)", `namespace="" name=big`},
		{"one that gets its name", head + `"namespace":"shop","operation":"CREATE",` + rest, "ConfigMap shop/big- (CREATE)", "namespace=shop name=big-"},
		{"one whose name is on the way", head + `"operation":"CREATE","userInfo":{"groups":["` + strings.Repeat("x", 32<<10) + `"]},"name":"big"}}`, "ConfigMap (CREATE)", `name=""`},
		{"no review", strings.Repeat("x", 4096), "an object", `uid="" kind=""`},
		{"brackets", strings.Repeat("[{", 4096), "an object", `uid=""`},
		{"the end of what has not begun", strings.Repeat("}]", 4096), "an object", `uid=""`},
		{"names of another kind", `{"request":{"name":["x"],"namespace":{"a":"b"},"kind":"x","operation":null,"uid":7,"object":[{"metadata":{"name":"x"}}]},"x":"` + strings.Repeat("x", 4096), "an object", `name=""`},
		{"a name with a line's end", head + `"name":"a\nb","operation":"CREATE",` + rest, "ConfigMap a b (CREATE)", `name="a b"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, announced := range []bool{true, false} {
				var log bytes.Buffer
				h := &admission.Handler{Validator: allowAll, MaxBodyBytes: 2048, Logger: slog.New(slog.NewTextHandler(&log, nil))}
				r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body))
				why := fmt.Sprintf("body has %d bytes, more than 2048", len(test.body))
				if !announced {
					r.ContentLength, why = -1, "body has more than 2048 bytes"
				}
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				want := "the review of " + test.subject + " is too long: " + why + "; make the object smaller, or raise the webhook's limits for reviews"
				if got := statusOf(t, 413, w.Body.String()); w.Code != 413 || announced && got != want {
					t.Errorf("answer is %d %s\nwant %s", w.Code, got, want)
				}
				if announced && !strings.Contains(log.String(), test.log) {
					t.Errorf("log is %s\nwant %s", &log, test.log)
				}
			}
		})
	}
}

// FuzzTooLong: whatever a review that is too long begins with, its answer is one line.
func FuzzTooLong(f *testing.F) {
	f.Add([]byte(review("uid-1", `{"metadata":{"name":"web"}}`)))
	f.Add([]byte(`{"request":{"object":{"metadata":{"name":"\u0000\ud800`))
	f.Add([]byte(`{"request":{"kind":{"kind":[[{}`))
	h := &admission.Handler{Validator: allowAll, MaxBodyBytes: 1}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if len(body) > 1 && w.Code != 413 || strings.Count(w.Body.String(), "\n") != 1 || w.Body.Len() > 8<<10 {
			t.Fatalf("answer is %d %q", w.Code, w.Body)
		}
	})
}

// hidden is a writer that hides its connection, as that of a middleware may.
type hidden struct{ http.ResponseWriter }

// A body that never comes ends with the request's own timeout, whatever the handler
// follows.
func TestBodyThatNeverComesEndsInTime(t *testing.T) {
	bodies := admission.NewBodies(admission.BodyLimits{Timeout: time.Hour})
	handler := &admission.Handler{Validator: allowAll, Bodies: bodies}
	middlewares := map[string]http.Handler{
		"nothing":                            handler,
		"a writer that hides the connection": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(hidden{w}, r) }),
	}
	for name, h := range middlewares {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewUnstartedServer(h)
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
				t.Run(protocol, func(t *testing.T) {
					never, writer := io.Pipe()
					t.Cleanup(func() { writer.Close() })
					go writer.Write([]byte("{")) // And no more.
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"?timeout=200ms", never)
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", "application/json")
					transport := server.Client().Transport.(*http.Transport).Clone()
					transport.ForceAttemptHTTP2 = protocol == "HTTP/2.0"
					if protocol == "HTTP/1.1" {
						transport.TLSClientConfig.NextProtos = []string{"http/1.1"}
						transport.Protocols = new(http.Protocols)
						transport.Protocols.SetHTTP1(true)
					}
					t.Cleanup(transport.CloseIdleConnections)
					resp, err := transport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					out, _ := io.ReadAll(resp.Body)
					if got := statusOf(t, http.StatusRequestTimeout, string(out)); resp.Proto != protocol || resp.StatusCode != http.StatusRequestTimeout || got != "body did not arrive in time: 1 bytes did" {
						t.Errorf("answer is %s %s %s", resp.Proto, resp.Status, out)
					}
					if held := bodies.Held(); held != 0 {
						t.Errorf("%d bytes are held", held)
					}
				})
			}
		})
	}
	t.Run("whole bodies, by bytes", func(t *testing.T) {
		text := review("uid-1", `"`+strings.Repeat("x", 300<<10)+`"`)
		r := httptest.NewRequest(http.MethodPost, "/", iotest.OneByteReader(strings.NewReader(text)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(hidden{w}, r)
		if w.Code != 200 || !strings.Contains(w.Body.String(), `"uid-1"`) {
			t.Errorf("answer is %d %s", w.Code, w.Body)
		}
	})
}
