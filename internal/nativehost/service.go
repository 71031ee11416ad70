package nativehost

import (
	"github.com/kubewasm/kubewasm/abi/codes"

	"context"
	"errors"
)

// Service is a source of a module that is none: a plugin in this process. Package service
// recognizes it.
type Service struct {
	// Has reports whether the plugin has a method, by its name with that of the service.
	Has func(method string) bool
	// Call calls a method and returns the encoded response, or the text of the plugin's error and
	// its code.
	Call func(method string, request []byte, h Objects) ([]byte, codes.Code)
}

// Fetch implements host.Source.
func (Service) Fetch(context.Context) ([]byte, error) {
	return nil, errors.New("a plugin in this process has no module")
}

// String implements host.Source.
func (Service) String() string { return "a plugin in this process" }
