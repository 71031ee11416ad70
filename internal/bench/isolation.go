package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// labelsConfig is the configuration of examples/admission/required-labels.
const labelsConfig = `{"labels": ["app", "team"], "registries": ["registry.example.com/"]}`

// benchIsolation compares isolation by process with none: a call that does nothing, verdicts, decisions and
// cycles of guests in Go, also after a pause, a restart and many processes.
func benchIsolation(b *bench) error {
	policy, err := guestbuild.Build(b.ctx, source("../../examples/admission/required-labels"))
	if err != nil {
		return err
	}
	hook, err := guestbuild.Build(b.ctx, source("../../examples/hooks/cpu-from-annotation"))
	if err != nil {
		return err
	}
	body, err := review(pod())
	if err != nil {
		return err
	}
	var failed error
	var runtimes []*host.Runtime
	defer func() {
		for _, rt := range runtimes {
			rt.Close(b.ctx)
		}
	}()
	cycle, err := guestbuild.Build(b.ctx, source("guests/cycle"))
	if err != nil {
		return err
	}
	versions := nodeVersions(1000, renew)
	// The operations at a level: a call, a verdict with each policy for resets, a decision, and a cycle.
	operations := func(level host.Isolation) (list []func(n int), err error) {
		rt, err := host.NewRuntime(host.RuntimeConfig{MinimumIsolation: level})
		if err != nil {
			return nil, err
		}
		runtimes = append(runtimes, rt)
		p, err := rt.Load(b.ctx, host.Config{Name: "noop", Module: host.ModuleConfig{File: source("../../host/testdata/noop.wasm")}}, host.Adapter{Kind: abi.KindScheduler})
		if err != nil {
			return nil, err
		}
		list = append(list, func(n int) {
			for range n {
				if err := callNoop(b.ctx, p); err != nil {
					failed = err
				}
			}
		})
		for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetPerCall} {
			p, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{
				Name: "required-labels " + string(reset), Module: host.ModuleConfig{File: policy}, Reset: reset,
				GuestConfig: []byte(labelsConfig),
			}})
			if err != nil {
				return nil, err
			}
			engine := admission.NewEngine(p)
			list = append(list, func(n int) {
				for range n {
					request, err := admission.DecodeReview(body)
					if err == nil && !engine.Validate(b.ctx, request).Allowed {
						err = fmt.Errorf("the policy denied the Pod")
					}
					if err != nil {
						failed = err
					}
				}
			})
		}
		engine, err := hooks.NewEngine(b.ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
			Config: host.Config{Name: "cpu-from-annotation", Module: host.ModuleConfig{File: hook}},
		}}})
		if err != nil {
			return nil, err
		}
		request := hookRequest()
		list = append(list, func(n int) {
			for range n {
				if _, err := engine.Decide(b.ctx, request); err != nil {
					failed = err
				}
			}
		})
		filter, err := loadPlugin(b, rt, "cycle", cycle, "")
		if err != nil {
			return nil, err
		}
		c, turn := &cycles{ctx: b.ctx, plugin: filter.(cyclePlugin), pod: pod(), workers: 1}, 0
		return append(list, func(n int) {
			for range n {
				c.run(versions[turn%len(versions)])
				turn++
			}
			if status := c.failed.Load(); status != nil {
				failed = status.AsError()
			}
		}), nil
	}
	none, err := operations(host.IsolationNone)
	if err != nil {
		return err
	}
	process, err := operations(host.IsolationProcess)
	if err != nil {
		return err
	}
	b.compare("a call that does nothing, in a process", target{time: 3 * time.Microsecond, noAllocs: true}, process[0], "isolation: none", none[0])
	const pause = 2 * time.Millisecond
	for _, row := range []struct {
		what     string
		n        int
		pause    time.Duration
		target   string
		most     time.Duration
		absolute bool
	}{
		{"the same", 0, 0, "<= 3µs", 3 * time.Microsecond, true},
		{"the same after a pause of 2ms", 0, pause, "<= 15µs", 15 * time.Microsecond, true},
		{"a verdict", 1, 0, "<= theirs + 8µs", 8 * time.Microsecond, false},
		{"a verdict after a pause of 2ms", 1, pause, "", 0, false},
		{"a verdict with reset: PerCall", 2, 0, "<= theirs + 8µs", 8 * time.Microsecond, false},
		{"a hook's decision", 3, 0, "<= theirs + 5µs", 5 * time.Microsecond, false},
		{"a cycle over 1000 new Nodes", 4, 0, "<= 2x", 0, false},
	} {
		count := 60
		if row.n == 4 {
			count = 2
		}
		var ours, theirs []time.Duration
		for range 40 {
			ours = append(ours, timesOf(process[row.n], count, row.pause)...)
			theirs = append(theirs, timesOf(none[row.n], count, row.pause)...)
		}
		our, their := percentile(ours, 50), percentile(theirs, 50)
		ok := our <= row.most || !row.absolute && our-their <= row.most || row.n == 4 && our <= 2*their
		b.add(row.what+", in a process", spread(ours), "isolation: none", spread(theirs), float64(our)/float64(their), row.target, ok)
	}
	if failed != nil {
		return failed
	}
	if err := benchRestart(b, policy, body); err != nil {
		return err
	}
	return benchManyProcesses(b)
}

// timesOf returns how long each of several operations takes.
func timesOf(run func(n int), count int, pause time.Duration) (times []time.Duration) {
	for range count {
		time.Sleep(pause)
		start := time.Now()
		run(1)
		times = append(times, time.Since(start))
	}
	return times
}

// percentile returns the time within which n of 100 operations end. It sorts them.
func percentile(times []time.Duration, n int) time.Duration {
	slices.Sort(times)
	return times[(len(times)-1)*n/100]
}

// spread writes the times of operations. The tenth that was fastest had a processor for each process.
func spread(times []time.Duration) string {
	return fmt.Sprintf("%s, fastest tenth %s, p99 %s", short(percentile(times, 50)), short(percentile(times, 10)), short(percentile(times, 99)))
}

// children returns the processes that this one has started.
func children() (list []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // It has ended.
		}
		// The name is in parentheses; the state and the parent follow.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) && fields[0] != "Z" {
			pid, err := strconv.Atoi(path.Base(path.Dir(file)))
			if err != nil {
				return nil, err
			}
			list = append(list, pid)
		}
	}
	return list, nil
}

// benchRestart kills the process of a Go policy, and measures when it serves again.
func benchRestart(b *bench, policy string, body []byte) error {
	before, err := children()
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{MinimumIsolation: host.IsolationProcess})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	p, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{Name: "required-labels", Module: host.ModuleConfig{File: policy}, GuestConfig: []byte(labelsConfig)}})
	if err != nil {
		return err
	}
	engine := admission.NewEngine(p)
	var times []time.Duration
	for range 4 { // Within a minute the host replaces five.
		now, err := children()
		if err != nil {
			return err
		}
		its := slices.IndexFunc(now, func(pid int) bool { return !slices.Contains(before, pid) })
		if its < 0 {
			return errors.New("the policy has no process")
		}
		child, err := os.FindProcess(now[its])
		if err == nil {
			err = child.Kill()
		}
		if err != nil {
			return err
		}
		start := time.Now()
		for killed := now[its]; slices.Contains(now, killed); {
			if now, err = children(); err != nil {
				return err
			}
		}
		for served := false; !served; {
			request, err := admission.DecodeReview(body)
			if err != nil {
				return err
			}
			served = engine.Validate(b.ctx, request).Allowed
			if err := b.ctx.Err(); err != nil {
				return err
			}
		}
		times = append(times, time.Since(start))
	}
	const most = time.Second
	b.add("a verdict again after the process of a Go policy was killed", spread(times), "-", "-", 0, "<= 1s", percentile(times, 50) <= most)
	return nil
}

// benchManyProcesses has 16 goroutines make 1,000 calls a second together, of 50 plugins: while these
// come to share a process, and after that.
func benchManyProcesses(b *bench) error {
	const plugins, goroutines, calls, each = 50, 16, 1000, 2 * time.Second
	module, err := os.ReadFile(source("../../host/testdata/noop.wasm"))
	if err != nil {
		return err
	}
	levels := []host.Isolation{host.IsolationNone, host.IsolationProcess}
	list := map[host.Isolation][]*host.Plugin{}
	for _, level := range levels {
		rt, err := host.NewRuntime(host.RuntimeConfig{MinimumIsolation: level})
		if err != nil {
			return err
		}
		defer rt.Close(b.ctx)
		for n := range plugins {
			// With a custom section, so that none is another's.
			own := append(slices.Clip(module), 0, 4, 2, 'i', 's', byte(n))
			p, err := rt.Load(b.ctx, host.Config{Name: strconv.Itoa(n), Module: host.ModuleConfig{Bytes: own}, Limits: host.Limits{Timeout: time.Minute}}, host.Adapter{Kind: abi.KindScheduler})
			if err != nil {
				return err
			}
			list[level] = append(list[level], p)
		}
	}
	measure := func(times map[host.Isolation][]time.Duration) error {
		for _, level := range levels {
			var mu sync.Mutex
			var group sync.WaitGroup
			var failed error
			start := time.Now()
			for g := range goroutines {
				group.Go(func() {
					for n := g; n < int(each.Seconds()*calls); n += goroutines {
						// A call that begins late counts from when it should have begun.
						due := start.Add(time.Duration(n) * time.Second / calls)
						time.Sleep(time.Until(due))
						err := callNoop(b.ctx, list[level][n%plugins])
						took := time.Since(due)
						mu.Lock()
						times[level] = append(times[level], took)
						failed = errors.Join(failed, err)
						mu.Unlock()
					}
				})
			}
			if group.Wait(); failed != nil {
				return failed
			}
		}
		return nil
	}
	add := func(what string, rounds int, more func() bool) error {
		times := map[host.Isolation][]time.Duration{}
		for n := 0; n < rounds || more(); n++ {
			if err := measure(times); err != nil {
				return err
			}
		}
		ours, theirs := times[host.IsolationProcess], times[host.IsolationNone]
		our, their := percentile(ours, 99), percentile(theirs, 99)
		const most = time.Millisecond
		b.add("1000 calls/s of 16 goroutines, 50 plugins, "+what, spread(ours), "isolation: none", spread(theirs), float64(our)/float64(their), "p99 <= theirs + 1ms", our-their <= most)
		return nil
	}
	deadline := time.Now().Add(time.Minute)
	err = add("which come to share a process", 3, func() bool {
		now, err := children()
		return err == nil && len(now) > 1 && time.Now().Before(deadline)
	})
	if err != nil {
		return err
	}
	return add("which share a process", 3, func() bool { return false })
}

// callNoop calls a guest that does nothing.
func callNoop(ctx context.Context, p *host.Plugin) error {
	inst, err := p.Acquire(ctx)
	if err != nil {
		return err
	}
	defer inst.Release()
	_, err = inst.Call(ctx, abi.Filter, 0, 0, 0)
	return err
}
