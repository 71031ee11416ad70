package differential

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubewasm/kubewasm/host"
)

// BenchmarkUsage measures plugins that read what runs on a node, through the framework: the
// scheduler's own and the guests that do the same, on 1,000 Nodes with 30 Pods on each. An
// operation is PreFilter and Filter of each Node.
func BenchmarkUsage(b *testing.B) {
	metrics.Register()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { rt.Close(context.Background()) })
	lister := &snapshot{Snapshot: busyCluster(1000, 30)}
	pod := busyPod(rand.New(rand.NewPCG(20261123, 0)), "pending", "")
	for _, name := range []string{"NodeResourcesFit", "PodTopologySpread"} {
		for _, guest := range []string{"", inTree[name]} {
			side := "plugin=" + name + "/side=native"
			if guest != "" {
				side = "plugin=" + name + "/side=guest"
			}
			f := newFramework(b, rt, lister, name, guest, "")
			b.Run(side, func(b *testing.B) {
				for b.Loop() {
					filterAll(b, f, lister, pod)
				}
			})
			if name != "PodTopologySpread" {
				continue
			}
			// The Pods of a Deployment ask the same; here each Pod is of another one.
			b.Run(side+"/selector=new", func(b *testing.B) {
				for i := 0; b.Loop(); i++ {
					other := pod.DeepCopy()
					other.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
						{Key: "version", Operator: metav1.LabelSelectorOpNotIn, Values: []string{strconv.Itoa(i)}},
					}
					filterAll(b, f, lister, other)
				}
			})
		}
	}
}

// filterAll runs PreFilter, and Filter for each node.
func filterAll(b *testing.B, f framework.Framework, lister *snapshot, pod *corev1.Pod) {
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(b.Context(), state, pod); !status.IsSuccess() {
		b.Fatal(status)
	}
	infos, err := lister.NodeInfos().List()
	if err != nil {
		b.Fatal(err)
	}
	passed := 0
	for _, info := range infos {
		if f.RunFilterPlugins(b.Context(), state, pod, info).IsSuccess() {
			passed++
		}
	}
	if passed == 0 || passed == len(infos) {
		b.Fatalf("%d of %d nodes pass: there is nothing to tell apart", passed, len(infos))
	}
}

// busyCluster returns nodes with as many Pods on each, a few of which are full.
func busyCluster(nodes, each int) *internalcache.Snapshot {
	r := rand.New(rand.NewPCG(20261123, 1))
	var list []*corev1.Node
	var running []*corev1.Pod
	for i := range nodes {
		name := fmt.Sprint("n", i)
		list = append(list, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": pick(r, "a", "b", "c"), corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(pick(r, "32", "32", "32", "10")), corev1.ResourceMemory: resource.MustParse("128Gi"),
				corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
			}},
		})
		for j := range each {
			running = append(running, busyPod(r, fmt.Sprintf("p%d-%d", i, j), name))
		}
	}
	return internalcache.NewSnapshot(running, list)
}

// busyPod returns a Pod of one of a few applications, each spread over zones.
func busyPod(r *rand.Rand, name, node string) *corev1.Pod {
	labels := map[string]string{"app": pick(r, "web", "cart", "search"), "team": "shop"}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node,
			Containers: []corev1.Container{{Name: "c", Image: "web", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(pick(r, "250m", "500m")), corev1.ResourceMemory: resource.MustParse("512Mi"),
			}}}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
				MaxSkew: 3, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": labels["app"]}},
			}},
		},
	}
}
