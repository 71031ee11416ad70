package main

import (
	"context"
	"encoding/hex"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// collector keeps what a server sends by OTLP.
type collector struct {
	collectormetrics.UnimplementedMetricsServiceServer

	mu sync.Mutex
	// metrics are the names of metrics, and spans the names of spans with their traces and
	// policies.
	metrics, spans []string
}

func (c *collector) Export(_ context.Context, r *collectormetrics.ExportMetricsServiceRequest) (*collectormetrics.ExportMetricsServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.ResourceMetrics {
		for _, scope := range resource.ScopeMetrics {
			for _, metric := range scope.Metrics {
				c.metrics = append(c.metrics, metric.Name)
			}
		}
	}
	return &collectormetrics.ExportMetricsServiceResponse{}, nil
}

// traces is the collector's service of spans, whose method has the name of that of metrics.
type traces struct {
	collectortrace.UnimplementedTraceServiceServer
	*collector
}

func (t traces) Export(_ context.Context, r *collectortrace.ExportTraceServiceRequest) (*collectortrace.ExportTraceServiceResponse, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, resource := range r.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				text := span.Name + " " + hex.EncodeToString(span.TraceId)
				for _, a := range span.Attributes {
					if a.Key == "policy_id" {
						text += " " + a.Value.GetStringValue()
					}
				}
				t.spans = append(t.spans, text)
			}
		}
	}
	return &collectortrace.ExportTraceServiceResponse{}, nil
}

// What was counted and traced has reached the collector when the server has ended.
func TestTelemetryReachesACollector(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	got := new(collector)
	server := grpc.NewServer()
	collectormetrics.RegisterMetricsServiceServer(server, got)
	collectortrace.RegisterTraceServiceServer(server, traces{collector: got})
	go server.Serve(listener)
	t.Cleanup(server.Stop)

	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "policy.wasm"), saying(t, `{"accepted":true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "policies.yml"), []byte(`{"clusterwide-p": {"module": "file://`+filepath.Join(dir, "policy.wasm")+`"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	env := map[string]string{
		"KUBEWARDEN_BIND_ADDRESS": "127.0.0.1", "KUBEWARDEN_PORT": freePort(t), "KUBEWARDEN_READINESS_PROBE_PORT": freePort(t), "KUBEWASM_DRAIN_DELAY": "0s",
		"KUBEWARDEN_POLICIES": filepath.Join(dir, "policies.yml"), "KUBEWARDEN_POLICIES_DOWNLOAD_DIR": dir,
		"KUBEWARDEN_ENABLE_METRICS": "true", "KUBEWARDEN_LOG_FMT": "otlp",
	}
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	t.Run("the server", func(t *testing.T) {
		start(t, env)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+env["KUBEWARDEN_PORT"]+"/validate/clusterwide-p", strings.NewReader(review))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("answer is %s", resp.Status)
		}
	})
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, want := range []string{"kubewarden_policy_evaluations_total", "kubewarden_policy_evaluation_latency_milliseconds"} {
		if !strings.Contains(strings.Join(got.metrics, "\n"), want) {
			t.Errorf("the collector has no %s: %q", want, got.metrics)
		}
	}
	if want := "validation " + trace + " clusterwide-p"; !strings.Contains(strings.Join(got.spans, "\n"), want) {
		t.Errorf("the collector has no span %s: %q", want, got.spans)
	}
}
