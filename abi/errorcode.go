package abi

import "strconv"

// ErrorCode is the result of a function that can only succeed or fail: a method of a service,
// hook and configure. Beside [ErrorOK] and [ErrorUncoded] it is a code of google.rpc.Code, which
// gRPC has too.
type ErrorCode int32

// The codes of google.rpc.Code. Its code 1, CANCELLED, is not among them: plugins returned that
// number for any error before errors had codes, and they cannot cancel a call.
const (
	ErrorOK ErrorCode = iota
	// ErrorUncoded is an error without a code, which reads as ErrorUnknown.
	ErrorUncoded
	ErrorUnknown
	ErrorInvalidArgument
	ErrorDeadlineExceeded
	ErrorNotFound
	ErrorAlreadyExists
	ErrorPermissionDenied
	ErrorResourceExhausted
	ErrorFailedPrecondition
	ErrorAborted
	ErrorOutOfRange
	ErrorUnimplemented
	ErrorInternal
	ErrorUnavailable
	ErrorDataLoss
	ErrorUnauthenticated
)

var errorNames = [...]string{
	"OK", "Error", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied", "ResourceExhausted",
	"FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
}

// String returns the name that gRPC for Go gives the code, "Error" for [ErrorUncoded], and the
// number of any other.
func (c ErrorCode) String() string {
	if c >= 0 && int(c) < len(errorNames) {
		return errorNames[c]
	}
	return "code(" + strconv.Itoa(int(c)) + ")"
}

// Failure reports whether an error with the code is a failure of the plugin, and no answer about
// the request such as NotFound. Failures are the codes that google.rpc.Code maps to an HTTP status
// from 500 on, errors without a code, and numbers that are no code.
func (c ErrorCode) Failure() bool {
	switch c {
	case ErrorOK, ErrorInvalidArgument, ErrorNotFound, ErrorAlreadyExists, ErrorPermissionDenied, ErrorResourceExhausted,
		ErrorFailedPrecondition, ErrorAborted, ErrorOutOfRange, ErrorUnauthenticated:
		return false
	}
	return true
}
