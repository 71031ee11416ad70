//go:build !wasip1

package sched

import (
	"sync/atomic"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/internal/lookup"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// Natively there is no scheduler unless package schedtest has made one: the host
// functions return nothing and have no effect.

func hostWaitingPods() []byte { return nativehost.CurrentScheduler().WaitingPods() }

func hostEvent(b []byte) { nativehost.CurrentScheduler().Event(b) }

func hostActivate(b []byte) { nativehost.CurrentScheduler().Activate(b) }

func hostApplyAnnotations(b []byte) { nativehost.CurrentScheduler().Apply(b, false) }

func hostApplyStatus(b []byte) { nativehost.CurrentScheduler().Apply(b, true) }

func hostAwaitObject(b []byte, milliseconds uint32) {
	nativehost.CurrentScheduler().AwaitObject(b, milliseconds)
}

func hostWaitingPod(uid string) []byte { return nativehost.CurrentScheduler().WaitingPod(uid) }

func hostAllowWaitingPod(uid string) bool { return nativehost.CurrentScheduler().AllowWaitingPod(uid) }
func hostRejectWaitingPod(request string) bool {
	return nativehost.CurrentScheduler().RejectWaitingPod(request)
}

func namesOf(uint32) []string { return nil }

func countOf(uint32) int { return 0 }

func refsOf(uint32) []uint64 { return nil }

func nodeOf(uint64, uint32) NodeInfo { return NodeInfo{} }

func newStatus() *Status { return &Status{} }

// generations is the last number that was given out.
var generations atomic.Int64

// generationOf returns another number each time: natively there is no scheduler that counts.
func generationOf(*nodeInfo) int64 { return generations.Add(1) }

func hostObject(abi.Ref) []byte { return nil }

func hostNodeNames() []byte { return nativehost.CurrentScheduler().NodeNames() }

func hostNodeByName(name string) (NodeInfo, bool) {
	ref, b := nativehost.CurrentScheduler().NodeByName(name)
	if b == nil {
		return NodeInfo{}, false
	}
	return NodeInfo{&nodeInfo{node: core.NodeFromProto(b), ref: ref}}, true
}

func hostNodeInfoVersion(abi.Ref) uint64 { return 0 }
func hostNodeInfo(ref abi.Ref) []byte    { return nativehost.CurrentScheduler().NodeInfo(ref) }
func hostNodeImages(ref abi.Ref) []byte  { return nativehost.CurrentScheduler().NodeImages(ref) }
func hostPodGroupPod(int) []byte         { return nil }
func hostTryPodGroup(string) []byte      { return nil }

func appendPods(list []core.Pod, ref abi.Ref) []core.Pod {
	for _, b := range nativehost.CurrentScheduler().NodePods(ref) {
		list = append(list, core.PodFromProto(b))
	}
	return list
}

// NominatedPods returns the Pods that are nominated for the node, sorted by namespace and name, for the
// rest of the call. They may change from one call to the next.
func (n NodeInfo) NominatedPods() (list []core.Pod) {
	if n.d == nil {
		return nil
	}
	for _, b := range nativehost.CurrentScheduler().NominatedPods(n.d.node.Metadata().Name()) {
		list = append(list, core.PodFromProto(b))
	}
	return list
}

func (s PodSelector) list(yield func(core.Pod) bool) {
	for b := range lookup.List("v1/pods", s.namespace, s.selector.String()) {
		if pod := core.PodFromProto(b); s.Matches(pod) && !yield(pod) {
			return
		}
	}
}

func (s PodSelector) count(counts []int, nodes []NodeInfo) {
	for i, n := range nodes {
		for _, pod := range n.Pods() {
			if s.Matches(pod) {
				counts[i]++
			}
		}
	}
}
