package conformance

import (
	_ "embed"
	"slices"
)

//go:embed cases.yaml
var cases []byte

// Cases returns a copy of cases.yaml: the calls to make, and the results that they must
// have.
func Cases() []byte { return slices.Clone(cases) }
