package abi

// The functions of [ModuleServices], beside [ImportRequest]. A method of a host service is
// imported from the module that has the full name of the service, under the name of the
// method: (ptr, len) -> i64.
const (
	// ImportServe is kubewasm/service.serve (ptr, len).
	ImportServe = "serve"
	// ImportResponse is kubewasm/service.response (ptr, len).
	ImportResponse = "response"
	// ImportAnswer is kubewasm/service.answer (buf, limit) -> len.
	ImportAnswer = "answer"
)
