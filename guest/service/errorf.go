package service

import "fmt"

// Errorf returns an *[Error] with the code and the text of [fmt.Errorf], for a method to return:
//
//	return service.Errorf(service.NotFound, "no rate of %s", currency)
//
// A method may wrap it: the component gets the code, and the text of the error that is returned.
func Errorf(code Code, format string, args ...any) error {
	return &Error{code, fmt.Errorf(format, args...)}
}
