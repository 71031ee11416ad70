//go:build wasip1

// The decode guest of the benchmark does what the filter guest does in the way
// that a Go programmer would think of first: it imports k8s.io/api and decodes
// each version of an object as a whole. It stands on the ABI alone.
package main

import (
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

//go:wasmimport k8s.io/api object
func object(ref uint64, buf unsafe.Pointer, limit uint32) uint32

var (
	buf  = make([]byte, 1<<20)
	pod  corev1.Pod
	node corev1.Node
	// The refs that the two were read by.
	podRef, nodeRef uint64
)

func fetch(ref uint64) []byte {
	n := object(ref, unsafe.Pointer(unsafe.SliceData(buf)), uint32(len(buf)))
	return buf[:n]
}

//go:wasmexport kubewasm_abi_v1
func marker() uint64 { return 1 << 7 } // filter

//go:wasmexport filter
func filter(_, p, n uint64) uint32 {
	if p != podRef {
		pod = corev1.Pod{}
		if pod.Unmarshal(fetch(p)) != nil {
			return 1
		}
		podRef = p
	}
	if n != nodeRef {
		node = corev1.Node{}
		if node.Unmarshal(fetch(n)) != nil {
			return 1
		}
		nodeRef = n
	}
	if node.Labels["topology.kubernetes.io/zone"] == "" {
		return 2
	}
next:
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
			continue
		}
		for j := range pod.Spec.Tolerations {
			if pod.Spec.Tolerations[j].ToleratesTaint(klog.Background(), t, true) {
				continue next
			}
		}
		return 2
	}
	return 0
}

func main() {}
