package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// TestMain lets the test be the process that [densityOf] starts.
func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(densityVariable); ok {
		if err := runDensity(context.Background(), text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// TestAPolicyMoreTakesLittleMemory holds what one more policy takes of a process, with a fifth of
// the policies of the benchmark.
func TestAPolicyMoreTakesLittleMemory(t *testing.T) {
	policy, err := guestbuild.Build(t.Context(), "../../examples/admission/required-labels")
	if err != nil {
		t.Fatal(err)
	}
	const few, many = 2, 10
	others, err := different(policy, t.TempDir(), many)
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	for _, test := range []struct {
		name string
		load load
		most float64 // Megabytes.
	}{
		{"of the same module", load{Module: policy, Cache: cache}, 2},
		{"of a module of its own", load{Module: others, Different: true, Cache: cache}, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			measure := func(policies int) float64 {
				test.load.Policies = policies
				found, err := densityOf(t.Context(), test.load)
				if err != nil {
					t.Fatal(err)
				}
				return float64(found.Bytes) / 1e6
			}
			measure(many) // The compiler's memory is not what a policy takes.
			if each := (measure(many) - measure(few)) / (many - few); each > test.most {
				t.Errorf("a policy takes %.1f MB, want at most %.0f", each, test.most)
			} else {
				t.Logf("a policy takes %.1f MB", each)
			}
		})
	}
}
