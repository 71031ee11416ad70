package schedmsg

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// NodeInfo holds the scheduler's counts of a node.
type NodeInfo struct {
	Requested, NonZeroRequested, Allocatable Resource
	// UsedPorts are in any order, without duplicates.
	UsedPorts []HostPort
	// PVCRefCounts has the number of Pods that use a claim, by "namespace/name".
	PVCRefCounts map[string]int
	// Pods is the number of Pods on the node.
	Pods int
}

// Resource is amounts of resources, with the methods of the scheduler framework's Resource.
type Resource interface {
	GetMilliCPU() int64
	GetMemory() int64
	GetEphemeralStorage() int64
	GetAllowedPodNumber() int
	GetScalarResources() map[corev1.ResourceName]int64
}

// HostPort is a port of a node that a Pod uses.
type HostPort struct {
	IP, Protocol string
	Port         int32
}

// Append appends the encoding of the message NodeInfo to dst. Ports and maps are written in
// the order of their keys, so equal information has equal bytes. It sorts n.UsedPorts.
func (n NodeInfo) Append(dst []byte) []byte {
	dst = appendResource(dst, 1, n.Requested)
	dst = appendResource(dst, 2, n.NonZeroRequested)
	dst = appendResource(dst, 3, n.Allocatable)
	slices.SortFunc(n.UsedPorts, func(a, b HostPort) int {
		return cmp.Or(strings.Compare(a.IP, b.IP), cmp.Compare(a.Port, b.Port), strings.Compare(a.Protocol, b.Protocol))
	})
	for _, p := range n.UsedPorts {
		var start int
		dst, start = wire.BeginMessage(dst, 4)
		dst = wire.AppendString(dst, 1, p.IP)
		dst = wire.AppendString(dst, 2, p.Protocol)
		dst = wire.AppendNumber(dst, 3, int64(p.Port))
		dst = wire.EndMessage(dst, start)
	}
	if len(n.PVCRefCounts) != 0 {
		for _, name := range slices.Sorted(maps.Keys(n.PVCRefCounts)) {
			dst = appendCount(dst, 5, name, int64(n.PVCRefCounts[name]))
		}
	}
	return wire.AppendNumber(dst, 6, int64(n.Pods))
}

func appendResource(dst []byte, field protowire.Number, r Resource) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendNumber(dst, 1, r.GetMilliCPU())
	dst = wire.AppendNumber(dst, 2, r.GetMemory())
	dst = wire.AppendNumber(dst, 3, r.GetEphemeralStorage())
	dst = wire.AppendNumber(dst, 4, int64(r.GetAllowedPodNumber()))
	scalars := r.GetScalarResources()
	if len(scalars) == 0 {
		return wire.EndMessage(dst, start) // Nearly always so.
	}
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

// Image is an image that is on a node.
type Image struct {
	Name string
	// Size is in bytes, NumNodes the number of nodes that have the image.
	Size     int64
	NumNodes int
}

// AppendNodeImages appends the encoding of the message NodeImages, in the order of the
// images' names. It sorts images.
func AppendNodeImages(dst []byte, images []Image) []byte {
	slices.SortFunc(images, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	for _, image := range images {
		var start int
		dst, start = wire.BeginMessage(dst, 1)
		dst = wire.AppendString(dst, 1, image.Name)
		dst = wire.AppendNumber(dst, 2, image.Size)
		dst = wire.AppendNumber(dst, 3, int64(image.NumNodes))
		dst = wire.EndMessage(dst, start)
	}
	return dst
}

// NodeStatus is the status of a node.
type NodeStatus struct {
	NodeName string
	Code     abi.Code
	// Message is the reasons, with ", " between them.
	Message string
}

// Append appends s to the encoding of the message NodeStatuses.
func (s NodeStatus) Append(dst []byte) []byte {
	dst, start := wire.BeginMessage(dst, 1)
	dst = wire.AppendString(dst, 1, s.NodeName)
	dst = wire.AppendNumber(dst, 2, int64(s.Code))
	dst = wire.AppendString(dst, 3, s.Message)
	return wire.EndMessage(dst, start)
}

// PodGroup is a group of Pods that are scheduled together.
type PodGroup struct {
	Type, Namespace, Name string
	// Pods are those that are not scheduled yet.
	Pods []*corev1.Pod
}

// Append appends the encoding of the message PodGroup to dst.
func (g PodGroup) Append(dst []byte) []byte {
	dst = wire.AppendString(dst, 1, g.Type)
	dst = wire.AppendString(dst, 2, g.Namespace)
	dst = wire.AppendString(dst, 3, g.Name)
	return wire.AppendNumber(dst, 4, int64(len(g.Pods)))
}

// Assignment is a Pod of a group and the node that is proposed for it, empty if none is.
type Assignment struct {
	Pod      *corev1.Pod
	NodeName string
}

// Append appends the encoding of the message Placement, with the assignments of a simulation, to dst.
func (p Placement) Append(dst []byte, assignments []Assignment) []byte {
	dst = wire.AppendString(dst, 1, p.Name)
	for _, name := range p.NodeNames {
		dst = wire.AppendItem(dst, 2, name)
	}
	for _, a := range assignments {
		dst = appendAssignment(dst, 3, a)
	}
	return dst
}

// AppendTrial appends the encoding of the message Trial.
func AppendTrial(dst []byte, code abi.Code, message string, assignments []Assignment) []byte {
	dst = wire.AppendNumber(dst, 1, int64(code))
	dst = wire.AppendString(dst, 2, message)
	for _, a := range assignments {
		if a.NodeName != "" {
			dst = appendAssignment(dst, 3, a)
		}
	}
	return dst
}

func appendAssignment(dst []byte, field protowire.Number, a Assignment) []byte {
	dst, start := wire.BeginMessage(dst, field)
	dst = wire.AppendString(dst, 1, a.Pod.Namespace)
	dst = wire.AppendString(dst, 2, a.Pod.Name)
	dst = wire.AppendString(dst, 3, a.NodeName)
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
