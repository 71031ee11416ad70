//go:build !wasip1

// Package objecthost has the host that views ask for objects in a native test: none, unless
// a test sets one.
package objecthost

import (
	"sync"

	"github.com/kubewasm/kubewasm/abi"
)

// Host has the host functions of module k8s.io/api, see abi/SPEC.md, section 6, and those of
// host services.
type Host interface {
	Object(ref abi.Ref) []byte
	Part(ref abi.Ref, part uint32, fields uint64) []byte
	Entry(ref abi.Ref, field uint32, key string) (string, bool)
	// Call calls a method of a host service and returns the encoded response, or the text of the
	// error and its code.
	Call(service, method string, request []byte) ([]byte, abi.ErrorCode)
}

var (
	mu      sync.Mutex
	current Host
	owner   any
	epoch   uint64
)

// Use makes h the host until the function that it returns is called. Another Use waits for
// that, since a process has one host. of is whose refs it knows: with another, everything
// that was read of objects is forgotten.
func Use(h Host, of any) (done func()) {
	mu.Lock()
	if owner != of {
		owner = of
		epoch++
	}
	current = h
	return func() {
		current = nil
		mu.Unlock()
	}
}

// Current returns the host, nil if there is none.
func Current() Host { return current }

// Epoch is another number after refs of another host are used.
func Epoch() uint64 { return epoch }
