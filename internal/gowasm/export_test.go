package gowasm

import "slices"

// EqualBody is the body of Go's comparison of strings, and EqualType its type.
var (
	EqualBody = slices.Concat(sameAddress, equalBytes)
	EqualType = equalType
)
