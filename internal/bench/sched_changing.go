package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// changing is a cluster that changes between scheduling cycles, and Pods of many Deployments.
type changing struct {
	ctx   context.Context
	infos []fwk.NodeInfo
	// nodes are the Nodes before the first change, and next counts the changes.
	nodes []*corev1.Node
	next  int
	// pods take turns.
	pods []*corev1.Pod
	// window is how many nodes a cycle looks at, beginning where the one before has ended.
	window, from int
	failed       error
}

// newChanging returns a cluster with 30 Pods on each node.
func newChanging(ctx context.Context, nodes, deployments int) *changing {
	c := &changing{ctx: ctx, infos: newSpreading(ctx, nodes, 30).infos, window: nodes}
	for _, n := range c.infos {
		fillNode(n.(*kube137test.NodeInfo))
		c.nodes = append(c.nodes, n.Node())
	}
	for i := range 2 * deployments {
		p, app := pod(), strconv.Itoa(i%deployments)
		p.Name, p.UID = fmt.Sprintf("web-%s-%d", app, i), types.UID(fmt.Sprint("pending-", i))
		p.Labels["app"] = "web-" + app
		p.Annotations["kubewasm.dev/zones"] = "eu-central-1a, eu-central-1b, eu-central-1c, " + app
		c.pods = append(c.pods, p)
	}
	return c
}

// change gives some nodes, those that change takes turns with, another version of the Node, a Pod
// more, or both.
type change struct {
	what string
	node func(n *corev1.Node, version string)
	pod  bool
}

var (
	unchanged = change{what: "nothing changes"}
	// heartbeat is what a kubelet reports every few minutes.
	heartbeat = change{what: "5 % with a heartbeat", node: func(n *corev1.Node, version string) {
		n.ResourceVersion = version
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.Now()
		}
	}}
	ownTaint = change{what: "5 % with a taint of their own", node: func(n *corev1.Node, version string) { n.ResourceVersion = version; taint(n, version) }}
	bindings = change{what: "5 % with another Pod", pod: true}
)

// apply changes a twentieth of the nodes.
func (c *changing) apply(to change) {
	if to.node == nil && !to.pod {
		return
	}
	for range len(c.infos) / 20 {
		c.next++
		i := c.next * 7919 % len(c.infos)
		info := c.infos[i].Snapshot().(*kube137test.NodeInfo)
		if to.node != nil {
			node := c.nodes[i].DeepCopy()
			to.node(node, strconv.Itoa(10_000_000+c.next))
			fresh := kube137test.NewNodeInfo(node)
			for _, p := range info.GetPods() {
				fresh.AddPodInfo(p)
			}
			fresh.Requested, fresh.NonZeroRequested, fresh.Allocatable = info.Requested, info.NonZeroRequested, info.Allocatable
			info = fresh
		}
		if to.pod {
			// One comes and one goes: the nodes are as full at the end of a row as at its beginning.
			gone := info.GetPods()[0]
			info.AddPodInfo(kube137test.PodInfo{Pod: c.pods[c.next%len(c.pods)]})
			if err := info.RemovePod(klog.Background(), gone.GetPod()); err != nil {
				c.failed = err
			}
		}
		c.infos[i] = info
	}
}

// cycle runs PreFilter for a Pod, and Filter for the nodes of the window.
func (c *changing) cycle(p cyclePlugin, pod *corev1.Pod) (passed int) {
	state := kube137test.NewCycleState()
	if _, status := p.PreFilter(c.ctx, state, pod, c.infos); !status.IsSuccess() {
		c.failed = status.AsError()
	}
	for i := range c.window {
		if p.Filter(c.ctx, state, pod, c.infos[(c.from+i)%len(c.infos)]).IsSuccess() {
			passed++
		}
	}
	return passed
}

// compare measures cycles of both plugins in turns, by the time of the processor, after each
// change, whose making is not counted. Each of them is the first to look at what has changed as
// often as the other.
func (c *changing) compare(b *bench, what string, t target, to change, ours, theirs cyclePlugin) {
	const cycles, warm = 40, 5
	plugins := [2]cyclePlugin{ours, theirs}
	var times [2][]float64
	var ratios []float64
	for round := range rounds {
		var sum [2]time.Duration
		for n := range cycles + warm {
			c.apply(to)
			pod := c.pods[(round*cycles+n)%len(c.pods)]
			var passed [2]int
			for k := range plugins {
				side := (k + n) % 2
				begun := processTime()
				passed[side] = c.cycle(plugins[side], pod)
				if n >= warm {
					sum[side] += processTime() - begun
				}
			}
			if passed[0] != passed[1] {
				c.failed = fmt.Errorf("%s: %d nodes pass, %d by the native plugin", what, passed[0], passed[1])
			}
			c.from = (c.from + c.window) % len(c.infos)
		}
		for side := range sum {
			times[side] = append(times[side], float64(sum[side])/cycles)
		}
		ratios = append(ratios, float64(sum[0])/float64(sum[1]))
	}
	our, ratio := time.Duration(median(times[0])), median(ratios)
	ok := (t.ratio == 0 || ratio <= t.ratio) && (t.time == 0 || our <= t.time)
	b.add(what+", "+to.what, short(our), "native plugin", short(time.Duration(median(times[1]))), ratio, t.String(), ok)
}

// benchChanging measures cycles in a cluster as it is: nodes change between cycles, Pods are of
// many Deployments, and a cycle looks at a part of the nodes. The best case, in which all of that
// is still, stands beside it.
func benchChanging(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	guests := map[string]cyclePlugin{}
	for name, dir := range map[string]string{"cycle": "guests/cycle", "fit": "../testkit/e2e/differential/testdata/noderesourcesfit"} {
		file, err := guestbuild.Build(b.ctx, source(dir))
		if err != nil {
			return err
		}
		for _, args := range []string{"", eachNode} {
			p, err := loadPlugin(b, rt, "changing "+name+args, file, args)
			if err != nil {
				return err
			}
			guests[name+args] = p.(cyclePlugin)
		}
	}
	type row struct {
		guest   string
		native  cyclePlugin
		what    string
		pods    int // Deployments.
		window  int // 0 for all nodes.
		changes []change
		target  target
	}
	const all = 1000
	for _, r := range []row{
		{"cycle", nativeCycle{}, "zone and taints, Pods of one Deployment", 1, 0, []change{unchanged}, target{ratio: 1}},
		{"cycle", nativeCycle{}, "zone and taints, Pods of 200 Deployments", 200, 0, []change{unchanged, heartbeat, ownTaint}, target{ratio: 2}},
		{"cycle" + eachNode, nativeCycle{}, "zone and taints, results not shared, Pods of 200 Deployments", 200, 0, []change{unchanged, heartbeat, ownTaint}, target{}},
		{"cycle", nativeCycle{}, "zone and taints, a window of 100 nodes, Pods of 200 Deployments", 200, all / 10, []change{unchanged, heartbeat}, target{ratio: 1.2}},
		{"fit", nativeFit{}, "resource fit, Pods of one Deployment", 1, 0, []change{unchanged}, target{}},
		{"fit", nativeFit{}, "resource fit, Pods of 200 Deployments", 200, 0, []change{unchanged, heartbeat, bindings}, target{ratio: 3}},
		{"fit", nativeFit{}, "resource fit, a window of 100 nodes, Pods of 200 Deployments", 200, all / 10, []change{bindings}, target{ratio: 3}},
	} {
		c := newChanging(b.ctx, all, r.pods)
		if r.window != 0 {
			c.window = r.window
		}
		for _, to := range r.changes {
			c.compare(b, r.what, r.target, to, guests[r.guest], r.native)
			if c.failed != nil {
				return c.failed
			}
		}
	}
	return nil
}
