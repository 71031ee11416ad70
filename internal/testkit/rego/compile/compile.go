// Package compile makes WebAssembly modules of policies in Rego.
package compile

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/open-policy-agent/opa/v1/compile"
)

// File compiles the policy in file, whose decision is the rule entrypoint, given
// as policy/main.
func File(ctx context.Context, entrypoint, file string) ([]byte, error) {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	c := compile.New().
		WithTarget(compile.TargetWasm).
		WithEntrypoints(entrypoint).
		WithFS(os.DirFS(filepath.Dir(absolute))).
		WithPaths(filepath.Base(absolute))
	if err := c.Build(ctx); err != nil {
		return nil, fmt.Errorf("compile %s: %w", file, err)
	}
	modules := c.Bundle().WasmModules
	if len(modules) != 1 {
		return nil, fmt.Errorf("compile %s: %d modules, want 1", file, len(modules))
	}
	return modules[0].Raw, nil
}
