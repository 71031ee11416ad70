package gowasm

// EqualBody is the body of Go's comparison of strings, and EqualType its type.
var (
	EqualBody = equalBody
	EqualType = equalType
)
