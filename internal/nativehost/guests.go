package nativehost

import "github.com/kubewasm/kubewasm/abi/codes"

// Guests are the functions by which kits for tests run plugins natively. The packages of guest set
// them where they run natively.
var Guests struct {
	// Decide runs a plugin of package hooks on an encoded request, kubewasm.hooks.v1.Request, and
	// returns its encoded decision, as a guest does.
	Decide func(plugin any, request []byte) (decision []byte, err error)
	// Convert returns an object in JSON, converted to the apiVersion desired by a converter of
	// package admission, or the reason why it cannot be converted. It does not check the object as a
	// host does.
	Convert func(converter any, object []byte, desired string) ([]byte, error)
	// Has reports whether a method is one of the extension points of this program, by its full name.
	Has func(method string) bool
	// Call calls a method of a plugin of package service with an encoded request, as a guest does.
	Call func(plugin any, method string, request []byte) (response []byte, err error)
	// Failure returns the text of an error of a method and its code in the form that the host gets.
	Failure func(err error) (text string, code codes.Code)
}
