package schedmsg

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/internal/wire"
)

// AppendNodeInfo appends the encoding of the message NodeInfo. Maps are written
// in the order of their keys, so equal information has equal bytes.
func AppendNodeInfo(dst []byte, n fwk.NodeInfo) []byte {
	dst = appendResource(dst, 1, n.GetRequested())
	dst = appendResource(dst, 2, n.GetNonZeroRequested())
	dst = appendResource(dst, 3, n.GetAllocatable())
	ports := n.GetUsedPorts()
	for _, ip := range slices.Sorted(maps.Keys(ports)) {
		for _, p := range slices.SortedFunc(maps.Keys(ports[ip]), func(a, b fwk.ProtocolPort) int {
			return cmp.Or(cmp.Compare(a.Port, b.Port), strings.Compare(a.Protocol, b.Protocol))
		}) {
			var start int
			dst, start = wire.BeginMessage(dst, 4)
			dst = wire.AppendString(dst, 1, ip)
			dst = wire.AppendString(dst, 2, p.Protocol)
			dst = wire.AppendNumber(dst, 3, int64(p.Port))
			dst = wire.EndMessage(dst, start)
		}
	}
	counts := n.GetPVCRefCounts()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		dst = appendCount(dst, 5, name, int64(counts[name]))
	}
	return wire.AppendNumber(dst, 6, int64(len(n.GetPods())))
}

func appendResource(dst []byte, field protowire.Number, r fwk.Resource) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendNumber(dst, 1, r.GetMilliCPU())
	dst = wire.AppendNumber(dst, 2, r.GetMemory())
	dst = wire.AppendNumber(dst, 3, r.GetEphemeralStorage())
	dst = wire.AppendNumber(dst, 4, int64(r.GetAllowedPodNumber()))
	scalars := r.GetScalarResources()
	for _, name := range slices.Sorted(maps.Keys(scalars)) {
		dst = appendCount(dst, 5, string(name), scalars[name])
	}
	return wire.EndMessage(dst, start)
}

// appendCount appends an entry of a map<string, int64>.
func appendCount(dst []byte, field protowire.Number, key string, v int64) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendNumber(wire.AppendString(dst, 1, key), 2, v)
	return wire.EndMessage(dst, start)
}

// AppendNodeImages appends the encoding of the message NodeImages.
func AppendNodeImages(dst []byte, images map[string]*fwk.ImageStateSummary) []byte {
	for _, name := range slices.Sorted(maps.Keys(images)) {
		var start int
		dst, start = wire.BeginMessage(dst, 1)
		dst = wire.AppendString(dst, 1, name)
		dst = wire.AppendNumber(dst, 2, images[name].Size)
		dst = wire.AppendNumber(dst, 3, int64(images[name].NumNodes))
		dst = wire.EndMessage(dst, start)
	}
	return dst
}

// NodeStatus is the status of a node.
type NodeStatus struct {
	NodeName string
	Status   *fwk.Status
}

// AppendNodeStatuses appends the encoding of the message NodeStatuses.
func AppendNodeStatuses(dst []byte, statuses []NodeStatus) []byte {
	for _, s := range statuses {
		var start int
		dst, start = wire.BeginMessage(dst, 1)
		dst = wire.AppendString(dst, 1, s.NodeName)
		dst = wire.AppendNumber(dst, 2, int64(s.Status.Code()))
		dst = wire.AppendString(dst, 3, s.Status.Message())
		dst = wire.EndMessage(dst, start)
	}
	return dst
}

// AppendPodGroup appends the encoding of the message PodGroup.
func AppendPodGroup(dst []byte, g fwk.PodGroupInfo) []byte {
	dst = wire.AppendString(dst, 1, string(g.GetType()))
	dst = wire.AppendString(dst, 2, g.GetNamespace())
	dst = wire.AppendString(dst, 3, g.GetName())
	return wire.AppendNumber(dst, 4, int64(len(g.GetUnscheduledPods())))
}

// AppendPlacement appends the encoding of the message Placement.
func AppendPlacement(dst []byte, p *fwk.PodGroupAssignments) []byte {
	if p.Placement != nil {
		dst = wire.AppendString(dst, 1, p.Name)
		for _, n := range p.Nodes {
			dst = wire.AppendItem(dst, 2, n.Node().Name)
		}
	}
	for _, a := range p.ProposedAssignments {
		dst = appendAssignment(dst, 3, a)
	}
	return dst
}

// AppendTrial appends the encoding of the message Trial. p may be nil.
func AppendTrial(dst []byte, p *fwk.PodGroupAssignments, status *fwk.Status) []byte {
	dst = wire.AppendNumber(dst, 1, int64(status.Code()))
	dst = wire.AppendString(dst, 2, status.Message())
	if p == nil {
		return dst
	}
	for _, a := range p.ProposedAssignments {
		if a.GetNodeName() != "" {
			dst = appendAssignment(dst, 3, a)
		}
	}
	return dst
}

func appendAssignment(dst []byte, field protowire.Number, a fwk.ProposedAssignment) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendString(dst, 1, a.GetPod().Namespace)
	dst = wire.AppendString(dst, 2, a.GetPod().Name)
	dst = wire.AppendString(dst, 3, a.GetNodeName())
	return wire.EndMessage(dst, start)
}

// AppendWaitingPod appends a Pod to the encoding of the message WaitingPods.
func AppendWaitingPod(dst []byte, pod *corev1.Pod, pending []string) []byte {
	dst, start := wire.BeginMessage(dst, 1)
	dst = wire.AppendString(dst, 1, string(pod.UID))
	dst = wire.AppendString(dst, 2, pod.Namespace)
	dst = wire.AppendString(dst, 3, pod.Name)
	for _, plugin := range pending {
		dst = wire.AppendItem(dst, 4, plugin)
	}
	return wire.EndMessage(dst, start)
}
