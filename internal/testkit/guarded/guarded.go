// Package guarded lets the tests of a package that imports it run with
// KUBEWASM_DEBUG=memory: a read of the memory of an instance that was given back ends
// them. Benchmarks run without it, as do tests for which the variable is set already,
// if only to the empty string.
package guarded

import (
	"os"
	"slices"
	"strings"
)

func init() {
	_, set := os.LookupEnv("KUBEWASM_DEBUG")
	if set || slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.bench=") }) {
		return
	}
	if err := os.Setenv("KUBEWASM_DEBUG", "memory"); err != nil {
		panic(err)
	}
}
