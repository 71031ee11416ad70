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
func fetchObject() []byte         { return lend(fetch(hostObject), objectIndex) }
func fetchOldObject() []byte      { return lend(fetch(hostOldObject), oldObjectIndex) }
func fetchOptions() []byte        { return fetch(hostOptions) }
func fetchObjectProto() []byte    { return fetch(hostObjectProto) }
func fetchOldObjectProto() []byte { return fetch(hostOldObjectProto) }

var (
	// spare is memory for answers, which plugins may keep. To allocate for each takes
	// as long as to read it.
	spare []byte
	// large is how many bytes of answers too long for spare were fetched since
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

// spareBytes is how much is allocated for answers at a time, and longest how long one
// may be that comes from there.
const (
	spareBytes = 32 << 10
	longest    = spareBytes / 2
)

// fetch returns what a host function has to say, nil if it is nothing.
func fetch(host func(buf unsafe.Pointer, limit uint32) uint32) []byte {
	n := host(unsafe.Pointer(unsafe.SliceData(spare)), uint32(len(spare)))
	switch {
	case n == 0:
		return nil
	case uint64(n) <= uint64(len(spare)):
		b := spare[:n:n]
		spare = spare[n:]
		return b
	case n <= longest:
		spare = make([]byte, spareBytes)
		return fetch(host)
	}
	large += int(n)
	b := make([]byte, n)
	if again := host(unsafe.Pointer(unsafe.SliceData(b)), n); again != n {
		panic("kubewasm: host changed its answer within one call")
	}
	return b
}

// lend lends an object, whose index a host function knows. The memory of views of it is
// used again after the call, unless it might be much.
func lend(object []byte, index func([]uint64) int) []byte {
	view.Lend(view.Loan{JSON: object, Again: len(object) <= lentAgain, Index: index})
	return object
}

const lentAgain = 32 << 10

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
