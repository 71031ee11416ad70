// Package outside is an adapter for a scheduler of its own, in another module: it uses what is
// public.
package outside

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched"
)

// Node is a node of the scheduler.
type Node struct {
	Object     *corev1.Node
	Pods       []*corev1.Pod
	Generation int64
}

// Node implements sched.NodeInfo.
func (n *Node) Node() *corev1.Node { return n.Object }

// GetGeneration implements sched.NodeInfo.
func (n *Node) GetGeneration() int64 { return n.Generation }

// amounts is a schedmsg.Resource.
type amounts corev1.ResourceList

func (a amounts) of(name corev1.ResourceName) int64 {
	q := a[name]
	return q.Value()
}

func (a amounts) GetMilliCPU() int64 {
	q := a[corev1.ResourceCPU]
	return q.MilliValue()
}
func (a amounts) GetMemory() int64                                  { return a.of(corev1.ResourceMemory) }
func (a amounts) GetEphemeralStorage() int64                        { return a.of(corev1.ResourceEphemeralStorage) }
func (a amounts) GetAllowedPodNumber() int                          { return int(a.of(corev1.ResourcePods)) }
func (a amounts) GetScalarResources() map[corev1.ResourceName]int64 { return nil }

// requested returns the sum of the requests of the Pods of a node.
func (n *Node) requested() amounts {
	sum := amounts{}
	for _, pod := range n.Pods {
		for _, c := range pod.Spec.Containers {
			for name, q := range c.Resources.Requests {
				all := sum[name]
				all.Add(q)
				sum[name] = all
			}
		}
	}
	return sum
}

// Load loads a plugin for the scheduler.
func Load(ctx context.Context, rt *host.Runtime, name string, source host.Source, config []byte) (*sched.Plugin, error) {
	return sched.Load(ctx, rt, sched.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{Source: source}, GuestConfig: config}}, sched.Framework{
		Minor:      "of another scheduler",
		AppendPods: func(pods []*corev1.Pod, n sched.NodeInfo) []*corev1.Pod { return append(pods, n.(*Node).Pods...) },
		Usage: func(n sched.NodeInfo) schedmsg.NodeInfo {
			node := n.(*Node)
			requested := node.requested()
			return schedmsg.NodeInfo{Requested: requested, NonZeroRequested: requested, Allocatable: amounts(node.Object.Status.Allocatable), Pods: len(node.Pods)}
		},
		Images: func(n sched.NodeInfo) (images []schedmsg.Image) {
			for _, image := range n.Node().Status.Images {
				for _, name := range image.Names {
					images = append(images, schedmsg.Image{Name: name, Size: image.SizeBytes, NumNodes: 1})
				}
			}
			return images
		},
	})
}

// Place returns the first node that the plugin accepts for a Pod, nil with the reasons if there is none.
func Place(p *sched.Plugin, pod *corev1.Pod, nodes []*Node) (chosen *Node, reasons []string) {
	cycle := p.Begin(pod)
	if _, status := p.PreFilter(cycle, list(nodes)); status != nil {
		return nil, []string{status.Message()}
	}
	for _, n := range nodes {
		status := p.Filter(cycle, n)
		if status == nil {
			return n, nil
		}
		reasons = append(reasons, fmt.Sprintf("%s: %s", n.Object.Name, status.Message()))
	}
	return nil, reasons
}

type list []*Node

func (l list) Len() int                { return len(l) }
func (l list) At(i int) sched.NodeInfo { return l[i] }
