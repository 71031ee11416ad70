package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/host/cases"
)

// TestCases holds the guest in each language against the same cases.
func TestCases(t *testing.T) {
	cases.Test(t, "cases.yaml",
		".",
		"as",
		"c",
		"rust",
	)
}
