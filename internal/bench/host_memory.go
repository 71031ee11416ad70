package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/tetratelabs/wazero"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// benchMemory measures how much private memory each of 300 instances of a Go
// guest takes, all of them called once. It says nothing where the kernel does
// not tell.
func benchMemory(b *bench, rt *host.Runtime, work []byte) error {
	const (
		instances      = 300
		plainInstances = 50 // Enough for an average, and 4 MB each.
		most           = 0.3e6
	)
	if _, err := private(); err != nil {
		return nil
	}
	plugin, err := rt.Load(b.ctx, host.Config{
		Name: "work", Module: host.ModuleConfig{Bytes: work}, Limits: host.Limits{Instances: instances},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	var held []*host.Instance
	ours, err := each(instances, func() error {
		inst, err := plugin.Acquire(b.ctx)
		if err != nil {
			return err
		}
		held = append(held, inst)
		_, err = inst.Call(b.ctx, abi.Filter, 0, 0, 0)
		return err
	})
	for _, inst := range held {
		inst.Release()
	}
	if err != nil {
		return err
	}
	if err := plugin.Close(b.ctx); err != nil {
		return err
	}
	p, err := newPlain(b.ctx, wazero.NewRuntimeConfig(), work)
	if err != nil {
		return err
	}
	defer p.Close(b.ctx)
	theirs, err := each(plainInstances, func() error {
		module, err := p.instantiate(b.ctx)
		if err != nil {
			return err
		}
		_, err = module.ExportedFunction("filter").Call(b.ctx, 0, 0, 0)
		return err
	})
	if err != nil {
		return err
	}
	b.add(fmt.Sprintf("private memory of an instance of a Go guest, over %d", instances),
		fmt.Sprintf("%.2f MB", ours/1e6), "plain wazero", fmt.Sprintf("%.2f MB", theirs/1e6),
		ours/theirs, fmt.Sprintf("<= %.1f MB", most/1e6), ours <= most)
	return nil
}

// each returns by how much the private memory of the process grows, on average,
// each of n times that f runs. The first time is not among them: it makes what
// all share.
func each(n int, f func() error) (float64, error) {
	if err := f(); err != nil {
		return 0, err
	}
	before, err := private()
	if err != nil {
		return 0, err
	}
	for range n - 1 {
		if err := f(); err != nil {
			return 0, err
		}
	}
	after, err := private()
	return (after - before) / float64(n-1), err
}

// private returns how many bytes of memory belong to this process alone.
func private() (bytes float64, err error) {
	debug.FreeOSMemory()
	f, err := os.Open("/proc/self/smaps_rollup")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if key != "Private_Clean" && key != "Private_Dirty" {
			continue
		}
		var kib float64
		if _, err := fmt.Sscan(value, &kib); err != nil {
			return 0, fmt.Errorf("read /proc/self/smaps_rollup: %s: %w", lines.Text(), err)
		}
		bytes += kib * 1024
	}
	return bytes, lines.Err()
}
