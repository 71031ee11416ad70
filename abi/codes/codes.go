package codes

import "strconv"

// Code is the result of a function that can only succeed or fail: a method of a service, hook and
// configure. Beside [OK] and [Uncoded] it is a code of google.rpc.Code, which gRPC has too. A plugin
// may return any other number, too.
type Code int32

// The codes of google.rpc.Code. Its code 1, CANCELLED, is not among them: plugins returned that
// number for any error before errors had codes, and they cannot cancel a call.
const (
	OK Code = iota
	// Uncoded is an error without a code, which reads as Unknown.
	Uncoded
	Unknown
	InvalidArgument
	DeadlineExceeded
	NotFound
	AlreadyExists
	PermissionDenied
	ResourceExhausted
	FailedPrecondition
	Aborted
	OutOfRange
	Unimplemented
	Internal
	Unavailable
	DataLoss
	Unauthenticated
)

var names = [...]string{
	"OK", "Error", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted",
	"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
}

// String returns the name that gRPC for Go gives the code, "Error" for [Uncoded], and the number of
// any other.
func (c Code) String() string {
	if c >= 0 && int(c) < len(names) {
		return names[c]
	}
	return "code(" + strconv.Itoa(int(c)) + ")"
}

// Failure reports whether an error with the code is a failure of the plugin, and no answer about
// the request such as NotFound. Failures are the codes that google.rpc.Code maps to an HTTP status
// from 500 on, errors without a code, and numbers that are no code.
func (c Code) Failure() bool {
	switch c {
	case OK, InvalidArgument, NotFound, AlreadyExists, PermissionDenied, ResourceExhausted, FailedPrecondition, Aborted, OutOfRange, Unauthenticated:
		return false
	}
	return true
}
