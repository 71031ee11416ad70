package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// add adds a row that is no comparison of two loops. ratio is ours to theirs, 0
// if nothing compares.
func (b *bench) add(what string, ours, against, theirs string, ratio float64, target string, ok bool) {
	r := row{what: what, ours: ours, against: against, theirs: theirs, ratio: "-", target: target, ok: ok}
	if ratio != 0 {
		r.ratio = fmt.Sprintf("%.3gx", ratio)
	}
	b.rows = append(b.rows, r)
}

// benchDeadline measures when a call comes back that has 100 ms and would never
// end. The spinning guest is that of the tests.
func benchDeadline(b *bench, rt *host.Runtime, _ []byte) error {
	const (
		deadline = 100 * time.Millisecond
		late     = 125 * time.Millisecond
		times    = 5
	)
	spins, err := os.ReadFile(source("../../host/testdata/spins.wasm"))
	if err != nil {
		return err
	}
	plugin, err := rt.Load(b.ctx, host.Config{
		Name: "spins", Module: host.ModuleConfig{Bytes: spins},
		Limits: host.Limits{Fuel: math.MaxInt64, Timeout: deadline},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	defer plugin.Close(b.ctx)
	ours := func(how uint64) (time.Duration, error) {
		inst, err := plugin.Acquire(b.ctx)
		if err != nil {
			return 0, err
		}
		defer inst.Release()
		start := time.Now()
		_, err = inst.Call(b.ctx, abi.Filter, 0, how, 0)
		if took := time.Since(start); errors.Is(err, context.DeadlineExceeded) {
			return took, nil
		}
		return 0, fmt.Errorf("the guest ended with %v", err)
	}
	theirs := func() (time.Duration, error) {
		ctx, cancel := context.WithTimeout(b.ctx, deadline)
		defer cancel()
		rt := wazero.NewRuntimeWithConfig(b.ctx, wazero.NewRuntimeConfig().WithCloseOnContextDone(true))
		defer rt.Close(b.ctx)
		// The least that loops: (func (export "f") (loop $l (br $l))).
		module, err := rt.Instantiate(b.ctx, []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x07\x05\x01\x01f\x00\x00\x0a\x09\x01\x07\x00\x03\x40\x0c\x00\x0b\x0b"))
		if err != nil {
			return 0, err
		}
		start := time.Now()
		if _, err := module.ExportedFunction("f").Call(ctx); err == nil {
			return 0, errors.New("an endless loop ended")
		}
		return time.Since(start), nil
	}
	worst := func(f func() (time.Duration, error)) (most time.Duration, err error) {
		for range times {
			took, err := f()
			if err != nil {
				return 0, err
			}
			most = max(most, took)
		}
		return most, nil
	}
	closes, err := worst(theirs)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		name, against, theirs string
		how                   uint64
	}{
		{"loop", "wazero with close on context's done", short(closes) + ", instance closed", 1},
		{"recursion", "wazero with close on context's done", "does not return", 2},
	} {
		took, err := worst(func() (time.Duration, error) { return ours(w.how) })
		if err != nil {
			return err
		}
		b.add(fmt.Sprintf("deadline of 100ms in an endless %s, worst of %d", w.name, times),
			short(took), w.against, w.theirs, 0, "<= "+short(late), took <= late)
	}
	return nil
}

// benchReset measures what a trap of a Go guest costs beside the trap itself:
// giving the instance back and having one that is fresh.
func benchReset(b *bench, rt *host.Runtime, work []byte) error {
	plugin, err := rt.Load(b.ctx, host.Config{
		Name: "work", Module: host.ModuleConfig{Bytes: work}, Limits: host.Limits{Instances: 1},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	defer plugin.Close(b.ctx)
	p, err := newPlain(b.ctx, wazero.NewRuntimeConfig(), work)
	if err != nil {
		return err
	}
	defer p.Close(b.ctx)
	var resets, instantiations []float64
	for range 101 {
		inst, err := plugin.Acquire(b.ctx)
		if err != nil {
			return err
		}
		if _, err := inst.Call(b.ctx, abi.Filter, 0, workTrap, 0); err == nil {
			return errors.New("the work guest does not trap")
		}
		start := time.Now()
		inst.Release()
		if inst, err = plugin.Acquire(b.ctx); err != nil {
			return err
		}
		resets = append(resets, float64(time.Since(start)))
		inst.Release()

		start = time.Now()
		module, err := p.instantiate(b.ctx)
		if err != nil {
			return err
		}
		instantiations = append(instantiations, float64(time.Since(start)))
		if err := module.Close(b.ctx); err != nil {
			return err
		}
	}
	const most = 100 * time.Microsecond
	ours, theirs := median(resets), median(instantiations)
	b.add(fmt.Sprintf("reset of a Go guest of %.1f MB after a trap", float64(len(work))/1e6),
		short(time.Duration(ours)), "wazero, instantiate anew", short(time.Duration(theirs)),
		ours/theirs, "<= "+short(most), ours <= float64(most))
	return nil
}

// benchIdle measures what the first call of a Go guest takes whose instances were closed since
// nobody called it, beside the call itself.
func benchIdle(b *bench, _ *host.Runtime, work []byte) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{IdleAfter: time.Millisecond})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	plugin, err := rt.Load(b.ctx, host.Config{Name: "work", Module: host.ModuleConfig{Bytes: work}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	call := func() (time.Duration, error) {
		start := time.Now()
		inst, err := plugin.Acquire(b.ctx)
		if err != nil {
			return 0, err
		}
		_, err = inst.Call(b.ctx, abi.Filter, 0, 0, 0)
		took := time.Since(start)
		inst.Release()
		return took, err
	}
	var first, next []float64
	for range 101 {
		for plugin.Stats().Instances > 0 {
			time.Sleep(time.Millisecond)
		}
		for _, times := range []*[]float64{&first, &next} {
			took, err := call()
			if err != nil {
				return err
			}
			*times = append(*times, float64(took))
		}
	}
	const most = time.Millisecond
	ours, warm := median(first), median(next)
	b.add(fmt.Sprintf("first call of a Go guest of %.1f MB that was idle", float64(len(work))/1e6),
		short(time.Duration(ours)), "the next one", short(time.Duration(warm)), ours/warm, "<= "+short(most), ours-warm <= float64(most))
	return nil
}

// benchLoad measures loading a guest that this machine has compiled before, by
// another process as far as the host can tell.
func benchLoad(b *bench, _ *host.Runtime, work []byte) error {
	dir, err := os.MkdirTemp("", "kubewasm-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	load := func(cache string) (float64, error) {
		rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(dir, cache)})
		if err != nil {
			return 0, err
		}
		defer rt.Close(b.ctx)
		start := time.Now()
		_, err = rt.Load(b.ctx, host.Config{
			Name: "work", Module: host.ModuleConfig{Bytes: work}, Limits: host.Limits{Instances: 1},
		}, host.Adapter{Kind: abi.KindScheduler})
		return float64(time.Since(start)), err
	}
	var cold, warm []float64
	for i := range 2 { // Compiling takes seconds.
		cache := fmt.Sprint(i)
		took, err := load(cache)
		if err != nil {
			return err
		}
		cold = append(cold, took)
		for range 5 {
			if took, err = load(cache); err != nil {
				return err
			}
			warm = append(warm, took)
		}
	}
	mb := float64(len(work)) / 1e6
	most := time.Duration(20 * mb * float64(time.Millisecond))
	ours, theirs := median(warm), median(cold)
	b.add(fmt.Sprintf("load a Go guest of %.1f MB, cache warm", mb), short(time.Duration(ours)), "cache cold", short(time.Duration(theirs)),
		ours/theirs, fmt.Sprintf("<= %s (20ms for 1 MB)", short(most)), ours <= float64(most))
	return benchWarmLoad(b, work)
}

// benchWarmLoad measures the same in a process of its own, which has nothing but the cache.
func benchWarmLoad(b *bench, work []byte) error {
	dir, err := os.MkdirTemp("", "kubewasm-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := load{Module: filepath.Join(dir, "work.wasm"), Cache: filepath.Join(dir, "cache"), Plain: true}
	if err := os.WriteFile(l.Module, work, 0o600); err != nil {
		return err
	}
	cold, err := densityOf(b.ctx, l)
	if err != nil {
		return err
	}
	var warm []float64
	for range rounds {
		loaded, err := densityOf(b.ctx, l)
		if err != nil {
			return err
		}
		warm = append(warm, float64(loaded.Ready))
	}
	const most = 25 * time.Millisecond
	ours := median(warm)
	b.add(fmt.Sprintf("the same in a process of its own, %.1f MB", float64(len(work))/1e6), short(time.Duration(ours)), "cache cold", short(cold.Ready),
		ours/float64(cold.Ready), "<= "+short(most), ours <= float64(most))
	return nil
}
