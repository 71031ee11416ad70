// Package guarded sets KUBEWASM_DEBUG=memory for the tests of a package that imports it: a
// read of the memory of an instance that was given back ends the tests. Benchmarks run
// without it. A variable that is set already, also to the empty string, is left alone.
package guarded

import (
	"os"
	"slices"
	"strings"
)

func init() {
	_, set := os.LookupEnv("KUBEWASM_DEBUG")
	if set || slices.ContainsFunc(os.Args, func(arg string) bool { return arg == "-test.bench" || strings.HasPrefix(arg, "-test.bench=") }) {
		return
	}
	if err := os.Setenv("KUBEWASM_DEBUG", "memory"); err != nil {
		panic(err)
	}
}
