package replay_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
)

// The calls of a recording are repeated on the module that was recorded.
func ExampleVerify() {
	recorded, err := recording.Open("testdata/amd64")
	if err != nil {
		log.Fatal(err)
	}
	module, err := os.ReadFile("../../abi/conformance/testdata/hook.wasm")
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	v, err := replay.Verify(ctx, rt, recorded, module, replay.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(v.Exact, "of", v.Calls, "calls are exact")
	// Output: 7 of 7 calls are exact
}
