package abi

// The functions of [ModuleAdmission]. [ModuleHooks] also has a function named
// ImportRequest.
const (
	// ImportRequest is k8s.io/admission.request and k8s.io/hooks.request
	// (buf, limit) -> len.
	ImportRequest = "request"
	// ImportAdmissionObject is k8s.io/admission.object (buf, limit) -> len.
	ImportAdmissionObject = "object"
	// ImportOldObject is k8s.io/admission.old_object (buf, limit) -> len.
	ImportOldObject = "old_object"
	// ImportOptions is k8s.io/admission.options (buf, limit) -> len.
	ImportOptions = "options"
	// ImportResult is k8s.io/admission.result (ptr, len).
	ImportResult = "result"
	// ImportObjectProto is k8s.io/admission.object_proto (buf, limit) -> len.
	ImportObjectProto = "object_proto"
	// ImportOldObjectProto is k8s.io/admission.old_object_proto (buf, limit) ->
	// len.
	ImportOldObjectProto = "old_object_proto"
	// ImportPatch is k8s.io/admission.patch (ptr, len).
	ImportPatch = "patch"
	// ImportMutatedObject is k8s.io/admission.mutated_object (ptr, len).
	ImportMutatedObject = "mutated_object"
	// ImportDesiredAPIVersion is k8s.io/admission.desired_api_version
	// (buf, limit) -> len.
	ImportDesiredAPIVersion = "desired_api_version"
)
