package abi

// The functions of [ModuleHooks], beside [ImportRequest].
const (
	// ImportDecision is k8s.io/hooks.decision (ptr, len).
	ImportDecision = "decision"
)
