package cases_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/host/cases"
)

// A plugin in Go has a test for all its cases, and for its twin in C as well.
func Example() {
	testCases := func(t *testing.T) { cases.Test(t, "cases.yaml", ".", "c") }
	_ = testCases
}
