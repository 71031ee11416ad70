package hosttrace

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/kubewasm/kubewasm/host"
)

// The attributes of spans and of their events.
const (
	// pluginKey is the name of the plugin, on every span.
	pluginKey = attribute.Key("kubewasm.plugin")
	// functionKey is the export that was called.
	functionKey = attribute.Key("kubewasm.function")
	// fuelKey is the fuel that the call used.
	fuelKey = attribute.Key("kubewasm.fuel")
	// digestKey is the SHA-256 of the built module, in hexadecimal; missing if it could not be
	// fetched.
	digestKey = attribute.Key("kubewasm.digest")
	// outputKey is the output of the guest in a call that failed, in the event
	// of the failure.
	outputKey = attribute.Key("kubewasm.output")
)

const scope = "github.com/kubewasm/kubewasm/host/hosttrace"

// observer records the calls and builds of plugins as spans. It may observe any
// number of plugins and is safe for use by several goroutines.
type observer struct {
	tracer trace.Tracer
}

var _ host.Observer = (*observer)(nil)

// New returns an Observer that records the calls and builds of plugins as spans of provider. It may
// observe any number of plugins.
func New(provider trace.TracerProvider) host.Observer {
	return &observer{tracer: provider.Tracer(scope)}
}

// Called implements [host.Observer].
//
// 0 allocs if the caller is not traced: TestCallsOfUntracedCallersDoNotAllocate.
func (o *observer) Called(ctx context.Context, c host.CallEvent) {
	// The tracer would find the same, after it has made a span's name and
	// options.
	if parent := trace.SpanFromContext(ctx); !parent.IsRecording() && !parent.SpanContext().IsSampled() {
		return
	}
	_, span := o.tracer.Start(ctx, "call "+c.Plugin+"/"+c.Function, trace.WithTimestamp(c.Start))
	if span.IsRecording() {
		span.SetAttributes(pluginKey.String(c.Plugin), functionKey.String(c.Function), fuelKey.Int64(c.Fuel))
	}
	end(span, c.Start.Add(c.Duration), c.Err)
}

// Built implements [host.Observer].
func (o *observer) Built(ctx context.Context, b host.BuildEvent) {
	verb := "load "
	if b.Swap {
		verb = "swap "
	}
	_, span := o.tracer.Start(ctx, verb+b.Plugin, trace.WithTimestamp(b.Start))
	if span.IsRecording() {
		span.SetAttributes(pluginKey.String(b.Plugin))
		if b.Digest != "" {
			span.SetAttributes(digestKey.String(b.Digest))
		}
	}
	end(span, b.Start.Add(b.Duration), b.Err)
}

// Refused implements [host.Observer]. It records the error on the caller's span, since there is no
// call to have one.
func (o *observer) Refused(ctx context.Context, plugin string, err error) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.RecordError(err, trace.WithAttributes(pluginKey.String(plugin)))
	}
}

// Restarted implements [host.Observer]. It records nothing: an instance begins
// anew outside of any call, and the call that caused it has a span.
func (o *observer) Restarted(string, bool) {}

// CacheHits implements [host.Observer]: a call that does not run has no span.
func (o *observer) CacheHits(string, string, uint64) {}

// end ends a span with its result.
func end(span trace.Span, at time.Time, err error) {
	if err != nil && span.IsRecording() {
		var attributes []attribute.KeyValue
		if trap, ok := errors.AsType[*host.TrapError](err); ok {
			if trap.Stack != "" {
				attributes = append(attributes, semconv.ExceptionStacktrace(trap.Stack))
			}
			if trap.Output != "" {
				attributes = append(attributes, outputKey.String(trap.Output))
			}
		}
		span.RecordError(err, trace.WithTimestamp(at), trace.WithAttributes(attributes...))
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(trace.WithTimestamp(at))
}
