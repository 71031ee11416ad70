package sched_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// counting loads the guest of testdata/countpods.wat.
func counting(t *testing.T, f sched.Framework, config string, limits host.Limits) *sched.Plugin {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{Config: host.Config{
		Name: "counting", Module: host.ModuleConfig{File: "testdata/countpods.wasm"}, GuestConfig: host.GuestConfig(config), Limits: limits,
	}}, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// crowdedNodes returns nodes with up to nine Pods on each, of two namespaces, a fifth of them
// terminating.
func crowdedNodes(n int) (nodes framework.Nodes) {
	r := rand.New(rand.NewPCG(20261127, uint64(n)))
	for i := range n {
		info := framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
		for j := range r.IntN(10) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: []string{"shop", "bank"}[r.IntN(2)], Name: fmt.Sprintf("p%d-%d", i, j),
				Labels: map[string]string{"app": []string{"web", "db", ""}[r.IntN(3)], "n": fmt.Sprint(r.IntN(4))},
			}}
			if r.IntN(3) == 0 {
				pod.Labels = nil
			}
			if r.IntN(5) == 0 {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}
			info.Add(pod)
		}
		nodes = append(nodes, info)
	}
	return nodes
}

// TestCountPods holds that the host counts what the selectors of apimachinery select, whether it
// looks at the nodes one by one or side by side.
func TestCountPods(t *testing.T) {
	long := make([]string, 500)
	for i := range long {
		long[i] = fmt.Sprint(i)
	}
	selectors := []string{
		"", "app", "!app", "app=web", "app!=web", "app in (web,db),n notin (1)", "app in ()", "n>1,n<3", "app=web,app=db",
		"n in (" + strings.Join(long, ",") + ")",
	}
	for _, n := range []int{0, 1, 16, 17, 700} {
		nodes := crowdedNodes(n)
		for handled, f := range map[string]sched.Framework{
			"with a scheduler": framework.Of(&framework.Handle{Snapshot: nodes}), "without": framework.Of(nil),
		} {
			for _, text := range selectors {
				selector := labels.Everything()
				if text != "" {
					var err error
					if selector, err = labels.Parse(text); err != nil {
						t.Fatal(err)
					}
				}
				for _, namespace := range []string{"", "shop", "none"} {
					for _, terminating := range []bool{false, true} {
						want := countedBy(nodes, func(pod *corev1.Pod) bool {
							return (namespace == "" || pod.Namespace == namespace) && (terminating || pod.DeletionTimestamp == nil) &&
								selector.Matches(labels.Set(pod.Labels))
						})
						flag := map[bool]string{false: "0", true: "1"}[terminating]
						p := counting(t, f, flag+"-"+namespace+"\x00"+text, host.Limits{})
						_, status := p.PreFilter(p.Begin(&corev1.Pod{}), nodes)
						if diff := cmp.Diff("Unschedulable: "+want, status.Code().String()+": "+status.Message()); diff != "" {
							t.Errorf("%d nodes, %s, namespace %q, selector %.40q, terminating %t (-want +got):\n%s", n, handled, namespace, text, terminating, diff)
						}
					}
				}
			}
		}
	}
}

// countedBy returns a digit for each node: how many of its Pods are chosen.
func countedBy(nodes framework.Nodes, chosen func(*corev1.Pod) bool) string {
	var b strings.Builder
	for _, n := range nodes {
		count := 0
		for _, pod := range n.Pods {
			if chosen(pod) {
				count++
			}
		}
		fmt.Fprint(&b, count)
	}
	return b.String()
}

// TestCountPodsOfBadQuestions holds that what makes no sense ends the call, with a reason.
func TestCountPodsOfBadQuestions(t *testing.T) {
	nodes := crowdedNodes(100)
	f := framework.Of(&framework.Handle{Snapshot: nodes})
	for name, test := range map[string]struct{ config, want string }{
		"half a ref":           {"0oshop\x00app=web", "796 bytes are not the refs of nodes"},
		"a ref of no node":     {"0ushop\x00app=web", "is not a node passed to this call"},
		"no NUL":               {"0-shop", "is not a namespace and a selector"},
		"nothing":              {"0-", "is not a namespace and a selector"},
		"no selector":          {"0-shop\x00app in", "selector"},
		"two selectors":        {"0-shop\x00app=web\x00app=db", "selector"},
		"too long":             {"0-" + strings.Repeat("a", 8<<10) + "\x00app", "more than 8192"},
		"too long a selector":  {"0-\x00" + strings.Repeat("a", 4<<10+1), "more than 4096"},
		"an answer nowhere":    {"0b\x00app", "memory"},
		"work without an end":  {"0t\x00app,!app,n,!n", "fuel"},
		"no nodes but trouble": {"0nshop", "is not a namespace and a selector"},
	} {
		t.Run(name, func(t *testing.T) {
			p := counting(t, f, test.config, host.Limits{Fuel: 20_000_000})
			for range 2 { // The instance is renewed.
				_, status := p.PreFilter(p.Begin(&corev1.Pod{}), nodes)
				var trap *host.TrapError
				if err := status.Err(); !errors.As(err, &trap) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want a trap with %q", err, test.want)
				}
			}
		})
	}
}
