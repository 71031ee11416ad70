// Package wasmtest runs the tests of a package in WebAssembly, for packages with functions
// in assembly for guests.
package wasmtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// Run builds the tests in the working directory for GOOS=wasip1 and runs those that
// match the pattern. Functions that a guest imports trap when they are called.
func Run(t *testing.T, pattern string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the tests for WebAssembly")
	}
	if err := guestbuild.TrackSources("."); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "tests.wasm")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-s -w", "-o", file, ".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the tests: %v\n%s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), module, wazero.NewModuleConfig().WithStdout(&out).WithStderr(&out).
		WithSysNanotime().WithSysWalltime().WithRandSource(rand.Reader).
		WithArgs("tests", "-test.run="+pattern, "-test.v"))
	if err != nil || !strings.Contains(out.String(), "--- PASS") {
		t.Fatalf("%v\n%s", err, out.String())
	}
}

// run runs a command, and returns an error unless it exits with 0.
func run(ctx context.Context, module []byte, cfg wazero.ModuleConfig) error {
	rt := wazero.NewRuntime(ctx)
	defer rt.Close(ctx)
	wasi_snapshot_preview1.MustInstantiate(ctx, rt)
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		return err
	}
	hosts := map[string]wazero.HostModuleBuilder{}
	for _, f := range compiled.ImportedFunctions() {
		module, name, _ := f.Import()
		if module == wasi_snapshot_preview1.ModuleName {
			continue
		}
		if hosts[module] == nil {
			hosts[module] = rt.NewHostModuleBuilder(module)
		}
		hosts[module].NewFunctionBuilder().WithGoFunction(api.GoFunc(func(context.Context, []uint64) {
			panic(fmt.Sprintf("there is no %s.%s", module, name))
		}), f.ParamTypes(), f.ResultTypes()).Export(name)
	}
	for _, h := range hosts {
		if _, err := h.Instantiate(ctx); err != nil {
			return err
		}
	}
	_, err = rt.InstantiateModule(ctx, compiled, cfg)
	if exit := new(sys.ExitError); errors.As(err, &exit) && exit.ExitCode() == 0 {
		return nil
	}
	return err
}
