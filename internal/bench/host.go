package main

import (
	"context"
	"fmt"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// noop is host/testdata/noop.wat: a filter that returns 0.
var noop = []byte("\x00asm\x01\x00\x00\x00" +
	"\x01\x0c\x02\x60\x00\x01\x7e\x60\x03\x7e\x7e\x7e\x01\x7f" + // Types () -> i64, (i64, i64, i64) -> i32.
	"\x03\x03\x02\x00\x01" + // Functions.
	"\x05\x04\x01\x01\x01\x01" + // Memory of one page.
	"\x07\x25\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x06filter\x00\x01" +
	"\x0a\x0c\x02\x05\x00\x42\x80\x01\x0b\x04\x00\x41\x00\x0b")

// What the work guest does for each number that it is passed as a pod.
const (
	workJSON = 1
	workSort = 2
	workTrap = 3
)

func benchHost(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	work, err := buildPlain(b.ctx, "guests/work")
	if err != nil {
		return err
	}
	for _, part := range []func(*bench, *host.Runtime, []byte) error{
		benchCall, benchMetering, benchDeadline, benchReset, benchIdle, benchLoad, benchMemory,
	} {
		if err := part(b, rt, work); err != nil {
			return err
		}
	}
	return nil
}

// benchCall measures a call that does nothing.
func benchCall(b *bench, rt *host.Runtime, _ []byte) error {
	for _, peer := range []struct {
		name   string
		config wazero.RuntimeConfig
	}{
		{"plain wazero, CallWithStack", wazero.NewRuntimeConfig()},
		{"wazero with close on context's done", wazero.NewRuntimeConfig().WithCloseOnContextDone(true)},
	} {
		err := benchCalls(b, rt, noop, "no-op call: acquire, call, release", target{time: 100, noAllocs: true}, 0, peer.name, peer.config)
		if err != nil {
			return err
		}
	}
	return nil
}

// benchMetering measures what the meter costs in a guest of standard Go.
func benchMetering(b *bench, rt *host.Runtime, work []byte) error {
	for _, w := range []struct {
		name string
		pod  uint64
	}{{"JSON", workJSON}, {"sort", workSort}} {
		if err := benchCalls(b, rt, work, "metered Go guest: "+w.name, target{ratio: 1.5}, w.pod, "plain wazero", wazero.NewRuntimeConfig()); err != nil {
			return err
		}
	}
	return nil
}

// benchCalls compares a call through the host with one through wazero alone.
func benchCalls(b *bench, rt *host.Runtime, module []byte, what string, t target, pod uint64, against string, config wazero.RuntimeConfig) error {
	plugin, err := rt.Load(b.ctx, host.Config{Name: "bench", Module: host.ModuleConfig{Bytes: module}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	defer plugin.Close(b.ctx)
	plain, err := newPlain(b.ctx, config, module)
	if err != nil {
		return err
	}
	defer plain.Close(b.ctx)
	instance, err := plain.instantiate(b.ctx)
	if err != nil {
		return err
	}
	filter := instance.ExportedFunction("filter")
	var failed error
	check := func(code uint64, err error) {
		if err == nil && code != 0 {
			err = fmt.Errorf("%s: the guest returns %d", what, code)
		}
		if err != nil {
			failed = err
		}
	}
	b.compare(what, t,
		func(n int) {
			for range n {
				inst, err := plugin.Acquire(b.ctx)
				if err != nil {
					failed = err
					return
				}
				check(inst.Call(b.ctx, abi.Filter, 1, pod, 3))
				inst.Release()
			}
		},
		against,
		func(n int) {
			var stack [3]uint64
			for range n {
				stack = [3]uint64{1, pod, 3}
				err := filter.CallWithStack(b.ctx, stack[:])
				check(stack[0], err)
			}
		})
	return failed
}

// plain is a guest on wazero alone.
type plain struct {
	wazero.Runtime
	compiled wazero.CompiledModule
}

func newPlain(ctx context.Context, config wazero.RuntimeConfig, module []byte) (*plain, error) {
	rt := wazero.NewRuntimeWithConfig(ctx, config)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, rt); err != nil {
		return nil, err
	}
	compiled, err := rt.CompileModule(ctx, module)
	if err != nil {
		return nil, err
	}
	return &plain{rt, compiled}, nil
}

// instantiate makes an instance that has started.
func (p *plain) instantiate(ctx context.Context) (api.Module, error) {
	return p.InstantiateModule(ctx, p.compiled, wazero.NewModuleConfig().
		WithName("").WithArgs("bench").WithStartFunctions("_initialize"))
}
