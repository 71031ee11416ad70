package hosttrace_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hosttrace"
)

// The calls of a caller that is traced are spans below its own.
func Example() {
	ctx := context.Background()
	exporter := tracetest.NewInMemoryExporter() // Or that of the component.
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))

	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	plugin, err := rt.Load(ctx, host.Config{
		Name:     "odd",
		Module:   host.ModuleConfig{File: "../testdata/good.wasm"},
		Observer: hosttrace.New(provider),
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cycle := provider.Tracer("scheduler").Start(ctx, "schedule Pod")
	inst, err := plugin.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := inst.Call(ctx, abi.Filter, 0, 0, 1); err != nil {
		log.Fatal(err)
	}
	inst.Release()
	cycle.End()

	for _, span := range exporter.GetSpans() {
		fmt.Println(span.Name)
	}
	// Output:
	// load odd
	// call odd/filter
	// schedule Pod
}

// What a guest logs goes to a *slog.Logger, which may hand it to a logr.Logger:
// klog's in a component of Kubernetes, klog.Background.
func Example_logr() {
	ctx := context.Background()
	logger := funcr.New(func(_, args string) {
		if !strings.Contains(args, "loaded the module") { // The host's own line, with a digest.
			fmt.Println(args)
		}
	}, funcr.Options{})

	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	plugin, err := rt.Load(ctx, host.Config{
		Name:   "odd",
		Module: host.ModuleConfig{File: "../testdata/good.wasm"},
		Logger: slog.New(logr.ToSlogHandler(logger)),
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		log.Fatal(err)
	}
	inst, err := plugin.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer inst.Release()
	if _, err := inst.Call(ctx, abi.Filter, 0, 0, 1); err != nil {
		log.Fatal(err)
	}
	// Output:
	// "level"=0 "msg"="filtering" "plugin"="odd" "function"="filter"
}
