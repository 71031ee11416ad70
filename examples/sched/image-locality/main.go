// The image-locality guest prefers nodes that have the images of a Pod, by the
// rules of the scheduler's own plugin ImageLocality, and spreads the scores over
// the whole range.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

// The guest does without the name and the UID of a Pod, so the scheduler batches Pods of equal images.
//
//kubewasm:reads -pod.metadata.name -pod.metadata.uid pod.spec.containers.image pod.spec.initContainers.image

// imageLocality has no configuration.
type imageLocality struct{}

const (
	mib = 1 << 20
	// Images of less than minThreshold count as none, more than maxThreshold for
	// each container as all.
	minThreshold = 23 * mib
	maxThreshold = 1000 * mib
)

// PreFilter stores the values that are the same for every node.
func (imageLocality) PreFilter(state sched.CycleState, pod core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	w := &wanted{nodes: int64(nodes.Len())}
	for _, c := range pod.Spec().InitContainers() {
		w.images = append(w.images, normalizedName(c.Image()))
	}
	for _, c := range pod.Spec().Containers() {
		w.images = append(w.images, normalizedName(c.Image()))
	}
	state.Write(key, w)
	return nil, nil
}

const key = "wanted"

type wanted struct {
	images []string
	nodes  int64
}

// Score returns how much of the Pod's images the node has.
func (imageLocality) Score(state sched.CycleState, _ core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	v, ok := state.Read(key)
	if !ok {
		return 0, sched.NewStatus(abi.Error, "PreFilter has not run")
	}
	w := v.(*wanted)
	if w.nodes == 0 {
		return 0, nil
	}
	var sum int64
	states := node.ImageStates()
	for _, image := range w.images {
		for i := range states {
			if states[i].Name == image {
				// An image that few nodes have counts less: otherwise all Pods
				// would run on the node of the first one.
				sum += states[i].Size * int64(states[i].NumNodes) / w.nodes
			}
		}
	}
	most := maxThreshold * int64(len(w.images))
	if most <= minThreshold {
		return 0, nil
	}
	sum = min(max(sum, minThreshold), most)
	return sched.MaxNodeScore * (sum - minThreshold) / (most - minThreshold), nil
}

// NormalizeScore gives the best node 100.
func (imageLocality) NormalizeScore(_ sched.CycleState, _ core.Pod, scores sched.NodeScoreList) *sched.Status {
	var best int64
	for _, s := range scores {
		best = max(best, s.Score)
	}
	if best == 0 {
		return nil
	}
	for i := range scores {
		scores[i].Score = scores[i].Score * sched.MaxNodeScore / best
	}
	return nil
}

// normalizedName adds the tag latest to the name of an image without a tag.
func normalizedName(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}

func init() { sched.Register(imageLocality{}) }

func main() {}
