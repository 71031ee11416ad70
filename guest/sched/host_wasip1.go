package sched

import (
	"slices"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

// The host functions of a scheduler. A guest imports only those that it uses,
// so it needs only their grants.

// buffer is that of answers that are read at once.
var buffer abi.Buffer

func at(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

func text(s string) unsafe.Pointer { return unsafe.Pointer(unsafe.StringData(s)) }

//go:wasmimport k8s.io/api object
func importObject(ref uint64, buf unsafe.Pointer, limit uint32) uint32

func hostObject(ref abi.Ref) []byte {
	return slices.Clone(buffer.Fill(func(b []byte) uint32 { return importObject(uint64(ref), at(b), uint32(len(b))) }))
}

//go:wasmimport k8s.io/scheduler node_scores
func importNodeScores(buf unsafe.Pointer, limit uint32) uint32

func hostNodeScores() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importNodeScores(at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler node_names
func importNodeNames(buf unsafe.Pointer, limit uint32) uint32

func hostNodeNames() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importNodeNames(at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler node_refs
func importNodeRefs(buf unsafe.Pointer, limit uint32) uint32

func hostNodeRefs() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importNodeRefs(at(b), uint32(len(b))) })
}

// refs returns the refs in an answer of the host. A guest has the byte order of the answer.
func refs(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/8)
}

//go:wasmimport k8s.io/scheduler node_name
func importNodeName(buf unsafe.Pointer, limit uint32) uint32

func hostNodeName() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importNodeName(at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler node_statuses
func importNodeStatuses(buf unsafe.Pointer, limit uint32) uint32

func hostNodeStatuses() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importNodeStatuses(at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler pod_group
func importPodGroup(buf unsafe.Pointer, limit uint32) uint32

func hostPodGroup() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importPodGroup(at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler placement
func importPlacement(buf unsafe.Pointer, limit uint32) uint32

func hostPlacement() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importPlacement(at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler waiting_pods
func importWaitingPods(buf unsafe.Pointer, limit uint32) uint32

func hostWaitingPods() []byte {
	return buffer.Fill(func(b []byte) uint32 { return importWaitingPods(at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler result_node_names
func importResultNodeNames(ptr unsafe.Pointer, n uint32)

func hostResultNodeNames(b []byte) { importResultNodeNames(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler result_scores
func importResultScores(ptr unsafe.Pointer, n uint32)

func hostResultScores(b []byte) { importResultScores(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler result_score
func hostResultScore(score int64)

//go:wasmimport k8s.io/scheduler result_pods
func importResultPods(ptr unsafe.Pointer, n uint32)

func hostResultPods(b []byte) { importResultPods(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler result_cluster_events
func importResultClusterEvents(ptr unsafe.Pointer, n uint32)

func hostResultClusterEvents(b []byte) { importResultClusterEvents(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler result_nominated_node_name
func importResultNominatedNodeName(ptr unsafe.Pointer, n uint32)

func hostResultNominatedNodeName(b []byte) { importResultNominatedNodeName(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler result_sign_fragments
func importResultSignFragments(ptr unsafe.Pointer, n uint32)

func hostResultSignFragments(b []byte) { importResultSignFragments(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler result_nominations
func importResultNominations(ptr unsafe.Pointer, n uint32)

func hostResultNominations(b []byte) { importResultNominations(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler result_placements
func importResultPlacements(ptr unsafe.Pointer, n uint32)

func hostResultPlacements(b []byte) { importResultPlacements(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler event
func importEvent(ptr unsafe.Pointer, n uint32)

func hostEvent(b []byte) { importEvent(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler activate
func importActivate(ptr unsafe.Pointer, n uint32)

func hostActivate(b []byte) { importActivate(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler apply_annotations
func importApplyAnnotations(ptr unsafe.Pointer, n uint32)

func hostApplyAnnotations(b []byte) { importApplyAnnotations(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler apply_status
func importApplyStatus(ptr unsafe.Pointer, n uint32)

func hostApplyStatus(b []byte) { importApplyStatus(at(b), uint32(len(b))) }

//go:wasmimport k8s.io/scheduler await_object
func importAwaitObject(ptr unsafe.Pointer, n, milliseconds uint32)

func hostAwaitObject(b []byte, milliseconds uint32) {
	importAwaitObject(at(b), uint32(len(b)), milliseconds)
}

//go:wasmimport k8s.io/scheduler waiting_pod
func importWaitingPod(ptr unsafe.Pointer, n uint32, buf unsafe.Pointer, limit uint32) uint32

func hostWaitingPod(question string) []byte {
	return buffer.Fill(func(b []byte) uint32 {
		return importWaitingPod(text(question), uint32(len(question)), at(b), uint32(len(b)))
	})
}

//go:wasmimport k8s.io/scheduler allow_waiting_pod
func importAllowWaitingPod(ptr unsafe.Pointer, n uint32) uint32

func hostAllowWaitingPod(s string) bool { return importAllowWaitingPod(text(s), uint32(len(s))) != 0 }

//go:wasmimport k8s.io/scheduler reject_waiting_pod
func importRejectWaitingPod(ptr unsafe.Pointer, n uint32) uint32

func hostRejectWaitingPod(s string) bool { return importRejectWaitingPod(text(s), uint32(len(s))) != 0 }

//go:wasmimport k8s.io/scheduler node_by_name
func importNodeByName(ptr unsafe.Pointer, n uint32) uint64

func hostNodeByName(name string) (NodeInfo, bool) {
	ref := importNodeByName(text(name), uint32(len(name)))
	if ref == 0 {
		return NodeInfo{}, false
	}
	return nodeOf(ref, uint32(ref)), true
}

//go:wasmimport k8s.io/scheduler node_info_version
func importNodeInfoVersion(ref uint64) uint64

func hostNodeInfoVersion(ref abi.Ref) uint64 { return importNodeInfoVersion(uint64(ref)) }

func generationOf(d *nodeInfo) int64 { return int64(d.check().version) }

//go:wasmimport k8s.io/scheduler node_info
func importNodeInfo(ref uint64, buf unsafe.Pointer, limit uint32) uint32

func hostNodeInfo(ref abi.Ref) []byte {
	return buffer.Fill(func(b []byte) uint32 { return importNodeInfo(uint64(ref), at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler node_images
func importNodeImages(ref uint64, buf unsafe.Pointer, limit uint32) uint32

func hostNodeImages(ref abi.Ref) []byte {
	return buffer.Fill(func(b []byte) uint32 { return importNodeImages(uint64(ref), at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler node_pods
func importNodePods(ref uint64, buf unsafe.Pointer, limit uint32) uint32

// appendPods appends the Pods of a node.
func appendPods(list []core.Pod, ref abi.Ref) []core.Pod {
	for _, pod := range refs(buffer.Fill(func(b []byte) uint32 { return importNodePods(uint64(ref), at(b), uint32(len(b))) })) {
		list = append(list, besidePod(pod))
	}
	return list
}

//go:wasmimport k8s.io/scheduler nominated_pods
func importNominatedPods(ref uint64, buf unsafe.Pointer, limit uint32) uint32

// NominatedPods returns the Pods that are nominated for the node, sorted by namespace and name, for the
// rest of the call. They may change from one call to the next.
func (n NodeInfo) NominatedPods() (list []core.Pod) {
	if n.d == nil || n.d.ref == 0 {
		return nil
	}
	answer := buffer.Fill(func(b []byte) uint32 { return importNominatedPods(uint64(n.d.ref), at(b), uint32(len(b))) })
	for _, pod := range append([]uint64(nil), refs(answer)...) {
		list = append(list, besidePod(pod))
	}
	return list
}

//go:wasmimport k8s.io/scheduler result_victims
func importResultVictims(ptr unsafe.Pointer, n uint32)

//go:wasmimport k8s.io/scheduler count_pods
func importCountPods(terminating uint32, nodes unsafe.Pointer, n uint32, question unsafe.Pointer, m uint32, buf unsafe.Pointer, limit uint32) uint32

func (s PodSelector) count(counts []int, nodes []NodeInfo) {
	of := make([]uint64, len(nodes))
	for i, n := range nodes {
		of[i] = uint64(n.d.ref)
	}
	terminating := uint32(0)
	if s.terminating {
		terminating = 1
	}
	answer := buffer.Fill(func(b []byte) uint32 {
		return importCountPods(terminating, unsafe.Pointer(unsafe.SliceData(of)), uint32(8*len(of)), text(s.question), uint32(len(s.question)), at(b), uint32(len(b)))
	})
	for i, n := range unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(answer))), len(nodes)) {
		counts[i] = int(n)
	}
}

//go:wasmimport k8s.io/scheduler list_pods
func importListPods(terminating uint32, question unsafe.Pointer, m uint32, buf unsafe.Pointer, limit uint32) uint32

func (s PodSelector) list(yield func(core.Pod) bool) {
	terminating := uint32(0)
	if s.terminating {
		terminating = 1
	}
	answer := buffer.Fill(func(b []byte) uint32 {
		return importListPods(terminating, text(s.question), uint32(len(s.question)), at(b), uint32(len(b)))
	})
	for _, ref := range append([]uint64(nil), refs(answer)...) { // A view may use the buffer.
		if !yield(besidePod(ref)) {
			return
		}
	}
}

//go:wasmimport k8s.io/scheduler pod_group_pod
func importPodGroupPod(index uint32, buf unsafe.Pointer, limit uint32) uint32

func hostPodGroupPod(index int) []byte {
	return buffer.Fill(func(b []byte) uint32 { return importPodGroupPod(uint32(index), at(b), uint32(len(b))) })
}

//go:wasmimport k8s.io/scheduler try_pod_group
func importTryPodGroup(ptr unsafe.Pointer, n uint32, buf unsafe.Pointer, limit uint32) uint32

func hostTryPodGroup(uids string) []byte {
	return buffer.Fill(func(b []byte) uint32 {
		return importTryPodGroup(text(uids), uint32(len(uids)), at(b), uint32(len(b)))
	})
}
