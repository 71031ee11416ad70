// Package nativeservice lets a test call the plugin of a service without WebAssembly, by the
// client that components use.
package nativeservice

import (
	"context"
	"errors"

	"github.com/kubewasm/kubewasm/abi"
)

// Source is a source of a module that is none: a plugin in this process. Package service
// recognizes it.
type Source struct {
	// Has reports whether the plugin has a method, by its name with that of the service.
	Has func(method string) bool
	// Call calls a method and returns the encoded response, or the text of the plugin's error and
	// its code.
	Call func(method string, request []byte, h Host) ([]byte, abi.ErrorCode)
}

// Fetch implements host.Source.
func (Source) Fetch(context.Context) ([]byte, error) {
	return nil, errors.New("a plugin in this process has no module")
}

// Host is what a plugin in this process asks its host.
type Host interface {
	// Object, Part and Entry are the host functions of module k8s.io/api.
	Object(ref abi.Ref) []byte
	Part(ref abi.Ref, part uint32, fields uint64) []byte
	Entry(ref abi.Ref, field uint32, key string) (string, bool)
	// Call calls a method of a host service and returns the encoded response, or the text of the
	// error and its code.
	Call(service, method string, request []byte) ([]byte, abi.ErrorCode)
}

// String implements host.Source.
func (Source) String() string { return "a plugin in this process" }
