package abi

// The functions of [ModuleCommon] and [ModuleObjects], which guests of every kind may
// import.
const (
	// ImportConfig is kubewasm.config (buf, limit) -> len.
	ImportConfig = "config"
	// ImportStatusReason is kubewasm.status_reason (ptr, len).
	ImportStatusReason = "status_reason"
	// ImportLog is kubewasm.log (level, ptr, len).
	ImportLog = "log"

	// ImportObject is k8s.io/api.object (ref i64, buf, limit) -> len.
	ImportObject = "object"
	// ImportObjectPart is k8s.io/api.object_part
	// (ref i64, part, fields i64, buf, limit) -> len.
	ImportObjectPart = "object_part"
	// ImportObjectEntry is k8s.io/api.object_entry
	// (ref i64, field, ptr, len, buf, limit) -> len.
	ImportObjectEntry = "object_entry"
	// ImportGetObject is k8s.io/api.get_object (ptr, len, buf, limit) -> len.
	ImportGetObject = "get_object"
	// ImportListObjects is k8s.io/api.list_objects (ptr, len, buf, limit) -> len.
	ImportListObjects = "list_objects"
)
