package nativehost

import (
	"sync"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
)

// Objects has the host functions of module k8s.io/api, see abi/SPEC.md, section 6, and those of
// host services.
type Objects interface {
	Object(ref abi.Ref) []byte
	Part(ref abi.Ref, part uint32, fields uint64) []byte
	Entry(ref abi.Ref, field uint32, key string) (string, bool)
	// Call calls a method of a host service and returns the encoded response, or the text of the
	// error and its code.
	Call(service, method string, request []byte) ([]byte, codes.Code)
}

var (
	objectsMu sync.Mutex
	objects   Objects
	owner     any
	epoch     uint64
)

// UseObjects makes h the host until the function that it returns is called. Another UseObjects waits for
// that, since a process has one host. of is whose refs it knows: with another, everything
// that was read of objects is forgotten.
func UseObjects(h Objects, of any) (done func()) {
	objectsMu.Lock()
	if owner != of {
		owner = of
		epoch++
	}
	objects = h
	return func() {
		objects = nil
		objectsMu.Unlock()
	}
}

// CurrentObjects returns the host, nil if there is none.
func CurrentObjects() Objects { return objects }

// Epoch is another number after refs of another host are used.
func Epoch() uint64 { return epoch }
