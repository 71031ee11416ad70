// The zone guest extends kube-scheduler: it keeps a Pod in the zones that it
// asks for, away from tainted nodes, and near its images.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// The fields of Nodes and Pods that the guest reads. It does without the name and the UID of a
// Pod, so the scheduler batches Pods that are equal in the others.
//
//kubewasm:reads node.metadata.labels[topology.kubernetes.io/zone] node.spec.unschedulable node.spec.taints node.status.images
//kubewasm:reads pod.metadata.annotations[kubewasm.dev/zones] pod.spec.containers.image pod.spec.tolerations
//kubewasm:reads -pod.metadata.name -pod.metadata.uid

const (
	zoneLabel       = "topology.kubernetes.io/zone"
	zonesAnnotation = "kubewasm.dev/zones"
)

type zone struct {
	// DefaultZones are for Pods without the annotation; none means every zone.
	DefaultZones []string `json:"defaultZones"`
}

// want is the result of PreFilter, computed once for all nodes.
type want struct {
	zones  []string
	images []string
}

func (z *zone) PreFilter(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	w := &want{zones: z.DefaultZones}
	if list, ok := pod.Metadata().Annotations().Lookup(zonesAnnotation); ok {
		w.zones = nil
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name == "" {
				return nil, sched.UnschedulableAndUnresolvable("annotation ", zonesAnnotation, ` has an empty zone in "`, list, `"`)
			}
			w.zones = append(w.zones, name)
		}
	}
	for _, c := range pod.Spec().Containers() {
		w.images = append(w.images, c.Image())
	}
	state.Write("want", w)
	return nil, nil
}

func (z *zone) Filter(state sched.CycleState, pod core.Pod, node sched.NodeInfo) *sched.Status {
	w := wanted(state)
	if got := node.Node().Metadata().Labels().Get(zoneLabel); len(w.zones) != 0 && !has(w.zones, got) {
		return sched.Unschedulable(`node is in zone "`, got, `", the Pod wants `, strings.Join(w.zones, " or "))
	}
	if node.Node().Spec().Unschedulable() {
		return sched.UnschedulableAndUnresolvable("node is cordoned")
	}
	if taint, found := core.FindUntolerated(node.Node().Spec().Taints(), pod.Spec().Tolerations()); found {
		return sched.UnschedulableAndUnresolvable("node has the taint ", taint.String(), ", which the Pod does not tolerate")
	}
	return nil
}

// Score is how many MiB of the Pod's images the node has already.
func (z *zone) Score(state sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	var size int64
	for _, image := range node.Node().Status().Images() {
		for _, name := range image.Names() {
			if has(wanted(state).images, name) {
				size += image.SizeBytes()
				break
			}
		}
	}
	return size >> 20, nil
}

// NormalizeScore gives the best node the highest score and the others their
// share of it.
func (z *zone) NormalizeScore(_ sched.CycleState, _ core.Pod, scores sched.NodeScoreList) *sched.Status {
	var best int64
	for _, s := range scores {
		best = max(best, s.Score)
	}
	for i := range scores {
		if best != 0 {
			scores[i].Score = scores[i].Score * sched.MaxNodeScore / best
		}
	}
	return nil
}

func wanted(state sched.CycleState) *want {
	w, _ := state.Read("want")
	return w.(*want)
}

func has(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

func init() { sched.Register(&zone{}) }

func main() {}
