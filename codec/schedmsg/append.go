package schedmsg

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// AppendNodeInfo appends the encoding of the message NodeInfo. Maps are written
// in the order of their keys, so equal information has equal bytes.
func AppendNodeInfo(dst []byte, n fwk.NodeInfo) []byte {
	dst = appendResource(dst, 1, n.GetRequested())
	dst = appendResource(dst, 2, n.GetNonZeroRequested())
	dst = appendResource(dst, 3, n.GetAllocatable())
	ports := n.GetUsedPorts()
	for _, ip := range slices.Sorted(maps.Keys(ports)) {
		sorted := slices.SortedFunc(maps.Keys(ports[ip]), func(a, b fwk.ProtocolPort) int {
			if a.Port != b.Port {
				return int(a.Port) - int(b.Port)
			}
			return compare(a.Protocol, b.Protocol)
		})
		for _, p := range sorted {
			dst = appendMessage(dst, 4, func(b []byte) []byte {
				b = appendString(b, 1, ip)
				b = appendString(b, 2, p.Protocol)
				return appendNumber(b, 3, int64(p.Port))
			})
		}
	}
	counts := n.GetPVCRefCounts()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		dst = appendEntry(dst, 5, name, int64(counts[name]))
	}
	return appendNumber(dst, 6, int64(len(n.GetPods())))
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func appendResource(dst []byte, field protowire.Number, r fwk.Resource) []byte {
	return appendMessage(dst, field, func(b []byte) []byte {
		b = appendNumber(b, 1, r.GetMilliCPU())
		b = appendNumber(b, 2, r.GetMemory())
		b = appendNumber(b, 3, r.GetEphemeralStorage())
		b = appendNumber(b, 4, int64(r.GetAllowedPodNumber()))
		scalars := r.GetScalarResources()
		for _, name := range slices.Sorted(maps.Keys(scalars)) {
			b = appendEntry(b, 5, string(name), scalars[name])
		}
		return b
	})
}

// AppendNodeImages appends the encoding of the message NodeImages.
func AppendNodeImages(dst []byte, images map[string]*fwk.ImageStateSummary) []byte {
	for _, name := range slices.Sorted(maps.Keys(images)) {
		dst = appendMessage(dst, 1, func(b []byte) []byte {
			b = appendString(b, 1, name)
			b = appendNumber(b, 2, images[name].Size)
			return appendNumber(b, 3, int64(images[name].NumNodes))
		})
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
		dst = appendMessage(dst, 1, func(b []byte) []byte {
			b = appendString(b, 1, s.NodeName)
			b = appendNumber(b, 2, int64(s.Status.Code()))
			return appendString(b, 3, s.Status.Message())
		})
	}
	return dst
}

// AppendPodGroup appends the encoding of the message PodGroup.
func AppendPodGroup(dst []byte, g fwk.PodGroupInfo) []byte {
	dst = appendString(dst, 1, string(g.GetType()))
	dst = appendString(dst, 2, g.GetNamespace())
	dst = appendString(dst, 3, g.GetName())
	return appendNumber(dst, 4, int64(len(g.GetUnscheduledPods())))
}

// AppendPlacement appends the encoding of the message Placement.
func AppendPlacement(dst []byte, p *fwk.PodGroupAssignments) []byte {
	if p.Placement != nil {
		dst = appendString(dst, 1, p.Name)
		for _, n := range p.Nodes {
			dst = appendBytes(dst, 2, []byte(n.Node().Name))
		}
	}
	for _, a := range p.ProposedAssignments {
		dst = appendAssignment(dst, 3, a)
	}
	return dst
}

// AppendTrial appends the encoding of the message Trial. p may be nil.
func AppendTrial(dst []byte, p *fwk.PodGroupAssignments, status *fwk.Status) []byte {
	dst = appendNumber(dst, 1, int64(status.Code()))
	dst = appendString(dst, 2, status.Message())
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
	return appendMessage(dst, field, func(b []byte) []byte {
		b = appendString(b, 1, a.GetPod().Namespace)
		b = appendString(b, 2, a.GetPod().Name)
		return appendString(b, 3, a.GetNodeName())
	})
}

// AppendWaitingPod appends a Pod to the encoding of the message WaitingPods.
func AppendWaitingPod(dst []byte, pod *corev1.Pod, pending []string) []byte {
	return appendMessage(dst, 1, func(b []byte) []byte {
		b = appendString(b, 1, string(pod.UID))
		b = appendString(b, 2, pod.Namespace)
		b = appendString(b, 3, pod.Name)
		for _, plugin := range pending {
			b = appendBytes(b, 4, []byte(plugin))
		}
		return b
	})
}

// appendMessage appends a field with the message that fill appends.
func appendMessage(dst []byte, field protowire.Number, fill func([]byte) []byte) []byte {
	return appendBytes(dst, field, fill(nil))
}

func appendBytes(dst []byte, field protowire.Number, b []byte) []byte {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendBytes(dst, b)
}

// appendString appends a field without presence: an empty one is left out.
func appendString(dst []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return dst
	}
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	return protowire.AppendString(dst, s)
}

// appendNumber appends a field without presence: zero is left out.
func appendNumber(dst []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return dst
	}
	dst = protowire.AppendTag(dst, field, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(v))
}

func appendEntry(dst []byte, field protowire.Number, key string, v int64) []byte {
	return appendMessage(dst, field, func(b []byte) []byte {
		return appendNumber(appendString(b, 1, key), 2, v)
	})
}
