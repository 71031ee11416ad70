package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/sched/kube137"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

type cyclePlugin interface {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

// Arguments of a plugin.
const (
	// eachNode is for a guest that is called for each Node, also for those that are equal.
	eachNode = `, "disableResultSharing": true`
	// labelsAndTaints declares what guests/cycle reads of a Node, and zoneAndTaints the same
	// by the one label that it reads.
	labelsAndTaints = `, "reads": ["node.metadata.labels", "node.spec.taints"]`
	zoneAndTaints   = `, "reads": ["node.metadata.labels[topology.kubernetes.io/zone]", "node.spec.taints"]`
)

// cycles runs scheduling cycles over nodes: PreFilter, then Filter for each node
// on as many goroutines as workers.
type cycles struct {
	ctx     context.Context
	plugin  cyclePlugin
	pod     *corev1.Pod
	workers int
	failed  atomic.Pointer[fwk.Status]
}

func (c *cycles) run(infos []fwk.NodeInfo) {
	state := kube137test.NewCycleState()
	if _, status := c.plugin.PreFilter(c.ctx, state, c.pod, infos); !status.IsSuccess() {
		c.failed.Store(status)
	}
	filter := func(infos []fwk.NodeInfo) {
		for _, n := range infos {
			if status := c.plugin.Filter(c.ctx, state, c.pod, n); !status.IsSuccess() {
				c.failed.Store(status)
			}
		}
	}
	if c.workers == 1 {
		filter(infos)
		return
	}
	// In chunks, as the framework's own parallelizer does it.
	chunks := make(chan []fwk.NodeInfo, len(infos))
	for chunk := range slices.Chunk(infos, 32) {
		chunks <- chunk
	}
	close(chunks)
	var wg sync.WaitGroup
	for range c.workers {
		wg.Go(func() {
			for chunk := range chunks {
				filter(chunk)
			}
		})
	}
	wg.Wait()
}

// nativeCycle does in Go what guests/cycle does.
type nativeCycle struct {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

const zonesKey = "zones"

type zones []string

func (z zones) Clone() fwk.StateData { return z }

func (nativeCycle) Name() string { return "native" }

func (nativeCycle) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	state.Write(zonesKey, zones(strings.Split(pod.Annotations["kubewasm.dev/zones"], ", ")))
	return nil, nil
}

func (nativeCycle) Filter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	v, err := state.Read(zonesKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if !slices.Contains(v.(zones), info.Node().Labels[zoneLabel]) || !nativeFilter(pod, info.Node()) {
		return fwk.NewStatus(fwk.Unschedulable, "does not fit")
	}
	return nil
}

// loadPlugin loads a guest. args are those beside the file.
func loadPlugin(b *bench, rt *host.Runtime, name, file, args string) (fwk.Plugin, error) {
	raw := fmt.Sprintf(`{"module": {"file": %q}%s}`, file, args)
	return kube137.New(name, rt)(b.ctx, &apiruntime.Unknown{Raw: []byte(raw)}, nil)
}

// computeCycle shifts and adds for each node, in registers, as much at a time as a
// processor can: its gain from a second goroutine is what the machine has to give.
// Multiplications that wait for one another gain as much where two processors of a
// virtual machine are one with two threads.
type computeCycle struct {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
	steps int
}

func (computeCycle) Name() string { return "compute" }

func (computeCycle) PreFilter(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, nil
}

func (c computeCycle) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	v, w, x, y := uint64(c.steps), uint64(1), uint64(2), uint64(3)
	for range c.steps {
		v ^= v<<13 ^ v>>7
		w ^= w<<13 ^ w>>7
		x ^= x<<13 ^ x>>7
		y ^= y<<13 ^ y>>7
	}
	if v+w+x+y == 0 {
		return fwk.NewStatus(fwk.Error, "the loop must not be left out")
	}
	return nil
}

// benchCycles measures whole scheduling cycles over 1000 Nodes.
func benchCycles(b *bench, rt *host.Runtime) error {
	file, err := guestbuild.Build(b.ctx, source("guests/cycle"))
	if err != nil {
		return err
	}
	const nodes = 1000
	infos := make([]fwk.NodeInfo, nodes)
	for i := range infos {
		infos[i] = kube137test.NewNodeInfo(node(i, 12))
	}
	var all []*cycles
	of := func(plugin cyclePlugin) *cycles {
		c := &cycles{ctx: b.ctx, plugin: plugin, pod: pod(), workers: 1}
		all = append(all, c)
		return c
	}
	native := of(nativeCycle{})
	guests := map[string]*cycles{}
	for name, args := range map[string]string{
		"usual": "", "each": eachNode, "each, labels": eachNode + labelsAndTaints, "each, one label": eachNode + zoneAndTaints,
	} {
		p, err := loadPlugin(b, rt, name, file, args)
		if err != nil {
			return err
		}
		guests[name] = of(p.(cyclePlugin))
	}
	usual, each := guests["usual"], guests["each"]
	onTwo := func(c *cycles) *cycles {
		two := of(c.plugin)
		two.workers = 2
		return two
	}
	again := func(c *cycles) func(int) {
		return func(n int) {
			for range n {
				c.run(infos)
			}
		}
	}
	two := onTwo(each)
	again(two)(3) // Both instances have seen every node.
	seen := target{time: 500 * time.Microsecond}
	b.compare("PreFilter+Filter, 1000 Nodes seen before, per cycle", seen, again(usual), "native plugin", again(native))
	b.compare("the same, results not shared", seen, again(each), "native plugin", again(native))
	// A computation as long as our cycle, whatever the machine.
	const steps = 100
	compute := of(computeCycle{steps: steps})
	compute.plugin = computeCycle{steps: int(steps * shortest(5, func() { again(each)(10) }) / shortest(5, func() { again(compute)(10) }))}
	b.compareAll(
		comparison{"1000 Nodes seen before on two goroutines", target{time: 300 * time.Microsecond}, again(onTwo(usual)), "on one", again(usual)},
		comparison{"the same, results not shared", target{ratio: 0.6}, again(two), "on one", again(each)},
		comparison{"arithmetic that takes as long, on two goroutines", target{}, again(onTwo(compute)), "on one", again(compute)},
		comparison{"native plugin on two goroutines", target{}, again(onTwo(native)), "on one", again(native)},
	)
	least := [4]time.Duration{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64}
	for range 2 * rounds {
		for i, c := range []*cycles{each, two, compute, onTwo(compute)} {
			least[i] = min(least[i], processorTime(func() { again(c)(10) })/10)
		}
	}
	const most = 1.15
	ratio := float64(least[1]) / float64(least[0])
	b.add("processor time of a cycle on two goroutines", short(least[1]), "on one", short(least[0]), ratio, fmt.Sprintf("<= %.3gx", most), ratio <= most)
	b.add("processor time of arithmetic on two goroutines", short(least[3]), "on one", short(least[2]), float64(least[3])/float64(least[2]), "", true)
	// Every cycle finds another version of each Node: of a few that take turns,
	// since making them is no part of the scheduler's work. They are garbage after their
	// row: sixteen thousand Nodes would have the processor's caches for themselves. The native
	// plugin reads the same ones, which come from memory for it, too.
	changing := func(c *cycles, versions [][]fwk.NodeInfo) func(int) {
		turn := 0
		return func(n int) {
			for range n {
				c.run(versions[turn%len(versions)])
				turn++
			}
		}
	}
	for _, row := range []struct {
		what   string
		c      *cycles
		change func(*corev1.Node, string)
	}{
		{"PreFilter+Filter, 1000 Nodes all new, per cycle", usual, renew},
		{"the same, all with new labels", usual, relabel},
		{"the same, Nodes of 12 kinds, each with the taints of another Node", usual, shuffle},
		{"the same, each with taints of its own", usual, taint},
		{"all new, results not shared", each, renew},
		{"the same, all with new labels, which are declared", guests["each, labels"], relabel},
		{"the same, each with taints of its own, which are declared with one label", guests["each, one label"], taint},
	} {
		versions := nodeVersions(nodes, row.change)
		b.compare(row.what, target{time: 3 * time.Millisecond}, changing(row.c, versions), "native plugin, the same Nodes", changing(native, versions))
	}
	for _, c := range all {
		if status := c.failed.Load(); status != nil {
			return fmt.Errorf("filter: %s", status.Message())
		}
	}
	return nil
}

// What changes of a Node.
func renew(n *corev1.Node, version string)   { n.ResourceVersion, n.Spec.PodCIDR = version, version }
func relabel(n *corev1.Node, version string) { n.Labels["example.com/rack"] = version }
func taint(n *corev1.Node, version string)   { n.Spec.Taints[0].Value = version }

// shuffle gives a Node, which is in one of three zones, one of four taints.
func shuffle(n *corev1.Node, version string) {
	i, err := strconv.Atoi(version)
	if err != nil {
		panic(err) // nodeVersions counts.
	}
	n.Spec.Taints[0].Value = strconv.Itoa(i * 7 / 3 % 4)
}

// nodeVersions returns a few versions of as many Nodes, all of them different.
func nodeVersions(nodes int, change func(n *corev1.Node, version string)) [][]fwk.NodeInfo {
	versions := make([][]fwk.NodeInfo, 4)
	for v := range versions {
		for i := range nodes {
			changed := node(i, 12)
			change(changed, strconv.Itoa(nodes*v+i))
			versions[v] = append(versions[v], kube137test.NewNodeInfo(changed))
		}
	}
	return versions
}

// shortest returns how long f takes at least.
func shortest(times int, f func()) time.Duration {
	least := time.Duration(math.MaxInt64)
	for range times {
		start := time.Now()
		f()
		least = min(least, time.Since(start))
	}
	return least
}

// processorTime returns how long f keeps processors busy, whatever else runs on them.
func processorTime(f func()) time.Duration {
	before := processTime()
	f()
	return processTime() - before
}

// benchNodeMemory measures the linear memory of an instance that was asked about each of
// 5000 Nodes, of which it reads a label and taints.
func benchNodeMemory(b *bench, rt *host.Runtime) error {
	file, err := guestbuild.Build(b.ctx, source("guests/cycle"))
	if err != nil {
		return err
	}
	const (
		nodes = 5000
		most  = 20e6
	)
	measure := func(name, args string) (float64, error) {
		before := rt.MemoryInUse()
		p, err := loadPlugin(b, rt, name, file, `, "limits": {"instances": 1, "memoryBytes": 1073741824}`+args)
		if err != nil {
			return 0, err
		}
		plugin := p.(kube137.Plugin)
		defer plugin.Close(b.ctx)
		c := &cycles{ctx: b.ctx, plugin: p.(cyclePlugin), pod: pod(), workers: 1}
		infos := make([]fwk.NodeInfo, nodes)
		for i := range infos {
			infos[i] = kube137test.NewNodeInfo(node(i, 12))
		}
		c.run(infos)
		c.run(infos)
		if status := c.failed.Load(); status != nil {
			return 0, fmt.Errorf("filter: %s", status.Message())
		}
		return float64(rt.MemoryInUse() - before), nil
	}
	wholly, err := measure("whole", eachNode)
	if err != nil {
		return err
	}
	for _, m := range []struct{ what, args string }{
		{"with labels and taints only", eachNode + labelsAndTaints},
		{"with one label and taints only", eachNode + zoneAndTaints},
		{"with shared results", ""},
	} {
		bytes, err := measure(m.what, m.args)
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("memory of an instance that has seen %d Nodes, %s", nodes, m.what),
			fmt.Sprintf("%.1f MB", bytes/1e6), "whole, results not shared", fmt.Sprintf("%.1f MB", wholly/1e6),
			bytes/wholly, fmt.Sprintf("<= %.0f MB", most/1e6), bytes <= most)
	}
	return nil
}
