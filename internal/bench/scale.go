package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

const (
	scaleModules = 10
	// scaleMatching is how many policies a review is for, of as many as there are.
	scaleMatching = 10
	scaleReviews  = 5000 // In a second.
	scalePods     = 250
)

// benchScale measures a webhook of 1,000 policies, a scheduler of 15,000 nodes with 10 plugins,
// and an agent of 250 pods with 4 guests, and smaller ones beside them. Times are those of the
// processor.
func benchScale(b *bench) error {
	if err := scaleWebhook(b); err != nil {
		return fmt.Errorf("webhook: %w", err)
	}
	if err := scaleAgent(b); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if err := scaleScheduler(b); err != nil {
		return fmt.Errorf("scheduler: %w", err)
	}
	return nil
}

// scaleWebhook asks each policy in turn, so that none finds its memory in the caches of the
// processor.
func scaleWebhook(b *bench) error {
	policy, err := guestbuild.Build(b.ctx, source("../../examples/admission/required-labels"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kubewasm-scale-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, err := different(policy, dir, scaleModules)
	if err != nil {
		return err
	}
	l := load{Module: files, Modules: scaleModules, Cache: filepath.Join(dir, "cache"), Rounds: 5}
	measured := map[int]loaded{}
	for _, n := range []int{scaleModules, 100, 300, 1000} {
		l.Policies = n
		if measured[n], err = densityOf(b.ctx, l); err != nil {
			return fmt.Errorf("%d policies: %w", n, err)
		}
	}
	low, high := measured[100], measured[300]
	each := float64(high.Bytes-low.Bytes) / 200
	for _, n := range []int{100, 300, 1000} {
		at := measured[n]
		predicted := float64(low.Bytes) + each*float64(n-100)
		b.rows = append(b.rows, row{
			what: fmt.Sprintf("scale: %d policies of %d Go modules, ready in %s", n, scaleModules, short(at.Ready)),
			ours: fmt.Sprintf("%.0f MB, %s for a verdict", float64(at.Bytes)/1e6, short(at.Ask)), against: fmt.Sprintf("100 policies and %.2f MB for each further one", each/1e6),
			theirs: fmt.Sprintf("%.0f MB", predicted/1e6), ratio: fmt.Sprintf("%.3gx", float64(at.Bytes)/predicted),
		})
	}
	most := measured[1000]
	b.rows = append(b.rows, row{
		what:    fmt.Sprintf("scale: %d reviews a second, each for %d of 1,000 policies", scaleReviews, scaleMatching),
		ours:    fmt.Sprintf("%.2g processors", most.Ask.Seconds()*scaleReviews*scaleMatching),
		against: "a policy that was asked just before", theirs: fmt.Sprintf("%.2g processors", most.Again.Seconds()*scaleReviews*scaleMatching),
		ratio: fmt.Sprintf("%.3gx", float64(most.Ask)/float64(most.Again)),
	})
	return nil
}

// scaleAgent asks four guests about the containers of 250 pods.
func scaleAgent(b *bench) error {
	l := load{Rounds: 5}
	for _, name := range []string{"batch-resource", "cpu-normalization", "cpuset", "group-identity"} {
		file, err := guestbuild.Build(b.ctx, source("../../examples/hooks/"+name))
		if err != nil {
			return err
		}
		l.Hooks = append(l.Hooks, file)
	}
	dir, err := os.MkdirTemp("", "kubewasm-scale-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l.Cache = dir
	at, err := densityOf(b.ctx, l)
	if err != nil {
		return err
	}
	one := l
	one.Hooks = one.Hooks[:1]
	single, err := densityOf(b.ctx, one)
	if err != nil {
		return err
	}
	b.rows = append(b.rows, row{
		what: fmt.Sprintf("scale: an agent with 4 Go guests, %d pods of 2 containers", scalePods),
		ours: fmt.Sprintf("%.0f MB, %s for all decisions", float64(at.Bytes)/1e6, short(at.Ask*2*scalePods)), against: "1 guest",
		theirs: fmt.Sprintf("%.0f MB, %s", float64(single.Bytes)/1e6, short(single.Ask*2*scalePods)),
		ratio:  fmt.Sprintf("%.3gx", float64(at.Ask)/float64(single.Ask)),
	})
	return nil
}

// scaleScheduler runs the cycles of one Pod over all nodes, for one plugin after the other.
func scaleScheduler(b *bench) error {
	file, err := guestbuild.Build(b.ctx, source("guests/cycle"))
	if err != nil {
		return err
	}
	type point struct{ plugins, nodes int }
	type result struct {
		first, seen, native time.Duration
		bytes               uint64
	}
	measure := func(at point) (r result, err error) {
		infos := make([]fwk.NodeInfo, at.nodes)
		for i := range infos {
			infos[i] = kube137test.NewNodeInfo(node(i, 12))
		}
		debug.FreeOSMemory()
		before, err := resident()
		if err != nil {
			return r, err
		}
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if err != nil {
			return r, err
		}
		defer rt.Close(context.WithoutCancel(b.ctx))
		var all []*cycles
		for n := range at.plugins {
			plugin, err := loadPlugin(b, rt, fmt.Sprint("plugin-", n), file, "")
			if err != nil {
				return r, err
			}
			all = append(all, &cycles{ctx: b.ctx, plugin: plugin.(cyclePlugin), pod: pod(), workers: 1})
		}
		of := func(all []*cycles, times int) func() error {
			return func() error {
				for range times {
					for _, c := range all {
						c.run(infos)
						if status := c.failed.Load(); status != nil {
							return fmt.Errorf("cycle: %s", status.Message())
						}
					}
				}
				return nil
			}
		}
		native := make([]*cycles, at.plugins)
		for n := range native {
			native[n] = &cycles{ctx: b.ctx, plugin: nativeCycle{}, pod: pod(), workers: 1}
		}
		if r.first, err = cheapest(1, of(all, 1)); err != nil {
			return r, err
		}
		times := 1 + 200_000/at.plugins/at.nodes // The clock is one of microseconds.
		for range 5 {
			seen, err := cheapest(1, of(all, times))
			if err != nil {
				return r, err
			}
			theirs, err := cheapest(1, of(native, times))
			if err != nil {
				return r, err
			}
			if seen /= time.Duration(times); r.seen == 0 || seen < r.seen {
				r.seen = seen
			}
			if theirs /= time.Duration(times); r.native == 0 || theirs < r.native {
				r.native = theirs
			}
		}
		debug.FreeOSMemory()
		after, err := resident()
		r.bytes = after - min(before, after)
		runtime.KeepAlive(infos)
		return r, err
	}
	points := []point{{1, 1000}, {1, 5000}, {10, 1000}, {1, 15000}, {10, 5000}, {10, 15000}}
	for _, at := range points {
		r, err := measure(at)
		if err != nil {
			return err
		}
		calls := time.Duration(at.plugins * at.nodes)
		b.rows = append(b.rows, row{
			what:    fmt.Sprintf("scale: %d plugins, a cycle over %d Nodes", at.plugins, at.nodes),
			ours:    fmt.Sprintf("%s new, %s seen; %d and %d ns a Filter; %.0f MB", short(r.first), short(r.seen), r.first/calls, r.seen/calls, float64(r.bytes)/1e6),
			against: "native plugins", theirs: fmt.Sprintf("%s; %d ns", short(r.native), r.native/calls),
			ratio: fmt.Sprintf("%.3gx", float64(r.seen)/float64(r.native)),
		})
	}
	return nil
}

// cheapest returns how much processor time the process takes for f at least, of some rounds: a
// machine that is busy takes longer for the same.
func cheapest(rounds int, f func() error) (time.Duration, error) {
	var times []time.Duration
	for range rounds {
		start := processTime()
		if err := f(); err != nil {
			return 0, err
		}
		times = append(times, processTime()-start)
	}
	return slices.Min(times), nil
}
