package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// telemetry counts and traces evaluations with the names and labels of Kubewarden's
// policy-server. Collectors are configured by the variables OTEL_EXPORTER_OTLP_….
type telemetry struct {
	evaluations, initializationErrors metric.Int64Counter
	latency                           metric.Int64Histogram
	// tracer is nil if there are no spans.
	tracer trace.Tracer
	host   string
	guests *hostmetrics.Collector
	// evaluated and loaded bound the label sets of evaluations and of failed loads.
	evaluated, loaded series
	// shutdown sends what was not sent yet.
	shutdown []func(context.Context) error
}

var _ policyserver.Observer = (*telemetry)(nil)

// serviceName is the service of metrics and spans, unless OTEL_SERVICE_NAME is set.
const serviceName = "kubewarden-policy-server"

// newTelemetry returns a telemetry whose metrics registry has, and which sends them and spans
// if the settings say so. What cannot be sent is logged, and keeps no policy from being asked.
func newTelemetry(ctx context.Context, o *options, registry *prometheus.Registry, guests *hostmetrics.Collector, hostname string, logger *slog.Logger) (*telemetry, error) {
	t := &telemetry{guests: guests, host: hostname}
	about, err := resource.Merge(resource.NewSchemaless(attribute.String("service.name", serviceName)), resource.Environment())
	if err != nil {
		logger.Error("telemetry lacks the attributes of the environment", "err", err)
		about = resource.NewSchemaless(attribute.String("service.name", serviceName))
	}
	local, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	// Beyond its limit the SDK counts everything in one series without labels, so alarms
	// on a policy's denials stay silent. Type series has limits of its own.
	options := []sdkmetric.Option{sdkmetric.WithResource(about), sdkmetric.WithReader(local), sdkmetric.WithCardinalityLimit(0)}
	if o.metrics {
		if exporter, err := otlpmetricgrpc.New(ctx); err != nil {
			logger.Error("metrics are not sent", "err", err)
		} else {
			options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
		}
	}
	provider := sdkmetric.NewMeterProvider(options...)
	t.shutdown = append(t.shutdown, provider.Shutdown)
	meter := provider.Meter("kubewarden")
	var errs [3]error
	t.evaluations, errs[0] = meter.Int64Counter("kubewarden_policy_evaluations_total", metric.WithDescription("Evaluations of policies."))
	t.latency, errs[1] = meter.Int64Histogram("kubewarden_policy_evaluation_latency_milliseconds", metric.WithDescription("Duration of evaluations, in milliseconds."))
	t.initializationErrors, errs[2] = meter.Int64Counter("kubewarden_policy_initialization_errors_total", metric.WithDescription("Failed loads of policies."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if o.logFormat == "otlp" {
		if exporter, err := otlptracegrpc.New(ctx); err != nil {
			logger.Error("spans are not sent", "err", err)
		} else {
			provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithBatcher(exporter))
			t.shutdown = append(t.shutdown, provider.Shutdown)
			t.tracer = provider.Tracer(serviceName)
		}
	}
	return t, nil
}

// close sends what was not sent yet, until ctx ends.
func (t *telemetry) close(ctx context.Context, logger *slog.Logger) {
	for _, shutdown := range t.shutdown {
		if err := shutdown(ctx); err != nil {
			logger.Warn("send telemetry", "err", err)
		}
	}
}

// maxLabel is the most bytes of a label.
const maxLabel = 256

// label returns a label with what a client, a tenant or a guest said.
func label(key, value string) attribute.KeyValue {
	return attribute.String(key, cut.Text(value, maxLabel))
}

func errorLabel(err error) attribute.KeyValue { return label("initialization_error", err.Error()) }

// Evaluated implements [policyserver.Observer].
func (t *telemetry) Evaluated(ctx context.Context, e *policyserver.Evaluated) {
	if t.tracer != nil {
		t.trace(ctx, e)
	}
	policy := []attribute.KeyValue{attribute.String("policy_name", e.Policy)}
	if e.Initialization != nil {
		t.evaluations.Add(ctx, 1, metric.WithAttributeSet(t.evaluated.of(e.Policy, policy, []attribute.KeyValue{errorLabel(e.Initialization)})))
		return
	}
	policy = append(policy, attribute.String("policy_mode", e.Mode), attribute.Bool("accepted", e.Accepted), attribute.Bool("mutated", e.Mutated))
	var said []attribute.KeyValue
	if r := e.Request; r != nil {
		kind := ""
		if r.RequestKind != nil {
			kind = r.RequestKind.Kind
		}
		policy = append(policy, attribute.String("request_origin", e.Origin))
		said = append(said, label("resource_kind", kind), label("resource_request_operation", string(r.Operation)))
		if r.Namespace != "" {
			said = append(said, label("resource_namespace", r.Namespace))
		}
	}
	if e.Dropped { // The policy was not asked, or not to the end.
		policy = append(policy, attribute.Bool("dropped", true))
	}
	if e.Code != 0 {
		said = append(said, attribute.Int64("error_code", int64(e.Code)))
	}
	set := metric.WithAttributeSet(t.evaluated.of(e.Policy, policy, said))
	t.evaluations.Add(ctx, 1, set)
	t.latency.Record(ctx, e.Duration.Milliseconds(), set)
}

// spanNames are the names of spans by the origins of requests.
var spanNames = map[string]string{"validate": "validation", "audit": "audit", "validate_raw": "validation_raw"}

// trace records an evaluation as a span.
func (t *telemetry) trace(ctx context.Context, e *policyserver.Evaluated) {
	attributes := []attribute.KeyValue{
		attribute.String("host", t.host), attribute.String("policy_id", e.Policy), attribute.String("request_uid", string(e.Response.UID)),
		attribute.Bool("allowed", e.Response.Allowed), attribute.Bool("mutated", e.Response.Patch != nil),
	}
	if r := e.Request; r != nil {
		attributes = append(attributes, attribute.String("name", r.Name), attribute.String("namespace", r.Namespace), attribute.String("operation", string(r.Operation)),
			attribute.String("subresource", r.SubResource), attribute.String("kind_group", r.Kind.Group), attribute.String("kind_version", r.Kind.Version),
			attribute.String("kind", r.Kind.Kind), attribute.String("resource_group", r.Resource.Group), attribute.String("resource_version", r.Resource.Version),
			attribute.String("resource", r.Resource.Resource))
	}
	if s := e.Response.Result; s != nil {
		if s.Code != 0 {
			attributes = append(attributes, attribute.Int64("response_code", int64(s.Code)))
		}
		attributes = append(attributes, attribute.String("response_message", e.Stain().Text(s.Message)))
	}
	_, span := t.tracer.Start(ctx, spanNames[e.Origin], trace.WithTimestamp(e.Start), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	span.End(trace.WithTimestamp(e.Start.Add(e.Duration)))
}

// Loaded implements [policyserver.Observer].
func (t *telemetry) Loaded(policy string, err error) {
	if err != nil {
		name := []attribute.KeyValue{attribute.String("policy_name", policy)}
		t.initializationErrors.Add(context.Background(), 1, metric.WithAttributeSet(t.loaded.of(policy, name, []attribute.KeyValue{errorLabel(err)})))
	}
}

// Forget implements [policyserver.Observer].
func (t *telemetry) Forget(policy string) { t.guests.Forget(policy) }

// wrap returns h with the spans of API servers, which send traceparent, as the parents.
func wrap(h http.Handler) http.Handler {
	var parent propagation.TraceContext
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(parent.Extract(r.Context(), propagation.HeaderCarrier(r.Header))))
	})
}
