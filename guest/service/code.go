package service

import (
	"errors"

	"github.com/kubewasm/kubewasm/abi"
)

// Code is the code of an error, as in gRPC: a google.rpc.Code.
type Code = abi.ErrorCode

// The codes of errors. The code 1 of gRPC, Canceled, is not among them: it is the number of an
// error without a code, which reads as Unknown.
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

// Error is an error with a code: of a plugin's method, see [NewError], and of a host service.
type Error struct {
	Code Code
	Err  error
}

// NewError returns an *[Error] for a method to return, or to wrap:
//
//	return service.NewError(service.NotFound, errors.New("no rate of "+currency))
//
// The component gets the code beside the text of the error that is finally returned. There is no
// variant with a format: package fmt adds 300 KB to a module, which is the plugin's choice.
func NewError(code Code, err error) error { return &Error{code, err} }

// Error returns the text without the code.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its code.
func (e *Error) Unwrap() error { return e.Err }

// ErrorCode returns the code.
func (e *Error) ErrorCode() Code { return e.Code }

// CodeOf returns the code of an error: [OK] for nil, that of the first *[Error] that errors.As
// finds, and [Unknown] without one.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	if code := codeOf(err); code != abi.ErrorUncoded {
		return code
	}
	return Unknown
}

// codeOf returns the number of an error for the host: abi.ErrorUncoded for one without a code, and
// for one with [OK], which is an error all the same.
func codeOf(err error) Code {
	var e interface{ ErrorCode() Code }
	if errors.As(err, &e) && e.ErrorCode() != OK {
		return e.ErrorCode()
	}
	return abi.ErrorUncoded
}

// errorOf returns the error with a number and a text from the host.
func errorOf(code Code, text string) error {
	err := errors.New(text)
	if code == abi.ErrorUncoded {
		return err
	}
	return &Error{code, err}
}
