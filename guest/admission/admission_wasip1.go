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

//go:wasmimport k8s.io/admission object_index
func hostObjectIndex(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/admission old_object_index
func hostOldObjectIndex(buf unsafe.Pointer, limit uint32) uint32

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

//go:wasmimport k8s.io/admission result
func hostResult(ptr unsafe.Pointer, n uint32)

func fetchRequest() []byte        { return fetch(hostRequest) }
func fetchObject() []byte         { return lent[0].fetch(hostObject, objectIndex) }
func fetchOldObject() []byte      { return lent[1].fetch(hostOldObject, oldObjectIndex) }
func fetchOptions() []byte        { return fetch(hostOptions) }
func fetchObjectProto() []byte    { return fetch(hostObjectProto) }
func fetchOldObjectProto() []byte { return fetch(hostOldObjectProto) }

var (
	// small takes what is not large, which is nearly everything; it is copied
	// from there, so that plugins may keep what they read.
	small [4 << 10]byte
	// lent are the objects of the call that runs.
	lent [2]lentObject
	// large is how many bytes of answers too long for small were fetched since
	// the last garbage collection.
	large int
	// request is that of the call that runs. It is nobody's when the call has ended:
	// it would answer with what the host has to say about another.
	request Request
	// result is the buffer of messages to the host.
	result []byte
)

// collectAfter is how many bytes of large answers may be garbage. Go starts a
// collection by itself when the heap has doubled, but it needs turns to end, and
// objects of 3 MiB would fill the guest's memory before.
const collectAfter = 8 << 20

// fetch returns what a host function has to say, nil if it is nothing.
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

// fetchLarge returns the n bytes that a host function has to say.
func fetchLarge(host func(buf unsafe.Pointer, limit uint32) uint32, n uint32) []byte {
	large += int(n)
	b := make([]byte, n)
	if again := host(unsafe.Pointer(unsafe.SliceData(b)), n); again != n {
		panic("kubewasm: host changed its answer within one call")
	}
	return b
}

// lentObject is the memory of an object, which is that of the next call's afterwards: in
// a Go guest, to write to memory that no cache has costs as much as to read the object.
type lentObject struct{ buf []byte }

// maxLent is how long an object may be whose memory is used again.
const maxLent = 32 << 10

// fetch lends the object that a host function has.
func (o *lentObject) fetch(object func(buf unsafe.Pointer, limit uint32) uint32, index func(room []uint64) int) []byte {
	n := object(unsafe.Pointer(unsafe.SliceData(o.buf)), uint32(len(o.buf)))
	if n == 0 {
		return nil
	}
	l := view.Loan{Again: n <= maxLent, Index: index}
	switch {
	case n <= uint32(len(o.buf)):
		l.JSON = o.buf[:n:n]
	case l.Again:
		l.JSON = fetchLarge(object, n)
		o.buf = l.JSON[:cap(l.JSON)]
	default:
		l.JSON = fetchLarge(object, n)
	}
	view.Lend(l)
	return l.JSON
}

func objectIndex(room []uint64) int    { return readIndex(room, hostObjectIndex) }
func oldObjectIndex(room []uint64) int { return readIndex(room, hostOldObjectIndex) }

// readIndex reads an index, and returns how many numbers it has; 0 if there are more
// than there is room for.
func readIndex(room []uint64, host func(buf unsafe.Pointer, limit uint32) uint32) int {
	const size = 8
	n := host(unsafe.Pointer(unsafe.SliceData(room)), uint32(len(room)*size))
	if n > uint32(len(room)*size) {
		return 0
	}
	return int(n / size)
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
		} else if patch.object != nil {
			hostMutatedObject(unsafe.Pointer(unsafe.SliceData(patch.object)), uint32(len(patch.object)))
		} else if operations := patch.JSON(); operations != nil {
			hostPatch(unsafe.Pointer(unsafe.SliceData(operations)), uint32(len(operations)))
		}
	}
	verdict := answer(response)
	leave()
	return verdict
}

// answer tells the host what a response says beside its verdict.
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
	view.Return()
	if large > collectAfter {
		large = 0
		runtime.GC()
	}
	plugin.Yield()
}
