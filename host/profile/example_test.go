package profile_test

import (
	"context"
	"fmt"
	"log"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// A plugin is called once, and its profile printed. [profile.Profile.Write] writes it for
// go tool pprof.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	var profiler host.Profiler
	plugin, err := rt.Load(ctx, host.Config{Name: "deep", Module: host.ModuleConfig{File: "../testdata/deep.wasm"}, Profiler: &profiler}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		log.Fatal(err)
	}
	profiler.Reset() // Without the start.
	inst, err := plugin.Acquire(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := inst.Call(ctx, abi.Filter, 1, 2, 3); err != nil {
		log.Fatal(err)
	}
	used := inst.FuelUsed()
	inst.Release()

	p := profiler.Profile()
	fmt.Printf("%d calls, all fuel is in the profile: %t\n", p.Calls, p.Fuel() == used)
	fmt.Println("first:", p.Top(1)[0].Function)
	// Output:
	// 1 calls, all fuel is in the profile: true
	// first: filter
}
