package hosttrace_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hosttrace"
)

func source(module string) host.Source {
	return host.File(filepath.Join("..", "testdata", module+".wasm"))
}

func newRuntime(t testing.TB) *host.Runtime {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return rt
}

// load makes a plugin named zone of a module.
func load(t testing.TB, module string, provider trace.TracerProvider, limits host.Limits) *host.Plugin {
	t.Helper()
	p, err := newRuntime(t).Load(t.Context(), host.Config{
		Name: "zone", Module: host.ModuleConfig{Source: source(module)}, Limits: limits, Observer: hosttrace.New(provider),
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newProvider(opts ...sdktrace.TracerProviderOption) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(append(opts, sdktrace.WithSyncer(exporter))...), exporter
}

// call has filter called once by an instance of the pool.
func call(ctx context.Context, t testing.TB, p *host.Plugin, pod uint64) (fuel int64, err error) {
	t.Helper()
	inst, err := p.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	_, err = inst.Call(ctx, abi.Filter, 0, pod, 0)
	return inst.FuelUsed(), err
}

func attributes(kvs []attribute.KeyValue) map[attribute.Key]any {
	m := map[attribute.Key]any{}
	for _, kv := range kvs {
		m[kv.Key] = kv.Value.AsInterface()
	}
	return m
}

// only returns the span of that name, which must be the only one.
func only(t testing.TB, exporter *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	var found tracetest.SpanStubs
	for _, s := range exporter.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans %q, want 1", len(found), name)
	}
	return found[0]
}

func TestCallsAreSpansOfTheirCaller(t *testing.T) {
	tests := map[string]struct {
		module string
		limits host.Limits
		pod    uint64
		// status begins the description, stack is found in the event, output is
		// all of it. They are empty for a call that returns.
		status, stack, output string
	}{
		"a call that returns": {module: "spins"},
		"a trap": {module: "spins", pod: 9,
			status: `plugin "zone": filter trapped: wasm error: unreachable`, stack: "spin"},
		"a trap of a guest that prints": {module: "traps", pod: 1,
			status: `plugin "zone": filter trapped: wasm error: unreachable: panic: about to fail`,
			stack:  "fail", output: "panic: about to fail\ngoroutine 1\n"},
		"a loop that runs out of fuel": {module: "spins", pod: 1, limits: host.Limits{Fuel: 10_000},
			status: `plugin "zone": filter trapped: out of fuel`, stack: "spin"},
		"a loop that runs into its timeout": {module: "spins", pod: 1, limits: host.Limits{Timeout: time.Millisecond},
			status: `plugin "zone": filter trapped: timeout of 1ms`, stack: "spin"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			provider, exporter := newProvider()
			p := load(t, test.module, provider, test.limits)
			ctx, caller := provider.Tracer("test").Start(t.Context(), "schedule Pod")
			before := time.Now()
			fuel, err := call(ctx, t, p, test.pod)
			after := time.Now()
			caller.End()
			if (err != nil) != (test.status != "") {
				t.Fatalf("got error %v", err)
			}

			span := only(t, exporter, "call zone/filter")
			if got, want := span.Parent.SpanID(), caller.SpanContext().SpanID(); got != want {
				t.Errorf("the parent is %s, want the caller %s", got, want)
			}
			if span.StartTime.Before(before) || span.EndTime.Before(span.StartTime) || span.EndTime.After(after) {
				t.Errorf("from %s to %s, want something between %s and %s", span.StartTime, span.EndTime, before, after)
			}
			want := map[attribute.Key]any{"kubewasm.plugin": "zone", "kubewasm.function": "filter", "kubewasm.fuel": fuel}
			if diff := cmp.Diff(want, attributes(span.Attributes)); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if test.status == "" {
				if span.Status.Code != codes.Unset || len(span.Events) != 0 {
					t.Errorf("got status %v and events %v, want none", span.Status, span.Events)
				}
				return
			}
			if span.Status.Code != codes.Error || !strings.HasPrefix(span.Status.Description, test.status) {
				t.Errorf("got status %v, want Error %q", span.Status, test.status)
			}
			if len(span.Events) != 1 || span.Events[0].Name != "exception" {
				t.Fatalf("got events %v, want an exception", span.Events)
			}
			event := attributes(span.Events[0].Attributes)
			if got := event["exception.message"]; got != err.Error() {
				t.Errorf("got message %q, want %q", got, err)
			}
			if got, _ := event["exception.stacktrace"].(string); !strings.Contains(got, test.stack) {
				t.Errorf("got stack %q, want one with %q", got, test.stack)
			}
			if got, _ := event["kubewasm.output"].(string); got != test.output {
				t.Errorf("got output %q, want %q", got, test.output)
			}
			if !span.Events[0].Time.Equal(span.EndTime) {
				t.Errorf("the event is at %s, want the end, %s", span.Events[0].Time, span.EndTime)
			}
		})
	}
}

func TestTimesAreThoseOfTheRecord(t *testing.T) {
	provider, exporter := newProvider()
	observer := hosttrace.New(provider)
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	defer caller.End()
	start := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	observer.Called(ctx, host.CallEvent{Plugin: "zone", Function: "score", Start: start, Duration: time.Millisecond})
	observer.Built(ctx, host.BuildEvent{Plugin: "zone", Start: start, Duration: time.Second, Err: errors.New("refused")})

	for name, want := range map[string]time.Duration{"call zone/score": time.Millisecond, "load zone": time.Second} {
		if s := only(t, exporter, name); !s.StartTime.Equal(start) || s.EndTime.Sub(s.StartTime) != want {
			t.Errorf("%s: from %s to %s, want %s from %s", name, s.StartTime, s.EndTime, want, start)
		}
	}
}

func TestBuildsAreSpans(t *testing.T) {
	provider, exporter := newProvider()
	p := load(t, "good", provider, host.Limits{})
	span := only(t, exporter, "load zone")
	want := map[attribute.Key]any{"kubewasm.plugin": "zone", "kubewasm.digest": p.Digest()}
	if diff := cmp.Diff(want, attributes(span.Attributes)); diff != "" {
		t.Errorf("attributes of the load (-want +got):\n%s", diff)
	}
	if span.Parent.IsValid() || span.Status.Code != codes.Unset {
		t.Errorf("got parent %v and status %v, want none", span.Parent, span.Status)
	}

	exporter.Reset()
	ctx, caller := provider.Tracer("test").Start(t.Context(), "roll out")
	err := p.Swap(ctx, host.File("no.wasm"), "")
	if err == nil {
		t.Fatal("a file that is not there was loaded")
	}
	caller.End()
	span = only(t, exporter, "swap zone")
	if diff := cmp.Diff(map[attribute.Key]any{"kubewasm.plugin": "zone"}, attributes(span.Attributes)); diff != "" {
		t.Errorf("attributes of the swap (-want +got):\n%s", diff)
	}
	if got, want := span.Parent.SpanID(), caller.SpanContext().SpanID(); got != want {
		t.Errorf("the parent of the swap is %s, want the caller %s", got, want)
	}
	if got, want := span.Status, (sdktrace.Status{Code: codes.Error, Description: err.Error()}); got != want {
		t.Errorf("got status %v, want %v", got, want)
	}
}

// TestWhichCallsAreRecorded goes through what a context may say about its
// caller's trace.
func TestWhichCallsAreRecorded(t *testing.T) {
	remote := func(flags trace.TraceFlags) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags, Remote: true,
			}))
		}
	}
	local := func(sampler sdktrace.Sampler) func(context.Context) context.Context {
		return func(ctx context.Context) context.Context {
			provider, _ := newProvider(sdktrace.WithSampler(sampler))
			ctx, _ = provider.Tracer("test").Start(ctx, "caller")
			return ctx
		}
	}
	tests := map[string]struct {
		caller func(context.Context) context.Context
		want   int
	}{
		"a caller without a trace":              {func(ctx context.Context) context.Context { return ctx }, 0},
		"a caller whose span is sampled":        {local(sdktrace.AlwaysSample()), 1},
		"a caller whose span is not sampled":    {local(sdktrace.NeverSample()), 0},
		"a caller elsewhere that is sampled":    {remote(trace.FlagsSampled), 1},
		"a caller elsewhere that is not traced": {remote(0), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			provider, exporter := newProvider()
			p := load(t, "noop", provider, host.Limits{})
			exporter.Reset()
			if _, err := call(test.caller(t.Context()), t, p, 0); err != nil {
				t.Fatal(err)
			}
			if got := len(exporter.GetSpans()); got != test.want {
				t.Errorf("%d spans, want %d", got, test.want)
			}
		})
	}
}

func TestCallsOfUntracedCallersDoNotAllocate(t *testing.T) {
	provider, _ := newProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	sampledOut, span := provider.Tracer("test").Start(t.Context(), "caller")
	defer span.End()
	p := load(t, "noop", provider, host.Limits{})
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	for name, ctx := range map[string]context.Context{"no trace": t.Context(), "sampled out": sampledOut} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := inst.Call(ctx, abi.Filter, 0, 0, 0); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}

func TestNoopProvider(t *testing.T) {
	p := load(t, "spins", noop.NewTracerProvider(), host.Limits{})
	if _, err := call(t.Context(), t, p, 9); err == nil {
		t.Error("the guest did not trap")
	}
}

func TestHammer(t *testing.T) {
	const callers, rounds = 4, 100
	provider, exporter := newProvider()
	p := load(t, "spins", provider, host.Limits{})
	exporter.Reset()
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			for i := range uint64(rounds) {
				_, _ = call(ctx, t, p, i%2*9) // Every other traps.
			}
		})
	}
	calls.Wait()
	caller.End()
	failed := 0
	for _, span := range exporter.GetSpans() {
		if span.Status.Code == codes.Error {
			failed++
		}
	}
	// Instances that are made beside the first begin from its snapshot, so every
	// call is one of filter; the last span is the caller's.
	if got, want := len(exporter.GetSpans()), callers*rounds+1; got != want || failed != callers*rounds/2 {
		t.Errorf("%d spans, %d of them failed; want %d and %d", got, failed, want, callers*rounds/2)
	}
}

// BenchmarkCalled measures what an Observer adds to a call, beside the clock
// that the host reads for any.
func BenchmarkCalled(b *testing.B) {
	off := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	on := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(tracetest.NewSpanRecorder()))
	sampledOut, _ := off.Tracer("test").Start(b.Context(), "caller")
	sampled, _ := on.Tracer("test").Start(b.Context(), "caller")
	record := host.CallEvent{Plugin: "zone", Function: "filter", Start: time.Now(), Duration: time.Microsecond, Fuel: 1000}
	tests := []struct {
		name     string
		provider trace.TracerProvider
		ctx      context.Context
	}{
		{"no trace", off, b.Context()},
		{"sampled out", off, sampledOut},
		{"recorded", sdktrace.NewTracerProvider(), sampled},
	}
	for _, test := range tests {
		b.Run(test.name, func(b *testing.B) {
			observer := hosttrace.New(test.provider)
			b.ReportAllocs()
			for b.Loop() {
				observer.Called(test.ctx, record)
			}
		})
	}
}
