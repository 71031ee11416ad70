package service

import (
	"errors"
	"fmt"

	"github.com/kubewasm/kubewasm/abi"
)

// Code is the code of an error, as in gRPC: a google.rpc.Code. A plugin may return any other
// number, too.
type Code = abi.ErrorCode

// The codes of errors. The code 1 of gRPC, Canceled, is not among them: it is the number of an
// error without a code, see [CodeOf].
const (
	OK                 = abi.ErrorOK
	Unknown            = abi.ErrorUnknown
	InvalidArgument    = abi.ErrorInvalidArgument
	DeadlineExceeded   = abi.ErrorDeadlineExceeded
	NotFound           = abi.ErrorNotFound
	AlreadyExists      = abi.ErrorAlreadyExists
	PermissionDenied   = abi.ErrorPermissionDenied
	ResourceExhausted  = abi.ErrorResourceExhausted
	FailedPrecondition = abi.ErrorFailedPrecondition
	Aborted            = abi.ErrorAborted
	OutOfRange         = abi.ErrorOutOfRange
	Unimplemented      = abi.ErrorUnimplemented
	Internal           = abi.ErrorInternal
	Unavailable        = abi.ErrorUnavailable
	DataLoss           = abi.ErrorDataLoss
	Unauthenticated    = abi.ErrorUnauthenticated
)

// Error is an error with a code, for methods of host services and for fakes. The error of a plugin
// is a *[host.StatusError]; [CodeOf] reads both.
type Error struct {
	Code Code
	Err  error
}

// NewError returns an *[Error], which errors.Is and errors.As find err in. A plugin that receives
// it, or an error that wraps it, gets the code beside the text.
func NewError(code Code, err error) error { return &Error{code, err} }

// Errorf is [NewError] with the error of [fmt.Errorf].
func Errorf(code Code, format string, args ...any) error {
	return &Error{code, fmt.Errorf(format, args...)}
}

// Error returns the text without the code.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its code.
func (e *Error) Unwrap() error { return e.Err }

// ErrorCode returns the code.
func (e *Error) ErrorCode() Code { return e.Code }

// CodeOf returns the code of an error of a method: [OK] for nil, the code that the plugin returned,
// and [Unimplemented] for [ErrUnimplemented]. Of all others it is [Unknown]: of an error without a
// code, and of a call that the host has ended, as for a trap or a timeout. So [DeadlineExceeded]
// and [Internal] come from the plugin itself. To find out whether its time was over, use errors.Is
// with context.DeadlineExceeded.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	if code := codeOf(err); code != abi.ErrorUncoded {
		return code
	}
	return Unknown
}

// coder is an error that has a code, or that hides the codes of wrapped errors. It is implemented
// by *[Error], *[PanicError], *[host.StatusError] and *[host.TrapError].
type coder interface {
	error
	ErrorCode() Code
}

// codeOf returns the number of an error for a guest: abi.ErrorUncoded for one without a code, and
// for one with [OK], which is an error all the same.
func codeOf(err error) Code {
	if e, ok := errors.AsType[coder](err); ok && e.ErrorCode() != OK {
		return e.ErrorCode()
	}
	return abi.ErrorUncoded
}
