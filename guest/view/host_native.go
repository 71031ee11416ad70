//go:build !wasip1

package view

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// hostObject asks for the bytes of an object by the buffer-limit rule. Natively
// there is no host, unless a test sets one.
var hostObject = func(ref abi.Ref, buf []byte) uint32 {
	h := nativehost.CurrentObjects()
	if h == nil {
		panic("kubewasm: there is no host to ask for an object; make views of bytes in a native test")
	}
	return fill(buf, h.Object(ref))
}

// The same for parts of objects.
var (
	hostPart = func(ref abi.Ref, part uint32, fields uint64, buf []byte) uint32 {
		h := nativehost.CurrentObjects()
		if h == nil {
			panic("kubewasm: there is no host to ask for a part of an object")
		}
		return fill(buf, h.Part(ref, part, fields))
	}
	hostEntry = func(ref abi.Ref, field uint32, key string, buf []byte) uint32 {
		h := nativehost.CurrentObjects()
		if h == nil {
			panic("kubewasm: there is no host to ask for a label")
		}
		value, ok := h.Entry(ref, field, key)
		if !ok {
			return abi.NoEntry
		}
		return fill(buf, []byte(value))
	}
)

// fill writes an answer by the buffer-limit rule.
func fill(buf, answer []byte) uint32 {
	if len(answer) <= len(buf) {
		copy(buf, answer)
	}
	return uint32(len(answer))
}

// refEpoch returns a number that changes when refs mean other objects.
func refEpoch() uint64 { return nativehost.Epoch() }
