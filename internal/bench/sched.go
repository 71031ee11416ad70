package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// source returns a directory beside this file.
func source(dir string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), dir)
}

// benchSched measures Filter through the framework's interface, per node, over
// 1000 Nodes.
func benchSched(b *bench) error {
	file, err := guestbuild.Build(b.ctx, source("guests/filter"))
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	plugin, err := loadPlugin(b, rt, "filter", file, eachNode)
	if err != nil {
		return err
	}
	usual, err := loadPlugin(b, rt, "usual filter", file, "")
	if err != nil {
		return err
	}
	const nodes = 1000
	p := pod()
	infos := make([]fwk.NodeInfo, nodes)
	for i := range infos {
		infos[i] = kube137test.NewNodeInfo(node(i, 12))
	}
	state := kube137test.NewCycleState()
	var failed error
	cycle := func(filter fwk.FilterPlugin, infos []fwk.NodeInfo, n int) {
		for i := range n {
			if status := filter.Filter(b.ctx, state, p, infos[i%len(infos)]); !status.IsSuccess() {
				failed = fmt.Errorf("filter: %s", status.Message())
			}
		}
	}
	ours := func(n int) { cycle(plugin.(fwk.FilterPlugin), infos, n) }
	native := func(n int) { cycle(nativePlugin{}, infos, n) }
	ours(nodes) // Every node has been seen once.
	seen := target{time: 500 * time.Nanosecond, noAllocs: true}
	b.compare("Filter per node, 1000 Nodes of 4 KB, seen before, results not shared", seen, ours, "native plugin", native)
	b.compare("the same with shared results, in one cycle", seen, func(n int) { cycle(usual.(fwk.FilterPlugin), infos, n) }, "native plugin", native)
	// A few versions of each Node take turns: making them is no part of the
	// scheduler's work.
	var versions []fwk.NodeInfo
	for v := range 4 {
		for i := range nodes {
			changed := node(i, 12)
			changed.ResourceVersion = fmt.Sprint(v*nodes + i)
			versions = append(versions, kube137test.NewNodeInfo(changed))
		}
	}
	turn := 0
	b.compare("Filter per node, every Node changed since, results not shared", target{time: 3 * time.Microsecond}, func(n int) {
		for n > 0 {
			k := min(n, len(versions)-turn)
			cycle(plugin.(fwk.FilterPlugin), versions[turn:turn+k], k)
			turn, n = (turn+k)%len(versions), n-k
		}
	}, "native plugin", native)
	if failed != nil {
		return failed
	}
	if err := benchQueue(b, rt); err != nil {
		return err
	}
	if err := benchHostShare(b, rt); err != nil {
		return err
	}
	if err := benchSpreading(b, rt); err != nil {
		return err
	}
	if err := benchInTree(b); err != nil {
		return err
	}
	if err := benchBatching(b); err != nil {
		return err
	}
	if err := benchUsage(b, rt); err != nil {
		return err
	}
	if err := benchCycles(b, rt); err != nil {
		return err
	}
	return benchNodeMemory(b, rt)
}

// benchHostShare measures the host's share of a Filter, with a guest that does
// nothing, and fetches nothing.
func benchHostShare(b *bench, rt *host.Runtime) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "noop.wasm")
	if err := os.WriteFile(file, noop, 0o600); err != nil {
		return err
	}
	plugin, err := rt.Load(b.ctx, host.Config{Name: "noop", Module: host.ModuleConfig{File: file}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	defer plugin.Close(b.ctx)
	inst, err := plugin.Acquire(b.ctx)
	if err != nil {
		return err
	}
	defer inst.Release()
	var failed error
	call := func(n int) {
		for range n {
			if _, err := inst.Call(b.ctx, abi.Filter, 1, 2, 3); err != nil {
				failed = err
			}
		}
	}
	const nodes = 1000
	same := [][]fwk.NodeInfo{make([]fwk.NodeInfo, nodes)}
	for i := range same[0] {
		same[0][i] = kube137test.NewNodeInfo(node(i, 12))
	}
	var rows []comparison
	for _, c := range []struct {
		what, fields string
		versions     [][]fwk.NodeInfo
		target       target
	}{
		{"seen before", zoneAndTaints, same, target{noAllocs: true}},
		{"new taints and one label", zoneAndTaints, nodeVersions(nodes, taint), target{}},
		{"new labels", labelsAndTaints, nodeVersions(nodes, relabel), target{}},
		{"whole and new", "", nodeVersions(nodes, renew), target{}},
	} {
		p, err := loadPlugin(b, rt, "noop "+c.what, file, c.fields+eachNode)
		if err != nil {
			return err
		}
		state, pod := kube137test.NewCycleState(), pod()
		filtering := func(filter fwk.FilterPlugin) func(int) {
			turn := 0
			return func(n int) {
				for ; n > 0; n-- {
					if status := filter.Filter(b.ctx, state, pod, c.versions[turn/nodes][turn%nodes]); !status.IsSuccess() {
						failed = fmt.Errorf("filter: %s", status.Message())
					}
					turn = (turn + 1) % (nodes * len(c.versions))
				}
			}
		}
		row := comparison{"the host's share of a Filter, Node " + c.what, c.target, filtering(p.(fwk.FilterPlugin)), "the call alone", call}
		if len(c.versions) > 1 {
			// It also has to fetch them from memory.
			row.against, row.theirs = "native plugin, the same Nodes", filtering(nativePlugin{})
		}
		rows = append(rows, row)
	}
	b.compareAll(rows...)
	return failed
}

type nativePlugin struct{ fwk.FilterPlugin }

func (nativePlugin) Filter(_ context.Context, _ fwk.CycleState, p *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if !nativeFilter(p, info.Node()) {
		return fwk.NewStatus(fwk.Unschedulable, "does not fit")
	}
	return nil
}
