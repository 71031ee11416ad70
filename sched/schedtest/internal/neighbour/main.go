// The neighbour guest is run by the tests of the harness, both ways: it uses everything of the
// scheduler beyond its arguments.
package main

import (
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/sched"
)

//kubewasm:name neighbour

type neighbour struct {
	// Size is the number of Pods that must have a node before any is bound.
	Size int `json:"size"`
}

// Filter reports its data about the node.
func (n *neighbour) Filter(_ sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	if pod.Metadata().Labels().Has("loud") {
		sched.Eventf("Normal", "Asked", "Filter", "about ", node.Node().Metadata().Name())
	}
	return sched.Unschedulable(describe(node))
}

func describe(node sched.NodeInfo) string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	u := node.Usage()
	words := []string{
		node.Node().Metadata().Name(),
		"cpu", number(u.Requested.MilliCPU) + "/" + number(u.NonZeroRequested.MilliCPU) + "/" + number(u.Allocatable.MilliCPU),
		"memory", number(u.Requested.Memory) + "/" + number(u.Allocatable.Memory),
		"gpu", number(u.Requested.Scalar("example.com/gpu")) + "/" + number(u.Allocatable.Scalar("example.com/gpu")),
		"room", number(u.Allocatable.AllowedPodNumber - int64(node.NumPods())),
	}
	for _, port := range u.UsedPorts {
		words = append(words, "port", port.Protocol+strconv.Itoa(int(port.Port)))
	}
	for _, claim := range u.PVCRefCounts {
		words = append(words, "claim", claim.Name)
	}
	for _, image := range node.ImageStates() {
		words = append(words, "image", image.Name+"*"+strconv.Itoa(image.NumNodes))
	}
	for _, pod := range node.Pods() {
		words = append(words, "Pod", pod.Metadata().Name())
	}
	return strings.Join(words, " ")
}

// PreScore reads all nodes but one.
func (n *neighbour) PreScore(_ sched.CycleState, _ core.Pod, nodes sched.NodeInfos) *sched.Status {
	var names []string
	for i := range nodes.Len() {
		names = append(names, nodes.At(i).Node().Metadata().Name())
	}
	if _, ok := sched.SnapshotNode("nobody"); ok {
		names = append(names, "nobody")
	}
	return sched.NewStatus(abi.Error, strings.Join(append(names, sched.SnapshotNodeNames()...), " "))
}

func (n *neighbour) Score(sched.CycleState, core.Pod, sched.NodeInfo) (int64, *sched.Status) {
	return 0, nil
}

func (n *neighbour) Reserve(sched.CycleState, core.Pod, string) *sched.Status { return nil }

// Unreserve rejects all that wait.
func (n *neighbour) Unreserve(_ sched.CycleState, pod core.Pod, nodeName string) {
	sched.Eventf("Warning", "Lost", "Binding", pod.Metadata().Name(), " has lost ", nodeName)
	for _, w := range sched.WaitingPods() {
		w.Reject(pod.Metadata().Name(), " is lost")
	}
}

// Permit makes Pods wait until there are enough.
func (n *neighbour) Permit(_ sched.CycleState, pod core.Pod, _ string) (*sched.Status, meta.Duration) {
	waiting := sched.WaitingPods()
	if len(waiting)+1 < n.Size {
		return sched.NewStatus(abi.Wait, strconv.Itoa(n.Size-1-len(waiting)), " more"), meta.Second
	}
	for _, w := range waiting {
		if p, ok := w.Pod(); ok && len(w.PendingPlugins) == 1 && w.Allow() {
			sched.Eventf("Normal", "Allowed", "Permit", p.Metadata().Name())
		}
	}
	return nil, 0
}

func (n *neighbour) PreBindPreFlight(sched.CycleState, core.Pod, string) (*sched.PreBindPreFlightResult, *sched.Status) {
	return nil, nil
}

// PreBind reads the claims, and the snapshot, which no longer exists.
func (n *neighbour) PreBind(_ sched.CycleState, pod core.Pod, nodeName string) *sched.Status {
	if name := pod.Metadata().Labels().Get("awaits"); name != "" {
		if sched.GetObject("v1/persistentvolumeclaims", "shop", name) == nil {
			sched.AwaitObject("v1/persistentvolumeclaims", "shop", name, 1e9)
			return sched.NewStatus(abi.Wait, "no ", name)
		}
		sched.ApplyAnnotations("v1/persistentvolumeclaims", "shop", name, map[string]string{"b": "2", "a": "1"})
		sched.ApplyStatus("v1/persistentvolumeclaims", "shop", name, []byte(`{"phase":"Bound"}`))
		return nil
	}
	const claims = "v1/persistentvolumeclaims"
	b := sched.GetObject(claims, pod.Metadata().Namespace(), "data")
	if b == nil {
		return sched.Unschedulable("no claim")
	}
	var names []string
	for b := range sched.ListObjects(claims, "", "") {
		names = append(names, core.PersistentVolumeClaimFromProto(b).Metadata().Name())
	}
	if class := sched.GetObject("storage.k8s.io/v1/storageclasses", "", "fast"); class != nil {
		names = append(names, "fast")
	}
	if _, ok := sched.SnapshotNode(nodeName); ok {
		names = append(names, nodeName)
	}
	return sched.Unschedulable(core.PersistentVolumeClaimFromProto(b).Spec().VolumeName(), " of ", strings.Join(names, " "))
}

func init() { sched.Register(&neighbour{}) }

func main() {}
