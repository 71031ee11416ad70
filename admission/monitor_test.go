package admission_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

// reported passes decisions on.
type reported chan admission.Decision

func (r reported) Decided(_ context.Context, d admission.Decision) {
	d.Duration, d.Err = 0, nil
	r <- d
}

// slowLabels returns the labels of namespaces when gate is closed, or ctx ends.
func slowLabels(gate <-chan struct{}) admission.NamespaceLabels {
	return func(ctx context.Context, _ string) (map[string]string, error) {
		select {
		case <-gate:
			return map[string]string{"a": "b"}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// slowMonitor returns a policy that only monitors, and decides when gate is closed.
func slowMonitor(t *testing.T, name string, gate <-chan struct{}, seen admission.Observer) *admission.Plugin {
	return script(t, name, "", func(c *admission.PluginConfig) {
		c.Mode, c.PolicyRules.Observer, c.Namespaces = host.Monitor, seen, slowLabels(gate)
		c.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	})
}

// TestRequestsDoNotWaitForAPolicyThatMonitors holds that what such a policy says comes after the
// answers, that those which outlive their requests are bounded, and that a policy is not closed
// before.
func TestRequestsDoNotWaitForAPolicyThatMonitors(t *testing.T) {
	for webhook, ask := range map[string]func(*admission.Engine, context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"validate": (*admission.Engine).Validate,
		"mutate":   (*admission.Engine).Mutate,
	} {
		t.Run(webhook, func(t *testing.T) {
			const requests, outlive = 20, 8
			gate, seen := make(chan struct{}), make(reported, 2*requests)
			open := sync.OnceFunc(func() { close(gate) })
			defer open()
			e := admission.NewEngine(slowMonitor(t, "trial", gate, seen), script(t, "guard", "", nil))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			dropped := admission.Decision{Policy: "trial", Mode: host.Monitor, Mutating: webhook == "mutate", Verdict: admission.Dropped, Late: true}
			for n := range requests {
				compare(t, allowed(), ask(e, ctx, request(t)))
				if want := max(0, n+1-outlive); len(seen) != want {
					t.Fatalf("after %d requests %d decisions are told, want %d", n+1, len(seen), want)
				}
			}
			denied := ask(e, ctx, request(t, "deny", "no"))
			if denied.Allowed || denied.Result.Message != "guard: no" {
				t.Errorf("the policy beside it: %+v", denied.Result)
			}
			for range requests + 1 - outlive {
				if diff := cmp.Diff(dropped, <-seen); diff != "" {
					t.Errorf("a request for which there was no room (-want +got):\n%s", diff)
				}
			}
			drained := e.Replace()
			select {
			case <-drained:
				t.Error("the policies are not in use any more")
			default:
			}
			open()
			late := dropped
			late.Verdict = admission.Allowed
			for range outlive {
				if diff := cmp.Diff(late, <-seen); diff != "" {
					t.Errorf("a verdict after the answer (-want +got):\n%s", diff)
				}
			}
			<-drained
		})
	}
}

// TestMonitorsRecover holds that a policy that was slow once is waited for again.
func TestMonitorsRecover(t *testing.T) {
	gate, seen := make(chan struct{}), make(reported, 100)
	e := admission.NewEngine(slowMonitor(t, "trial", gate, seen))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	compare(t, allowed(), e.Validate(ctx, request(t)))
	close(gate)
	for !(<-seen).Late {
		t.Error("the request has waited")
	}
	want := allowed()
	want.Warnings = []string{"careful"}
	for range 50 {
		got := e.Validate(ctx, request(t, "warn", "careful"))
		<-seen
		if cmp.Diff(want, got) == "" {
			return
		}
	}
	t.Error("the warnings of a policy that is quick again do not come back")
}

// TestBodiesOfLateRequests holds that a body counts as long as a policy that monitors has it, and
// that such a policy gets none for which there is no room.
func TestBodiesOfLateRequests(t *testing.T) {
	for name, test := range map[string]struct {
		bytes int64
		want  admission.Outcome
	}{
		"with room for what is late": {64 << 20, admission.Allowed},
		"without room":               {16 << 10, admission.Dropped},
	} {
		t.Run(name, func(t *testing.T) {
			gate, seen := make(chan struct{}), make(reported, 1)
			open := sync.OnceFunc(func() { close(gate) })
			defer open()
			bodies := admission.NewBodies(admission.BodyLimits{Bytes: test.bytes})
			h := &admission.Handler{Validator: admission.NewEngine(slowMonitor(t, "trial", gate, seen)), Bodies: bodies}
			review, err := json.Marshal(admissionv1.AdmissionReview{
				TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request(t, "long", strings.Repeat("x", 4<<10)),
			})
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?timeout=20s", strings.NewReader(string(review)))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"allowed":true`) {
				t.Fatalf("answer is %d: %s", w.Code, w.Body)
			}
			if held := bodies.Held(); (held >= int64(len(review))) != (test.want == admission.Allowed) {
				t.Errorf("after the answer %d bytes are held, the body has %d", held, len(review))
			}
			if test.want == admission.Allowed {
				open()
			}
			if got := <-seen; got.Verdict != test.want || !got.Late {
				t.Errorf("decision is %+v", got)
			}
			for bodies.Held() != 0 && t.Context().Err() == nil {
				time.Sleep(time.Millisecond) // The decision is told before the end of the call.
			}
		})
	}
}

// TestIgnoreTakesNotAllOfTheTime holds that policies whose failures are ignored leave time to those
// whose failures deny.
func TestIgnoreTakesNotAllOfTheTime(t *testing.T) {
	policies := []admission.Policy{script(t, "last", "", nil)}
	for _, name := range []string{"a", "b", "c"} {
		policies = append(policies, script(t, name, "", func(c *admission.PluginConfig) {
			c.Order, c.FailurePolicy, c.Namespaces = -1, host.Ignore, slowLabels(nil) // Until the end of its time.
			c.Match.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		}))
	}
	e := admission.NewEngine(policies...)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	r := request(t, "label", "x=y")
	got := e.Mutate(ctx, r)
	if err := ctx.Err(); err != nil {
		t.Error(errors.Join(errors.New("all of the time is over"), err))
	}
	if object := patched(t, r, got); object["metadata"].(map[string]any)["labels"].(map[string]any)["x"] != "y" {
		t.Errorf("object is %v", object)
	}
	if len(got.Warnings) != 3 || !strings.HasSuffix(got.Warnings[0], "(ignored)") {
		t.Errorf("warnings are %q", got.Warnings)
	}
}
