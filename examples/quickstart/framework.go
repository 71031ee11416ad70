package main

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/sched"
)

// framework is the least that a scheduler tells package sched: its nodes have no Pods and no images,
// and it offers no host functions. Package kube137 is that of a kube-scheduler.
var framework = sched.Framework{
	Minor:      "of the quick start",
	AppendPods: func(pods []*corev1.Pod, _ sched.NodeInfo) []*corev1.Pod { return pods },
	Usage: func(n sched.NodeInfo) schedmsg.NodeInfo {
		allocatable := amounts(n.Node().Status.Allocatable)
		return schedmsg.NodeInfo{Requested: amounts{}, NonZeroRequested: amounts{}, Allocatable: allocatable}
	},
	Images: func(sched.NodeInfo) []schedmsg.Image { return nil },
}

// node is a node as the scheduler sees it.
type node struct {
	object     *corev1.Node
	generation int64
}

func (n *node) Node() *corev1.Node   { return n.object }
func (n *node) GetGeneration() int64 { return n.generation }

// snapshot is a list of nodes.
type snapshot []*node

func (s snapshot) Len() int                { return len(s) }
func (s snapshot) At(i int) sched.NodeInfo { return s[i] }

// nodeScore is the score of a node.
type nodeScore struct {
	name  string
	score int64
}

// scoreList is a list of scores, which NormalizeScore changes.
type scoreList []nodeScore

func (l scoreList) Len() int                    { return len(l) }
func (l scoreList) Name(i int) string           { return l[i].name }
func (l scoreList) Score(i int) int64           { return l[i].score }
func (l scoreList) SetScore(i int, score int64) { l[i].score = score }

// amounts are the amounts of a node's resources.
type amounts corev1.ResourceList

func (a amounts) GetMilliCPU() int64 {
	q := a[corev1.ResourceCPU]
	return q.MilliValue()
}

func (a amounts) value(name corev1.ResourceName) int64 {
	q := a[name]
	return q.Value()
}

func (a amounts) GetMemory() int64                                  { return a.value(corev1.ResourceMemory) }
func (a amounts) GetEphemeralStorage() int64                        { return a.value(corev1.ResourceEphemeralStorage) }
func (a amounts) GetAllowedPodNumber() int                          { return int(a.value(corev1.ResourcePods)) }
func (a amounts) GetScalarResources() map[corev1.ResourceName]int64 { return nil }
