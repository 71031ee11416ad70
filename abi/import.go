package abi

// The functions of [ModuleObjects] that read objects by their refs, which guests of every
// kind may import.
const (
	// ImportObject is k8s.io/api.object (ref i64, buf, limit) -> len.
	ImportObject = "object"
	// ImportObjectPart is k8s.io/api.object_part
	// (ref i64, part, fields i64, buf, limit) -> len.
	ImportObjectPart = "object_part"
	// ImportObjectEntry is k8s.io/api.object_entry
	// (ref i64, field, ptr, len, buf, limit) -> len.
	ImportObjectEntry = "object_entry"
)
