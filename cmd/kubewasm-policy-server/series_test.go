package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
)

func newTestTelemetry(t *testing.T) (*telemetry, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	tel, err := newTelemetry(t.Context(), &options{}, registry, nil, "host", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tel, registry
}

// evaluations returns the values of the series of evaluations that have all labels.
func evaluations(t *testing.T, registry *prometheus.Registry, labels map[string]string) (found []float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "kubewarden_policy_evaluations_total" {
			continue
		}
		for _, m := range family.Metric {
			matching := 0
			for _, l := range m.Label {
				if labels[l.GetName()] == l.GetValue() {
					matching++
				}
			}
			if matching == len(labels) {
				found = append(found, m.Counter.GetValue())
			}
		}
	}
	return found
}

func total(series []float64) (n float64) {
	for _, value := range series {
		n += value
	}
	return n
}

func evaluated(policy, kind, namespace string, accepted bool) *policyserver.Evaluated {
	return &policyserver.Evaluated{
		Policy: policy, Mode: "protect", Origin: "validate", Accepted: accepted,
		Request:  &admissionv1.AdmissionRequest{RequestKind: &metav1.GroupVersionKind{Kind: kind}, Namespace: namespace, Operation: "CREATE"},
		Response: &admissionv1.AdmissionResponse{Allowed: accepted},
	}
}

func TestDenialsAreCountedWhateverClientsHaveSentBefore(t *testing.T) {
	tel, registry := newTestTelemetry(t)
	const sent = 3000
	for i := range sent {
		tel.Evaluated(t.Context(), evaluated("attacked", fmt.Sprintf("Kind%d", i), fmt.Sprintf("namespace-%d", i), true))
	}
	for range 7 {
		tel.Evaluated(t.Context(), evaluated("attacked", "Pod", "shop", false))
		tel.Evaluated(t.Context(), evaluated("another", "Pod", "shop", false))
	}
	if got := total(evaluations(t, registry, map[string]string{"policy_name": "attacked", "accepted": "true"})); got != sent {
		t.Errorf("%g requests are counted, want %d", got, sent)
	}
	if got := total(evaluations(t, registry, map[string]string{"policy_name": "attacked", "accepted": "false"})); got != 7 {
		t.Errorf("%g denials of the policy are counted, want 7", got)
	}
	if got := total(evaluations(t, registry, map[string]string{"policy_name": "another", "accepted": "false", "resource_kind": "Pod", "resource_namespace": "shop"})); got != 7 {
		t.Errorf("%g denials of another policy are counted with their labels, want 7", got)
	}
	if got := len(evaluations(t, registry, nil)); got > maxSetsOfPolicy+10 {
		t.Errorf("there are %d series", got)
	}
}

func TestDenialsOfPoliciesBeyondAllBoundsAreCounted(t *testing.T) {
	tel, registry := newTestTelemetry(t)
	const policies = maxSets + maxPolicySets + 100
	for i := range policies {
		tel.Evaluated(t.Context(), evaluated(fmt.Sprintf("namespaced-%d", i), "Pod", "shop", false))
	}
	if got := total(evaluations(t, registry, map[string]string{"accepted": "false"})); got != policies {
		t.Errorf("%g denials are counted, want %d", got, policies)
	}
	if got := total(evaluations(t, registry, map[string]string{"accepted": "false", "policy_name": other})); got != 100 {
		t.Errorf("%g denials are counted without their policy, want 100", got)
	}
	if got := len(evaluations(t, registry, nil)); got != maxSets+maxPolicySets+1 {
		t.Errorf("there are %d series, want %d", got, maxSets+maxPolicySets+1)
	}
}

// TestMetricsAreServedWhateverErrorsSay holds that a label is cut between characters: a series
// that is not UTF-8 would end the page of all metrics.
func TestMetricsAreServedWhateverErrorsSay(t *testing.T) {
	for _, test := range []struct{ name, text string }{
		{"two bytes to a character, and an even limit", strings.Repeat("é", 200)},
		{"two bytes to a character, and one before", "x" + strings.Repeat("é", 200)},
		{"four bytes to a character", "xyz" + strings.Repeat("😀", 100)},
		{"bytes that are not UTF-8", strings.Repeat("\xff", 300)},
	} {
		t.Run(test.name, func(t *testing.T) {
			tel, registry := newTestTelemetry(t)
			tel.Loaded("p", errors.New(test.text))
			e := evaluated("p", test.text, test.text, false)
			e.Request.Operation = admissionv1.Operation(test.text)
			tel.Evaluated(t.Context(), e)
			e.Initialization = errors.New(test.text)
			tel.Evaluated(t.Context(), e)
			w := httptest.NewRecorder()
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			if w.Code != http.StatusOK {
				t.Fatalf("GET /metrics is %d: %.300s", w.Code, w.Body)
			}
			got := [2]float64{total(evaluations(t, registry, map[string]string{"policy_name": "p"})), float64(strings.Count(w.Body.String(), "kubewarden_policy_initialization_errors_total{"))}
			if diff := cmp.Diff([2]float64{2, 1}, got); diff != "" {
				t.Errorf("evaluations and series of failed loads (-want +got):\n%s", diff)
			}
		})
	}
}
