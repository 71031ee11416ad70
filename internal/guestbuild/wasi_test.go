package guestbuild_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestWASILibC holds that a guest in C may be linked with wasi-libc, whose memory and the
// header's do not disturb each other.
func TestWASILibC(t *testing.T) {
	if _, err := os.Stat("/usr/lib/wasm32-wasi/libc.a"); err != nil && os.Getenv("CI") == "" {
		t.Skip("wasi-libc is not installed (Debian: wasi-libc)")
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	file, _ := languages.Compile(t, guestbuild.Config{Dir: "testdata/wasi"})
	engine, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{
		Name: "guest", Module: host.ModuleConfig{File: file}, Limits: host.Limits{Instances: 1, MemoryBytes: 4 << 20},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.Background())
	request := &hookmsg.Request{Stage: abi.PreCreateContainer, Level: abi.LevelContainer}
	for n := range 1000 {
		decision, err := engine.Decide(t.Context(), request)
		if err != nil || decision.Resources.CPUShares == nil || *decision.Resources.CPUShares != 2 {
			t.Fatalf("call %d: decided %v, %v", n, decision, err)
		}
	}
	request.PodLabels = map[string]string{"tier": "wrong"}
	if _, err := engine.Decide(t.Context(), request); err == nil || !strings.HasSuffix(err.Error(), "the tier wrong has 4 names") {
		t.Errorf("got %v", err)
	}
}
