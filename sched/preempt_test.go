package sched_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// The behaviours of testdata/victims.wat.
const (
	namesAll byte = iota
	namesTwice
	namesItself
	namesTheNode
	namesAPart
	asksForEver
	traps
	refuses
	namesOthers
	namesNone
	namesAnEmptyListLast
)

// victims loads the guest of testdata/victims.wat.
func victims(t *testing.T, handle *framework.Handle, does byte, change func(*sched.PluginConfig)) (*sched.Plugin, error) {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	cfg := sched.PluginConfig{Config: host.Config{
		Name: "victims", Module: host.ModuleConfig{File: "testdata/victims.wasm"}, GuestConfig: []byte{does, 0, 0, 0},
		Grants: []string{sched.GrantPreempt}, Limits: host.Limits{Fuel: 10_000_000},
	}}
	change(&cfg)
	p, err := sched.Load(t.Context(), rt, cfg, framework.Of(handle))
	if err == nil {
		t.Cleanup(func() { _ = p.Close(context.Background()) })
	}
	return p, err
}

// onNode is a Pod with a priority that takes one of four CPUs.
func onNode(node, namespace, name string, priority int32) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name)},
		Spec: corev1.PodSpec{NodeName: node, Priority: &priority, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}}},
	}
}

func twoCPUs(name string, pods ...*corev1.Pod) *framework.NodeInfo {
	return framework.NewNodeInfo(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
	}, pods...)
}

// TestPreempt has a guest name the Pods of the node n1 that may be evicted for a Pod of priority 5.
func TestPreempt(t *testing.T) {
	const critical = 2_000_000_000
	for name, test := range map[string]struct {
		does   byte
		low    int32 // The priority of one of the two Pods of n1.
		change func(*sched.PluginConfig)
		want   string
	}{
		"all Pods":                            {namesAll, 1, nil, "n1 without shop/low"},
		"Pods of another namespace":           {namesAll, 0, nil, "n1 without shop/low"},
		"none":                                {namesNone, 1, nil, "0/1 nodes have room without some of their Pods: 1 No preemption victims found for incoming pod"},
		"a refusal":                           {refuses, 1, nil, "0/1 nodes have room without some of their Pods: 1 No preemption victims found for incoming pod"},
		"the last list counts":                {namesAnEmptyListLast, 1, nil, "0/1 nodes have room without some of their Pods: 1 No preemption victims found for incoming pod"},
		"a Pod twice":                         {namesTwice, 1, nil, "is not a Pod of the node, or it is named twice"},
		"the Pod itself":                      {namesItself, 1, nil, "is not a Pod of the node"},
		"the node":                            {namesTheNode, 1, nil, "is not a Pod of the node"},
		"Pods of another node":                {namesOthers, 1, nil, "is not a Pod of the node"},
		"a part of a ref":                     {namesAPart, 1, nil, "15 bytes are not the refs of Pods"},
		"a Pod of the same priority":          {namesAll, 5, nil, `the priority of the Pod shop/low is 5, that of the Pod to schedule 5, and the configuration does not grant "preempt-any"`},
		"one by a grant":                      {namesAll, 5, granting(sched.GrantPreemptAny), "n1 without default/high"},
		"one of a higher priority by a grant": {namesAll, critical - 1, granting(sched.GrantPreemptAny), "n1 without default/high"},
		"a critical one by a grant":           {namesAll, critical, granting(sched.GrantPreemptAny), "the priority of the Pod shop/low is 2000000000"},
		"questions without end":               {asksForEver, 1, nil, "instructions"},
		"a trap":                              {traps, 1, nil, "unreachable"},
		"a trap that is ignored":              {traps, 1, func(c *sched.PluginConfig) { c.FailurePolicy = host.Ignore }, "0/1 nodes have room without some of their Pods: 1 No preemption victims found for incoming pod"},
		"a monitored guest":                   {namesAll, 1, func(c *sched.PluginConfig) { c.Mode = host.Monitor }, "would evict Pods for another one\" plugin=victims pod=default/pending node=n1 pods=shop/low\n"},
		"a monitored guest that names none":   {namesNone, 1, func(c *sched.PluginConfig) { c.Mode = host.Monitor }, "0/1 nodes have room"},
		"a monitored guest that names others": {namesOthers, 1, func(c *sched.PluginConfig) { c.Mode = host.Monitor }, "0/1 nodes have room"},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			handle := &framework.Handle{Informers: framework.NewInformers(), Snapshot: framework.Nodes{
				twoCPUs("n1", onNode("n1", "shop", "low", test.low), onNode("n1", "default", "high", 4)),
				twoCPUs("n2", onNode("n2", "default", "other", 0)),
			}}
			p, err := victims(t, handle, test.does, func(c *sched.PluginConfig) {
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
				if test.change != nil {
					test.change(c)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			pod := onNode("", "default", "pending", 5)
			nomination, evicted, status := handle.MakeRoom(p, p.Begin(pod), pod, handle.Snapshot[:1])
			var got string
			switch {
			case nomination != nil && nomination.NodeName != "":
				got = nomination.NodeName + " without"
				for _, victim := range evicted {
					got += fmt.Sprintf(" %s/%s", victim.Namespace, victim.Name)
				}
			case len(evicted) != 0 || status == nil:
				t.Errorf("%d victims and status %v without a nomination", len(evicted), status)
			case status.Err() != nil:
				got = status.Err().Error()
			default:
				got = status.Message() + log.String()
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			left := 2
			if nomination != nil && nomination.NodeName != "" {
				left = 1
			}
			if n := len(handle.Snapshot[0].Pods); n != left {
				t.Errorf("%d Pods are left, want %d", n, left)
			}
		})
	}
}

func granting(grants ...string) func(*sched.PluginConfig) {
	return func(c *sched.PluginConfig) { c.Grants = grants }
}

// TestPreemptionNeedsAGrant loads a guest that names victims without a grant for it.
func TestPreemptionNeedsAGrant(t *testing.T) {
	handle := &framework.Handle{Informers: framework.NewInformers()}
	_, err := victims(t, handle, namesAll, granting())
	want := `plugin "victims": import k8s.io/scheduler.result_victims needs the grant "preempt", which the configuration does not give`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
