//go:build !wasip1

package service

import (
	"errors"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// hostOrder is the initial value of the last position in messages of hosts.
const hostOrder = anyOrder

func init() {
	nativehost.Guests.Has = func(method string) bool { return find(method) != nil }
	nativehost.Guests.Call = func(plugin any, method string, request []byte) ([]byte, error) {
		m := find(method)
		if m == nil {
			return nil, errors.New("there is no method " + method)
		}
		return m.native(plugin, request)
	}
	nativehost.Guests.Failure = failure
}

func failure(err error) (text string, code codes.Code) { return err.Error(), codeOf(err) }

func find(name string) method {
	for _, s := range services {
		for _, m := range s.methods {
			if m.fullName() == name {
				return m
			}
		}
	}
	return nil
}

// answer is the last answer of a host service.
var answer []byte

func hostAnswer(buf []byte) uint32 {
	if len(answer) <= len(buf) {
		copy(buf, answer)
	}
	return uint32(len(answer))
}

// AskHost is the host function of a method of a host service in a native test. It is for
// generated code.
func AskHost(service, method string, ptr unsafe.Pointer, n uint32) uint64 {
	h := nativehost.CurrentObjects()
	if h == nil {
		panic("kubewasm: there is no host that has " + service + "/" + method + ": call the plugin by package servicetest")
	}
	var code codes.Code
	answer, code = h.Call(service, method, append([]byte(nil), unsafe.Slice((*byte)(ptr), n)...))
	return abi.Pack(uint32(len(answer)), code)
}
