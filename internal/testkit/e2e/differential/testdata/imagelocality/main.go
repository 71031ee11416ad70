// The imagelocality guest is the scheduler's plugin ImageLocality.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type imageLocality struct{}

const (
	minThreshold = 23 << 20
	maxThreshold = 1000 << 20
)

// wanted is the images of a Pod, and how many nodes there are.
type wanted struct {
	images []string
	nodes  int
}

func (imageLocality) PreScore(state sched.CycleState, pod core.Pod, _ sched.NodeInfos) *sched.Status {
	wantedOf(state, pod)
	return nil
}

// wantedOf returns the images that a Pod wants, which it finds once for each instance.
func wantedOf(state sched.CycleState, pod core.Pod) *wanted {
	if w, ok := state.Read("wanted"); ok {
		return w.(*wanted)
	}
	w := &wanted{}
	spec := pod.Spec()
	for _, c := range spec.InitContainers() {
		w.images = append(w.images, normalized(c.Image()))
	}
	for _, c := range spec.Containers() {
		w.images = append(w.images, normalized(c.Image()))
	}
	for _, v := range spec.Volumes() {
		if v.VolumeSource().HasImage() {
			w.images = append(w.images, normalized(v.VolumeSource().Image().Reference()))
		}
	}
	state.Write("wanted", w)
	return w
}

// PreFilter counts the nodes, which PreScore does not see.
func (imageLocality) PreFilter(state sched.CycleState, _ core.Pod, nodes sched.NodeInfos) (*sched.PreFilterResult, *sched.Status) {
	state.Write("nodes", nodes.Len())
	return nil, nil
}

// Score also runs without PreScore, in a profile that has the plugin at score only.
func (imageLocality) Score(state sched.CycleState, pod core.Pod, node sched.NodeInfo) (int64, *sched.Status) {
	w := wantedOf(state, pod)
	v, _ := state.Read("nodes")
	nodes := float64(v.(int))
	var sum int64
	states := node.ImageStates()
	for _, image := range w.images {
		for i := range states {
			if states[i].Name == image {
				sum += int64(float64(states[i].Size) * (float64(states[i].NumNodes) / nodes))
			}
		}
	}
	most := int64(maxThreshold) * int64(len(w.images))
	sum = min(max(sum, minThreshold), most)
	return sched.MaxNodeScore * (sum - minThreshold) / (most - minThreshold), nil
}

func normalized(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}

func init() { sched.Register(imageLocality{}) }

func main() {}
