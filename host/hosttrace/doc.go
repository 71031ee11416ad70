// Package hosttrace records the calls and builds of the plugins of a runtime as OpenTelemetry
// spans.
//
// The result of [New] is the Observer of a plugin's configuration:
//
//	spans := hosttrace.New(otel.GetTracerProvider())
//	plugin, err := rt.Load(ctx, host.Config{Name: "zone", Observer: spans, …})
//
// A call becomes a span "call zone/filter" below the span of the context that it was made with, a
// build becomes "load zone" or "swap zone". A span has the attributes of this package and the times
// that the host measured. One that failed has the status Error with the error as its description,
// and an event "exception"; for a guest that trapped the event holds the stack of its functions and
// its output, such as the panic of a Go guest.
//
// # Which calls are recorded
//
// A call is recorded if its caller is being traced: its span records, or comes from another process
// and is sampled. A scheduler calls Filter for thousands of nodes; a trace for each of them would
// be of no use, so a call without a parent has no span. A call that is not recorded costs a lookup
// in its context. Builds are rare and always offered to the sampler.
//
// The span of a call is made when the call has ended. Spans that host functions record meanwhile
// with Instance.Context lie beside it, below the caller's span.
//
// # Logs
//
// A guest's log lines go to Config.Logger with the context of the call, so a slog.Handler that adds
// the IDs of traces finds the caller's span.
package hosttrace
