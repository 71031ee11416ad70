package admission

import (
	"runtime"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
	"github.com/kubewasm/kubewasm/guest/view"
)

//go:wasmimport k8s.io/admission request
func hostRequest(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission object
func hostObject(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission old_object
func hostOldObject(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission options
func hostOptions(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission object_proto
func hostObjectProto(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission old_object_proto
func hostOldObjectProto(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission patch
func hostPatch(ptr unsafe.Pointer, n uint32)

//go:wasmimport k8s.io/admission mutated_object
func hostMutatedObject(ptr unsafe.Pointer, n uint32)

//go:wasmimport k8s.io/admission desired_api_version
func hostDesiredAPIVersion(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission result
func hostResult(ptr unsafe.Pointer, n uint32)

func fetchRequest() []byte        { return fetch(hostRequest) }
func fetchObject() []byte         { return fetchInto(&objectSlot, hostObject, objectIndex) }
func fetchOldObject() []byte      { return fetchInto(&oldObjectSlot, hostOldObject, oldObjectIndex) }
func fetchOptions() []byte        { return fetch(hostOptions) }
func fetchObjectProto() []byte    { return fetch(hostObjectProto) }
func fetchOldObjectProto() []byte { return fetch(hostOldObjectProto) }

func fetchDesiredAPIVersion() []byte { return fetch(hostDesiredAPIVersion) }

var (
	// small receives answers that fit, nearly all of them. They are copied from
	// there, so that plugins may keep them.
	small [4 << 10]byte
	// objectSlot and oldObjectSlot are the memory of the views of a call's objects.
	// With new memory, which is in no cache of the processor, a verdict takes 30 %
	// longer.
	objectSlot, oldObjectSlot view.Slot
	// large is the number of bytes of answers too long for small that were
	// fetched since the last garbage collection.
	large int
	// request is that of the running call. It must not be used after the call: it would return the
	// data of another request.
	request Request
	// conversion is likewise the running one.
	conversion Conversion
	// result is the buffer of messages to the host.
	result []byte
)

// collectAfter is the maximum number of bytes of large answers that may be garbage. Go starts a
// collection by itself when the heap has doubled, but the collector needs several calls to finish,
// and objects of 3 MiB would fill the guest's memory before.
const collectAfter = 8 << 20

// fetch returns the answer of a host function, nil if it is empty.
func fetch(host func(buf unsafe.Pointer, limit uint32) uint32) []byte {
	n := host(unsafe.Pointer(&small), uint32(len(small)))
	switch {
	case n == 0:
		return nil
	case uint64(n) <= uint64(len(small)):
		return append(make([]byte, 0, n), small[:n]...)
	}
	return fetchLarge(host, n)
}

// fetchInto is fetch of an object; its views use the memory of slot and the index.
func fetchInto(slot *view.Slot, host func(buf unsafe.Pointer, limit uint32) uint32, index func() []byte) []byte {
	b := fetch(host)
	if b != nil {
		slot.Put(b, index)
	}
	return b
}

// objectIndex and oldObjectIndex return the indexes of the objects of the running call.
func objectIndex() []byte    { return request.read().objectIndex }
func oldObjectIndex() []byte { return request.read().oldObjectIndex }

// fetchLarge returns the answer of a host function, of n bytes.
func fetchLarge(host func(buf unsafe.Pointer, limit uint32) uint32, n uint32) []byte {
	large += int(n)
	b := make([]byte, n)
	if again := host(unsafe.Pointer(unsafe.SliceData(b)), n); again != n {
		panic("kubewasm: host changed its answer within one call")
	}
	return b
}

//go:wasmexport validate
func exportValidate() uint64 {
	request = Request{}
	verdict := answer(validator.Validate(&request))
	leave()
	return verdict
}

//go:wasmexport mutate
func exportMutate() uint64 {
	request = Request{}
	req := &request
	patch := &Patch{read: req.Object}
	response := mutator.Mutate(req, patch)
	if response.Allowed() {
		if err := patch.Err(); err != nil {
			response = Errored(err)
		} else {
			patch.hand()
		}
	}
	verdict := answer(response)
	leave()
	return verdict
}

//go:wasmexport convert
func exportConvert() uint64 {
	conversion, request = Conversion{}, Request{fetched: envelopePart} // The host has no request.
	patch := &Patch{read: conversion.Object}
	err := converter.Convert(&conversion, patch)
	if err == nil {
		err = conversion.finish(patch)
	}
	if err == nil {
		patch.hand()
	}
	verdict := answer(Errored(err))
	leave()
	return verdict
}

// hand passes the changes to the host.
func (p *Patch) hand() {
	if p.object != nil {
		hostMutatedObject(unsafe.Pointer(unsafe.SliceData(p.object)), uint32(len(p.object)))
	} else if operations := p.JSON(); operations != nil {
		hostPatch(unsafe.Pointer(unsafe.SliceData(operations)), uint32(len(operations)))
	}
}

// answer passes the reason, warnings and annotations of a response to the host,
// and returns its verdict.
func answer(response *Response) uint64 {
	if response != nil {
		if result = response.appendResult(result[:0]); len(result) != 0 {
			hostResult(unsafe.Pointer(unsafe.SliceData(result)), uint32(len(result)))
		}
		if response.verdict != abi.VerdictAllow && response.message != "" {
			hostcall.StatusReason(response.message)
		}
	}
	return response.packed()
}

// leave is the end of every call.
func leave() {
	view.CloseSlots()
	if large > collectAfter {
		large = 0
		runtime.GC()
	}
	plugin.Yield()
}
