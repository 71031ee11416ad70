package service

import (
	"github.com/kubewasm/kubewasm/abi/codes"

	"errors"
)

// Error is an error with a code: of a plugin's method, see [NewError], and of a host service.
type Error struct {
	Code codes.Code
	Err  error
}

// NewError returns an *[Error] for a method to return, or to wrap:
//
//	return service.NewError(codes.NotFound, errors.New("no rate of "+currency))
//
// The component gets the code beside the text of the error that is finally returned. There is no
// variant with a format: package fmt adds 300 KB to a module, which is the plugin's choice.
func NewError(code codes.Code, err error) error { return &Error{code, err} }

// Error returns the text without the code.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its code.
func (e *Error) Unwrap() error { return e.Err }

// ErrorCode returns the code.
func (e *Error) ErrorCode() codes.Code { return e.Code }

// CodeOf returns the code of an error: [codes.OK] for nil, that of the first *[Error] that errors.As
// finds, and [codes.Unknown] without one.
func CodeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if code := codeOf(err); code != codes.Uncoded {
		return code
	}
	return codes.Unknown
}

// codeOf returns the number of an error for the host: codes.Uncoded for one without a code, and
// for one with [codes.OK], which is an error all the same.
func codeOf(err error) codes.Code {
	var e interface{ ErrorCode() codes.Code }
	if errors.As(err, &e) && e.ErrorCode() != codes.OK {
		return e.ErrorCode()
	}
	return codes.Uncoded
}

// errorOf returns the error with a number and a text from the host.
func errorOf(code codes.Code, text string) error {
	err := errors.New(text)
	if code == codes.Uncoded {
		return err
	}
	return &Error{code, err}
}
