//go:build !wasip1

package view

import "github.com/kubewasm/kubewasm/abi"

// hostObject asks for the bytes of an object by the buffer-limit rule. Natively
// there is no host, unless a test sets one.
var hostObject = func(abi.Ref, []byte) uint32 {
	panic("kubewasm: there is no host to ask for an object; make views of bytes in a native test")
}

// The same for parts of objects.
var (
	hostPart = func(abi.Ref, uint32, uint64, []byte) uint32 {
		panic("kubewasm: there is no host to ask for a part of an object")
	}
	hostEntry = func(abi.Ref, uint32, string, []byte) uint32 { panic("kubewasm: there is no host to ask for a label") }
)
