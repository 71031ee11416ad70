package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// queuePlugin is asked outside of scheduling cycles.
type queuePlugin interface {
	fwk.PreEnqueuePlugin
	fwk.QueueSortPlugin
	fwk.EnqueueExtensions
	fwk.SignPlugin
}

// nativeQueue does in Go what guests/queue does.
type nativeQueue struct{}

func (nativeQueue) Name() string { return "native" }

func (nativeQueue) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if _, gated := pod.Labels["example.com/gate"]; gated {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the Pod is gated")
	}
	return nil
}

func (nativeQueue) Less(a, b fwk.QueuedEntityInfo) bool {
	x, y := a.(kube137test.QueuedPod).Pod.Labels["example.com/tier"], b.(kube137test.QueuedPod).Pod.Labels["example.com/tier"]
	if x != y {
		return x < y
	}
	return a.GetTimestamp().Before(b.GetTimestamp())
}

func (nativeQueue) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return []fwk.SignFragment{{Key: "zones", Value: pod.Annotations["kubewasm.dev/zones"]}}, nil
}

func (nativeQueue) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel}, QueueingHintFn: func(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
			zone := newObj.(*corev1.Node).Labels[zoneLabel]
			old, ok := oldObj.(*corev1.Node)
			if (!ok || old.Labels[zoneLabel] != zone) && zone != "" && strings.Contains(pod.Annotations["kubewasm.dev/zones"], zone) {
				return fwk.Queue, nil
			}
			return fwk.QueueSkip, nil
		}},
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: func(_ klog.Logger, pod *corev1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
			if gone := oldObj.(*corev1.Pod); gone.Namespace == pod.Namespace && gone.Labels["app"] == pod.Labels["app"] {
				return fwk.Queue, nil
			}
			return fwk.QueueSkip, nil
		}},
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Add}, PreQueueingHintFn: func(_ klog.Logger, _, newObj any) (fwk.PreQueueingHintResult, error) {
			pod := newObj.(*corev1.Pod)
			if name, ok := pod.Labels["example.com/before"]; ok {
				return fwk.PreQueueingHintResult{Pods: []types.NamespacedName{{Namespace: pod.Namespace, Name: name}}}, nil
			}
			return fwk.PreQueueingHintResult{Pods: []types.NamespacedName{}}, nil
		}},
	}, nil
}

// benchQueue measures what a plugin is asked outside of scheduling cycles. The hints are about
// pending Pods of 200 Deployments, 20 and each of one alone, as many as make an event long.
func benchQueue(b *bench, rt *host.Runtime) error {
	file, err := guestbuild.Build(b.ctx, source("guests/queue"))
	if err != nil {
		return err
	}
	load := func(name, args string) (queuePlugin, error) {
		p, err := loadPlugin(b, rt, name, file, args)
		if err != nil {
			return nil, err
		}
		return p.(queuePlugin), nil
	}
	guest, err := load("queue", `, "queueTimeout": "1s"`) // The machine may have more to do than this.
	if err != nil {
		return err
	}
	const pods = 1000
	// pending returns Pods of so many Deployments.
	lists := 0
	pending := func(deployments int) (list []*corev1.Pod) {
		lists++
		for i := range pods {
			p, of := pod(), strconv.Itoa(i%deployments)
			p.Name, p.UID = fmt.Sprintf("web-%d-%d", lists, i), types.UID(fmt.Sprintf("%d-%d", lists, i))
			p.Labels["app"], p.Labels["example.com/tier"] = "web-"+of, strconv.Itoa(i%7)
			p.Annotations["kubewasm.dev/zones"] = "eu-central-1a, eu-central-1b, " + of
			list = append(list, p)
		}
		return list
	}
	// Each event has other objects: of a few that take turns, since to make them is no part of the
	// scheduler's work.
	var nodes [][2]*corev1.Node
	var gone []*corev1.Pod
	for v := range 64 {
		before, after := node(v, 50), node(v, 50)
		after.ResourceVersion, after.Labels[zoneLabel] = strconv.Itoa(v), "eu-central-1c"
		nodes = append(nodes, [2]*corev1.Node{before, after})
		p := pod()
		p.Name, p.ResourceVersion, p.Labels["app"] = fmt.Sprint("gone-", v), strconv.Itoa(v), fmt.Sprint("web-", v)
		gone = append(gone, p)
	}
	var failed error
	note := func(err error) {
		if err != nil {
			failed = err
		}
	}
	// of returns a function that has n events, each with a question about each Pod.
	type side struct {
		node, gone, pre func(list []*corev1.Pod) func(n int)
	}
	of := func(p queuePlugin) (side, error) {
		events, err := p.EventsToRegister(b.ctx)
		if err != nil {
			return side{}, err
		}
		turn := 0
		log := klog.Background()
		return side{
			node: func(list []*corev1.Pod) func(int) {
				return func(n int) {
					for range n {
						turn++
						objects := nodes[turn%len(nodes)]
						for _, p := range list {
							_, err := events[0].QueueingHintFn(log, p, objects[0], objects[1])
							note(err)
						}
					}
				}
			},
			gone: func(list []*corev1.Pod) func(int) {
				return func(n int) {
					for range n {
						turn++
						for _, p := range list {
							_, err := events[1].QueueingHintFn(log, p, gone[turn%len(gone)], nil)
							note(err)
						}
					}
				}
			},
			pre: func([]*corev1.Pod) func(int) {
				return func(n int) {
					for range n {
						turn++
						_, err := events[2].PreQueueingHintFn(log, nil, gone[turn%len(gone)])
						note(err)
					}
				}
			},
		}, nil
	}
	ours, err := of(guest)
	if err != nil {
		return err
	}
	theirs, err := of(nativeQueue{})
	if err != nil {
		return err
	}
	few, many, each := pending(20), pending(200), pending(pods)
	most := target{ratio: 5}
	var rows []comparison
	for _, c := range []struct {
		what string
		pods []*corev1.Pod
	}{
		{"1000 pending Pods of 20 Deployments", few},
		{"1000 pending Pods of 200 Deployments", many},
		{"1000 pending Pods that are all different", each},
		{"1 pending Pod", few[:1]},
	} {
		rows = append(rows,
			comparison{"hints about a Node of 50 images with another label, " + c.what, most, ours.node(c.pods), "native plugin", theirs.node(c.pods)},
			comparison{"hints about a deleted Pod, " + c.what, most, ours.gone(c.pods), "native plugin", theirs.gone(c.pods)})
	}
	rows = append(rows, comparison{"a hint about a new Pod for all pending Pods", most, ours.pre(nil), "native plugin", theirs.pre(nil)})
	// Pods that the plugin has seen, and those that it sees for the first time.
	asking := func(list func(turn int) []*corev1.Pod, ask func(p *corev1.Pod)) func(int) {
		turn := 0
		return func(n int) {
			for n > 0 {
				l := list(turn)
				turn++
				for _, p := range l[:min(n, len(l))] {
					ask(p)
				}
				n -= len(l)
			}
		}
	}
	var fresh [][]*corev1.Pod
	for v := range 8 {
		list := pending(200)
		for i, p := range list { // Versions of the same Pods.
			p.Name, p.UID, p.ResourceVersion = fmt.Sprint("new-", i), types.UID(fmt.Sprint("new-", i)), strconv.Itoa(v*pods+i)
		}
		fresh = append(fresh, list)
	}
	seen := func(int) []*corev1.Pod { return many }
	renewed := func(turn int) []*corev1.Pod { return fresh[turn%len(fresh)] }
	preEnqueue := func(p queuePlugin) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { note(p.PreEnqueue(b.ctx, pod).AsError()) }
	}
	sign := func(p queuePlugin) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			_, status := p.SignPod(b.ctx, pod)
			note(status.AsError())
		}
	}
	start := time.Now()
	less := func(p queuePlugin) func(*corev1.Pod) {
		last := kube137test.QueuedPod{Pod: many[0], Came: start}
		return func(pod *corev1.Pod) {
			next := kube137test.QueuedPod{Pod: pod, Came: start}
			p.Less(last, next)
			last = next
		}
	}
	var native queuePlugin = nativeQueue{}
	rows = append(rows,
		comparison{"PreEnqueue, a Pod seen before", most, asking(seen, preEnqueue(guest)), "native plugin", asking(seen, preEnqueue(native))},
		comparison{"PreEnqueue, a new Pod", most, asking(renewed, preEnqueue(guest)), "native plugin", asking(renewed, preEnqueue(native))},
		comparison{"SignPod, a Pod seen before", most, asking(seen, sign(guest)), "native plugin", asking(seen, sign(native))},
		comparison{"SignPod, a new Pod", most, asking(renewed, sign(guest)), "native plugin", asking(renewed, sign(native))},
		comparison{"Less, two Pods seen before", most, asking(seen, less(guest)), "native plugin", asking(seen, less(native))},
	)
	b.compareAll(rows...)
	return failed
}
