package service

import (
	"github.com/kubewasm/kubewasm/abi/codes"

	"errors"
	"fmt"
)

// Error is an error with a code, for methods of host services and for fakes. The error of a plugin
// is a *[host.StatusError]; [CodeOf] reads both.
type Error struct {
	Code codes.Code
	Err  error
}

// Errorf returns an *[Error] with the error of [fmt.Errorf], which errors.Is and errors.As find. A
// plugin that receives it, or an error that wraps it, gets the code beside the text.
func Errorf(code codes.Code, format string, args ...any) error {
	return &Error{code, fmt.Errorf(format, args...)}
}

// Error returns the text without the code.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its code.
func (e *Error) Unwrap() error { return e.Err }

// ErrorCode returns the code.
func (e *Error) ErrorCode() codes.Code { return e.Code }

// CodeOf returns the code of an error of a method: [codes.OK] for nil, the code that the plugin returned,
// and [codes.Unimplemented] for [ErrUnimplemented]. Of all others it is [codes.Unknown]: of an error without a
// code, and of a call that the host has ended, as for a trap or a timeout. So [codes.DeadlineExceeded]
// and [codes.Internal] come from the plugin itself. To find out whether its time was over, use errors.Is
// with context.DeadlineExceeded.
func CodeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if code := codeOf(err); code != codes.Uncoded {
		return code
	}
	return codes.Unknown
}

// coder is an error that has a code, or that hides the codes of wrapped errors. It is implemented
// by *[Error], *[PanicError], *[host.StatusError] and *[host.TrapError].
type coder interface {
	error
	ErrorCode() codes.Code
}

// codeOf returns the number of an error for a guest: codes.Uncoded for one without a code, and
// for one with [codes.OK], which is an error all the same.
func codeOf(err error) codes.Code {
	if e, ok := errors.AsType[coder](err); ok && e.ErrorCode() != codes.OK {
		return e.ErrorCode()
	}
	return codes.Uncoded
}
