package host_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// An adapter loads a guest, takes an instance and calls a function.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)

	plugin, err := rt.Load(ctx, host.Config{
		Name:   "odd",
		Module: host.ModuleConfig{File: "testdata/good.wasm"},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		log.Fatal(err)
	}
	inst, err := plugin.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer inst.Release()

	for node := range uint64(2) {
		code, err := inst.Call(ctx, abi.Filter, 0, 0, node)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %q\n", abi.Code(code), inst.Reason())
	}
	// Output:
	// Success ""
	// Unschedulable "node is odd"
}

// What is wrong with a module is said all at once, and typed.
func ExampleRuntime_Load() {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(context.Background())

	_, err = rt.Load(context.Background(), host.Config{
		Name:   "zone",
		Module: host.ModuleConfig{File: "testdata/wrongexports.wasm"},
	}, host.Adapter{Kind: abi.KindScheduler})
	fmt.Println(err)
	var export *host.ExportError
	fmt.Println(errors.As(err, &export))
	// Output:
	// plugin "zone": export "filter" is (i32) -> i32, want (i64, i64, i64[, i64]) -> i32
	// plugin "zone": export "score" is missing, want (i64, i64, i64[, i64]) -> i64
	// true
}
